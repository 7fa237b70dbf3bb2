// Array: a handle to an immutable n-dimensional array.
//
//   Array x = array({{1.f, 2.f}, {3.f, 4.f}});
//   Array y = 0.5f * x + 1;                       // f32[2,2]: numbers take the element type of x
//   std::cout << sum(y).item<float>() << '\n';
//
// Copying a handle shares the array. Elements never change, so handles may be shared between threads; a
// single handle needs the usual protection against concurrent assignment.
//
// An array is concrete (it has data) or traced (it represents a value of a function that jit, grad, vmap or
// another transform is tracing). A traced array has a type but no data.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/shape.h"
#include "lockstep/sharding.h"
#include "lockstep/source_line.h"

namespace lockstep {

class Array;
class IndexedArray;

namespace detail {
struct Node;
class FirstIndex;
// What may be an index of an array: an integer, an array, or a type of lockstep/index.h.
template <class T>
inline constexpr bool is_index =
    (std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_convertible_v<const T*, const Array*> || requires {
  typename T::IndexTag;
};
template <class T>
concept IndexLike = is_index<T>;
void retain(Node*);
void release(Node*);
Node* literal_node(bool);
Node* literal_node(int64_t);
Node* literal_node(double);
Node* literal_node(double re, double im);
// std::complex of any type, without its header.
template <class T>
concept ComplexNumber = requires(const T& x) {
  { x.real() } -> std::convertible_to<double>;
  { x.imag() } -> std::convertible_to<double>;
};
[[noreturn]] void throw_too_large(uint64_t);
template <class T>
int64_t literal_integer(T value) {
  if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(int64_t))
    if (value > static_cast<T>(INT64_MAX)) throw_too_large(value);
  return static_cast<int64_t>(value);
}
// The node of a number.
template <class T>
Node* number_node(const T& value) {
  if constexpr (ComplexNumber<T>)
    return literal_node(static_cast<double>(value.real()), static_cast<double>(value.imag()));
  else if constexpr (std::is_same_v<T, bool>)
    return literal_node(value);
  else if constexpr (std::is_integral_v<T>)
    return literal_node(literal_integer(value));
  else
    return literal_node(static_cast<double>(value));
}
Node* shared_node(const Array&);  // with one more reference
Array from_bytes(const void* data, Type type);
Array adopt_bytes(void* data, Type type, void* owner, void (*destroy)(void*));
}  // namespace detail

class Array {
 public:
  // An empty handle. Only assignment, to_string() and defined() are allowed on it; the rest throws Error.
  Array() = default;

  // Converts a C++ number. In an operation with arrays it takes their element type. Otherwise it is bool, i32
  // (i64 if it does not fit) or f32.
  template <class T>
  requires std::is_arithmetic_v<T> Array(T value)  // NOLINT: numbers are arrays
      : node_(detail::number_node(value)) {}
  // Converts a complex number. In an operation with real arrays the result is c64, or c128 if they are f64.
  template <detail::ComplexNumber T>
  Array(const T& value)  // NOLINT: numbers are arrays
      : node_(detail::number_node(value)) {}

