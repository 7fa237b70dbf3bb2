// Arithmetic on lists of dimensions, and the checks that rows share. Pure functions, safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "lockstep/shape.h"

namespace lockstep {

using Dims = std::vector<int64_t>;

// Element strides of a dense row-major array.
inline Dims dense_strides(const Shape& shape) {
  Dims strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

// {begin, begin + 1, ..., end - 1}.
inline Dims counting(int64_t begin, int64_t end) {
  Dims out;
  for (int64_t d = begin; d < end; ++d) out.push_back(d);
  return out;
}

inline bool contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// `first` followed by `rest`.
inline Dims prepend(int64_t first, const Dims& rest) {
  Dims out{first};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

inline Dims plus(Dims dims, int64_t by) {
  for (int64_t& d : dims) d += by;
  return dims;
}

// `shape` without its dimensions `axes`.
inline Shape without(const Shape& shape, const Dims& axes) {
  Shape out;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!contains(axes, static_cast<int64_t>(d))) out.push_back(shape[d]);
  return out;
}

// Product of the extents of dimensions [begin, end).
inline int64_t extent(const Shape& shape, int64_t begin, int64_t end) {
  return count(Shape(shape.begin() + begin, shape.begin() + end));
}

// The permutation that moves dimension `from` of `rank` to position `to`, the others keeping their order.
inline Dims move_dim(int64_t rank, int64_t from, int64_t to) {
  Dims p = counting(0, rank);
  p.erase(p.begin() + from);
  p.insert(p.begin() + to, from);
  return p;
}

inline Dims inverse(const Dims& permutation) {
  Dims out(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) out[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return out;
}

// Produces the letters of a Rule in order.
class Factors {
 public:
  char next() {
    LOCKSTEP_CHECK(used_ < 52, "more than 52 factors");
    const int i = used_++;
    return static_cast<char>(i < 26 ? 'a' + i : 'A' + i - 26);
  }
  int left() const { return 52 - used_; }
  std::string next(int64_t n) {
    std::string out;
    for (int64_t i = 0; i < n; ++i) out += next();
    return out;
  }

 private:
  int used_ = 0;
};

// Throw Error unless the op got the right number of operands; `axis` is a dimension of `shape`; two dtypes are equal.
inline void expect_operands(std::string_view op, Types in, size_t wanted) {
  if (in.size() != wanted)
    throw_error("{}: takes {} operand{} and got {}", op, wanted, wanted == 1 ? "" : "s", in.size());
}
inline void expect_axis(std::string_view op, int64_t axis, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis >= 0 && axis < rank) return;
  if (rank == 0) throw_error("{}: axis {} is out of range; a scalar has no axes", op, axis);
  throw_error("{}: axis {} is out of range for {}; valid axes: 0 to {}", op, axis, to_string(shape), rank - 1);
}
inline void expect_same_dtype(std::string_view op, const Type& a, const Type& b) {
  if (a.dtype != b.dtype) throw_error("{}: {} and {} differ in type; cast one of them", op, to_string(a), to_string(b));
}

}  // namespace lockstep
