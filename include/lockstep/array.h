// Array: a handle to an n-dimensional array, copied like a pointer. Its elements never change, so handles may be shared
// between threads. Two states: concrete (it has data) and traced (it stands for a value of a function being traced by
// jit, grad, vmap and their like). C++ numbers convert to an Array and take the element type of what they meet: `0.5f *
// x` has the type of x.
#pragma once

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

namespace lockstep {

class Array;

namespace detail {
struct Node;
void retain(Node*);
void release(Node*);
Node* literal_node(bool);
Node* literal_node(int64_t);
Node* literal_node(double);
[[noreturn]] void throw_too_large(uint64_t);
template <class T>
int64_t literal_integer(T value) {
  if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(int64_t))
    if (value > static_cast<T>(INT64_MAX)) throw_too_large(value);
  return static_cast<int64_t>(value);
}
Array from_bytes(const void* data, Type type);
Array adopt_bytes(void* data, Type type, void* owner, void (*destroy)(void*));
}  // namespace detail

class Array {
 public:
  // No array at all; only assignment and defined() are allowed on it.
  Array() = default;

  // A number that takes the element type of what it meets; on its own it is bool, i32 (i64 when it needs to be) or f32.
  template <class T>
  requires std::is_arithmetic_v<T> Array(T value)  // NOLINT: numbers are arrays
      : node_(detail::literal_node(literal(value))) {}

  Array(const Array& other) : node_(other.node_) {
    if (node_) detail::retain(node_);
  }
  Array(Array&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  Array& operator=(Array other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~Array() {
    if (node_) detail::release(node_);
  }

  // A copy of `values`, row-major. Throws Error when their number is not that of the shape.
  template <class T>
  static Array from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Array from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  static Array from(const std::vector<bool>& values, const Shape& shape);
  // Takes the values' memory instead of copying it.
  template <class T>
  static Array from(std::vector<T>&& values, const Shape& shape);

  bool defined() const { return node_ != nullptr; }
  bool is_traced() const;
  const Type& type() const;
  const Shape& shape() const { return type().shape; }
  int64_t shape(int64_t axis) const;  // negative axes count from the back
  DType dtype() const { return type().dtype; }
  int64_t rank() const { return type().rank(); }
  int64_t size() const { return count(shape()); }

  // How its pieces lie on devices: what device_put or a compiled function said, else whole on the first device. For a
  // traced array what is known so far.
  NamedSharding sharding() const;
  bool is_fully_replicated() const { return sharding().is_fully_replicated(); }

  // The elements, row-major, as long as this handle lives, which must have a name: those of a temporary would be gone
  // before they are read. Throws Error for a traced array and for another element type.
  template <class T>
  std::span<const T> data() const& {
    return {static_cast<const T*>(raw_data(dtype_of<T>)), static_cast<size_t>(size())};
  }
  template <class T>
  std::span<const T> data() const&& = delete;
  // The elements converted to T.
  template <class T>
  std::vector<T> to_vector() const;
  // The one element, converted to T. Throws Error when there are more.
  template <class T>
  T item() const;
  // Whether the one element is true. Throws Error for a traced array, whose value is not known yet.
  explicit operator bool() const;

  // "f32[2,3] [[1, 2, 3], [4, 5, 6]]", shortened when long; a traced array prints as its type.
  std::string to_string() const;

  // Internal.
  explicit Array(detail::Node* node) : node_(node) {}
  detail::Node* node() const { return node_; }

 private:
  template <class T>
  static auto literal(T value) {
    if constexpr (std::is_same_v<T, bool>)
      return value;
    else if constexpr (std::is_integral_v<T>)
      return detail::literal_integer(value);
    else
      return static_cast<double>(value);
  }
  const void* raw_data(DType wanted) const;

  detail::Node* node_ = nullptr;
};

std::ostream& operator<<(std::ostream&, const Array&);

namespace detail {
void check_count(size_t values, const Shape&);
}  // namespace detail

template <class T>
Array Array::from(std::span<const T> values, const Shape& shape) {
  detail::check_count(values.size(), shape);
  return detail::from_bytes(values.data(), {dtype_of<std::remove_const_t<T>>, shape});
}

template <class T>
Array Array::from(std::vector<T>&& values, const Shape& shape) {
  detail::check_count(values.size(), shape);
  if constexpr (std::is_same_v<T, bool>) {
    return from(static_cast<const std::vector<bool>&>(values), shape);
  } else {
    auto* owner = new std::vector<T>(std::move(values));
    return detail::adopt_bytes(owner->data(), {dtype_of<T>, shape}, owner,
                               [](void* vector) { delete static_cast<std::vector<T>*>(vector); });
  }
}

}  // namespace lockstep