  // Not inline: programs have many temporaries, and inline code for them would take the compiler seconds.
  Array(const Array& other);
  Array(Array&& other) noexcept : node_(other.node_) { other.node_ = nullptr; }
  Array& operator=(const Array& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  // Copies `values`, in row-major order. Throws Error when their number does not match the shape.
  template <class T>
  static Array from(std::span<const T> values, const Shape& shape, SourceLine at = SourceLine::here());
  template <class T>
  static Array from(const std::vector<T>& values, const Shape& shape, SourceLine at = SourceLine::here()) {
    return from(std::span<const T>(values), shape, at);
  }
  static Array from(const std::vector<bool>& values, const Shape& shape, SourceLine at = SourceLine::here());
  // Same, but takes over the vector's memory instead of copying.
  template <class T>
  static Array from(std::vector<T>&& values, const Shape& shape, SourceLine at = SourceLine::here());

  bool defined() const { return node_ != nullptr; }
  bool is_traced() const;
  const Type& type(SourceLine at = SourceLine::here()) const;
  const Shape& shape(SourceLine at = SourceLine::here()) const { return type(at).shape; }
  // The extent of one dimension; negative axes count from the back.
  int64_t shape(int64_t axis, SourceLine at = SourceLine::here()) const;
  DType dtype(SourceLine at = SourceLine::here()) const { return type(at).dtype; }
  int64_t rank(SourceLine at = SourceLine::here()) const { return type(at).rank(); }
  int64_t size(SourceLine at = SourceLine::here()) const { return count(shape(at)); }

  // Elements by NumPy's indexing: x(0), x(_, -1), x(ellipsis, range(0, _, 2), new_axis), x(rows, columns).
  // Defined in lockstep/index.h, which has the rules.
  template <detail::IndexLike... I>
  Array operator()(const detail::FirstIndex& first, const I&... more) const;
  Array operator()() const { return *this; }
  // The same elements, to update them: x.at(i).add(v) is x with v added at index i.
  template <detail::IndexLike... I>
  IndexedArray at(const detail::FirstIndex& first, const I&... more) const;
  IndexedArray at() const;
  template <class I>
  Array operator[](const I&) const {
    static_assert(!sizeof(I), "x[i]: an array is indexed by x(i), and by x(i, j) for several dimensions");
    return *this;
  }

  // How the array is distributed over devices: the sharding set by device_put or a compiled function; without
  // one, a single-device sharding on the first local device. For a traced array, the sharding known so far.
  NamedSharding sharding(SourceLine at = SourceLine::here()) const;
  bool is_fully_replicated() const { return sharding().is_fully_replicated(); }

  // The elements in row-major order, copied to the host first if needed. Valid as long as this handle; a
  // temporary is rejected at compile time. Throws Error for a traced array and when T is not the element
  // type.
  template <class T>
  std::span<const T> data(SourceLine at = SourceLine::here()) const& {
    return {static_cast<const T*>(raw_data(dtype_of<T>, at)), static_cast<size_t>(size())};
  }
  template <class T>
  std::span<const T> data(SourceLine at = SourceLine::here()) const&& = delete;
  // The elements converted to T, in row-major order.
  template <class T>
  std::vector<T> to_vector(SourceLine at = SourceLine::here()) const;
  // The only element, converted to T. Throws Error when the array has more or fewer than one.
  template <class T>
  T item(SourceLine at = SourceLine::here()) const;
  // Whether the only element is nonzero. Throws Error for a traced array, which has no value yet.
  explicit operator bool() const;

  // "f32[2,3] [[1, 2, 3], [4, 5, 6]]", "c64[2] [1+2i, 0-1i]". Long arrays are abbreviated; a traced array prints only its type.
  std::string to_string() const;

  // Internal: takes over one reference to the node.
  explicit Array(detail::Node* node) : node_(node) {}
  detail::Node* node() const { return node_; }

 private:
  const void* raw_data(DType wanted, SourceLine at) const;

  detail::Node* node_ = nullptr;
};

std::ostream& operator<<(std::ostream&, const Array&);

}  // namespace lockstep

// In the library.
extern template class std::vector<lockstep::Array>;

namespace lockstep {

namespace detail {
void check_count(size_t values, const Shape&, SourceLine at);
}  // namespace detail

template <class T>
Array Array::from(std::span<const T> values, const Shape& shape, SourceLine at) {
  detail::check_count(values.size(), shape, at);
  return detail::from_bytes(values.data(), {dtype_of<std::remove_const_t<T>>, shape});
}

template <class T>
Array Array::from(std::vector<T>&& values, const Shape& shape, SourceLine at) {
  detail::check_count(values.size(), shape, at);
  if constexpr (std::is_same_v<T, bool>) {
    return from(static_cast<const std::vector<bool>&>(values), shape, at);
  } else {
    auto* owner = new std::vector<T>(std::move(values));
    return detail::adopt_bytes(owner->data(), {dtype_of<T>, shape}, owner,
                               [](void* vector) { delete static_cast<std::vector<T>*>(vector); });
  }
}

}  // namespace lockstep
