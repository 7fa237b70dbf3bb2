// NumPy's indexing: x(...) for x[...], and x.at(...) to update elements. Safe to call from any thread.
//
//   Array column = x(_, -1);                        // x[:, -1]
//   Array even = x(ellipsis, range(0, _, 2));       // x[..., 0::2]
//   Array back = x(range(_, _, -1), new_axis);      // x[::-1, None]
//   Array picked = x(rows, columns);                // x[rows, columns], with integer arrays
//   Array counted = x.at(i).add(1);                 // x.at[i].add(1): equal indices all count
//
// An index is an integer, a range, `_` (all of a dimension), `ellipsis` (all dimensions that have no index of their
// own), `new_axis`, or an array. Trailing dimensions without an index are kept completely.
//
// Integer arrays broadcast together, and their common dimensions replace theirs: in place if the arrays and
// integers are adjacent, else first, as in NumPy. A mask, an array of bools, selects the elements that are true.
// Their number must be known: a mask that is computed in a traced function throws Error, except to update with a
// value of each element.
//
// A C++ integer out of range throws Error. Array elements out of range are handled as IndexMode says. Negative
// indices count from the end first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

// All of a dimension, or an omitted bound of a range.
struct Everything {
  using IndexTag = void;
};
inline constexpr Everything _{};

struct Ellipsis {
  using IndexTag = void;
};
inline constexpr Ellipsis ellipsis{};

struct NewAxis {
  using IndexTag = void;
};
inline constexpr NewAxis new_axis{};

struct IndexRange {
  using IndexTag = void;
  std::optional<int64_t> begin, end;
  int64_t step = 1;
};

// A bound of a range: an integer, or `_`.
struct RangeBound {
  constexpr RangeBound(int64_t at) : value(at) {}  // NOLINT: reads as an argument
  constexpr RangeBound(Everything) {}              // NOLINT
  std::optional<int64_t> value;
};

// Python's begin:end:step. Negative bounds count from the end, bounds out of range are clamped, `_` omits a bound:
// range(1, _) is 1:, range(_, -1) is :-1, range(_, _, -1) is ::-1. The step must not be 0.
constexpr IndexRange range(RangeBound begin, RangeBound end, int64_t step = 1) {
  return {begin.value, end.value, step};
}
// range(n) is :n.
constexpr IndexRange range(RangeBound end) { return {{}, end.value, 1}; }

// One index.
class Index {
 public:
  enum class Kind : uint8_t { integer, range, rest, inserted, array };

  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Index(T at)  // NOLINT: reads as an argument
      : kind_(Kind::integer), integer_(static_cast<int64_t>(at)) {}
  Index(IndexRange range) : kind_(Kind::range), range_(range) {}        // NOLINT
  Index(Everything) : kind_(Kind::range) {}                             // NOLINT
  Index(Ellipsis) : kind_(Kind::rest) {}                                // NOLINT
  Index(NewAxis) : kind_(Kind::inserted) {}                             // NOLINT
  Index(Array array) : kind_(Kind::array), array_(std::move(array)) {}  // NOLINT

  Kind kind() const { return kind_; }
  int64_t integer() const { return integer_; }
  const IndexRange& range() const { return range_; }
  const Array& array() const { return array_; }

 private:
  Kind kind_;
  int64_t integer_ = 0;
  IndexRange range_;
  Array array_;
};

// What happens at elements of index arrays that are out of range.
enum class IndexMode : uint8_t {
  promise_in_bounds,  // they do not occur; if they do, as `clip` for reading and `drop` for updates
  clip,               // clamped to the nearest element: the default for reading
  drop,               // not updated: the default for updates. For reading: as `fill`
  fill,               // reading gives `fill_value`. For updates: as `drop`
};

struct GetOptions {
  IndexMode mode = IndexMode::clip;
  // For mode `fill`. Default: NaN, the lowest signed integer, the greatest unsigned one, or true.
  Array fill_value = {};
};

struct UpdateOptions {
  IndexMode mode = IndexMode::drop;
  bool unique_indices = false;  // a promise that no element is given twice; makes gradients cheaper
};

// The elements x.at(...) of an array. The functions return the array with these elements updated; a value
// broadcasts to the shape of get() and is converted to the element type of the array. Where elements are given
// several times, the results do not depend on threads or devices: add, subtract, multiply, divide, min and max
// combine all values, and set keeps the last one in row-major order. Gradients of min and max are divided equally
// between equal values.
class IndexedArray {
 public:
  IndexedArray(Array x, std::span<const Index> indices) : x_(std::move(x)), indices_(indices.begin(), indices.end()) {}

  Array get(const GetOptions& options = {}, SourceLine at = SourceLine::here()) const;
  Array set(const Operand& values, UpdateOptions options = {}) const;
  Array add(const Operand& values, UpdateOptions options = {}) const;
  Array subtract(const Operand& values, UpdateOptions options = {}) const;
  Array multiply(const Operand& values, UpdateOptions options = {}) const;
  Array min(const Operand& values, UpdateOptions options = {}) const;
  Array max(const Operand& values, UpdateOptions options = {}) const;
  // x divided by the product of the values, and x to the power of their product. Integers become floats as in x / y.
  Array divide(const Operand& values, UpdateOptions options = {}) const;
  Array power(const Operand& values, UpdateOptions options = {}) const;
  // Each element replaced by f of it, once, even if it is given several times.
  Array apply(const std::function<Array(const Array&)>& f, UpdateOptions options = {},
              SourceLine at = SourceLine::here()) const;

 private:
  Array x_;
  std::vector<Index> indices_;
};

namespace detail {

// The first index of a call, with the line of the call, which errors name.
class FirstIndex : public Index {
 public:
  template <IndexLike T>
  FirstIndex(const T& index, SourceLine at = SourceLine::here())  // NOLINT: reads as an argument
      : FirstIndex(Index(index), at, 0) {}
  // Not inline, as with Array.
  ~FirstIndex();

 private:
  FirstIndex(Index index, SourceLine at, int);

  CallerLine line_;
};

Array indexed(const Array& x, std::span<const Index> indices, const GetOptions& options = {});

}  // namespace detail

template <detail::IndexLike... I>
Array Array::operator()(const detail::FirstIndex& first, const I&... more) const {
  return detail::indexed(*this, std::array<Index, 1 + sizeof...(I)>{first, Index(more)...});
}

template <detail::IndexLike... I>
IndexedArray Array::at(const detail::FirstIndex& first, const I&... more) const {
  return {*this, std::array<Index, 1 + sizeof...(I)>{first, Index(more)...}};
}
inline IndexedArray Array::at() const { return {*this, {}}; }

}  // namespace lockstep
