#include "lockstep/array.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <mutex>
#include <ostream>
#include <unordered_set>

#include "array/lane_memory.h"
#include "array/node.h"
#include "array/trace.h"
#include "base/brief_lock.h"
#include "base/check.h"
#include "base/dispatch.h"
#include "base/hash.h"
#include "lockstep/complex.h"
#include "lockstep/operand.h"
#include "plan/lanes.h"

template class std::vector<lockstep::Array>;

namespace lockstep {
namespace detail {
namespace {

struct TypeHash {
  size_t operator()(const Type& t) const {
    Hasher h;
    h.add(static_cast<uint64_t>(t.dtype));
    for (int64_t d : t.shape) h.add(static_cast<uint64_t>(d));
    for (const std::string& axis : t.varying) h.add(std::string_view(axis));
    return h.value();
  }
};

BriefLock free_lock;
Node* free_nodes = nullptr;

}  // namespace

const Type* intern(const Type& type) {
  static std::mutex mutex;
  static auto* types = new std::unordered_set<Type, TypeHash>;  // elements never move
  const std::lock_guard lock(mutex);
  return &*types->insert(type).first;
}

void release_memory(Node& node) {
  node.pieces.reset();
  node.copies.reset();
  node.host.reset();
}

Node* new_node() {
  {
    const std::lock_guard lock(free_lock);
    if (Node* node = free_nodes) {
      free_nodes = node->next;
      node->references.store(1, std::memory_order_relaxed);
      node->sharding = {};
      node->is_number_input = false;
      return node;
    }
  }
  return new Node;
}

void retain(Node* node) { node->references.fetch_add(1, std::memory_order_relaxed); }

void release(Node* node) {
  if (node->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  release_memory(*node);
#if defined(__SANITIZE_ADDRESS__)
  delete node;  // so that a use after free is detected
#else
  const std::lock_guard lock(free_lock);
  node->next = free_nodes;
  free_nodes = node;
#endif
}

namespace {

Node* literal_node(DType dtype, double real, int64_t integer) {
  static const Type* const kTypes[] = {intern({DType::boolean, {}}), intern({DType::i32, {}}), intern({DType::i64, {}}),
                                       intern({DType::f32, {}}), intern({DType::c64, {}})};
  Node* node = new_node();
  node->kind = Node::Kind::literal;
  node->type = kTypes[dtype == DType::boolean ? 0
                      : dtype == DType::i32   ? 1
                      : dtype == DType::i64   ? 2
                      : dtype == DType::f32   ? 3
                                              : 4];
  node->real = real;
  node->integer = integer;
  return node;
}

}  // namespace

Node* literal_node(bool value) { return literal_node(DType::boolean, value, value); }
Node* literal_node(int64_t value) {
  return literal_node(value == static_cast<int32_t>(value) ? DType::i32 : DType::i64, static_cast<double>(value),
                      value);
}
void throw_too_large(uint64_t value) {
  throw_error("array: {} is more than {}, the largest i64; use a floating number", value,
              std::numeric_limits<int64_t>::max());
}
Node* literal_node(double value) { return literal_node(DType::f32, value, 0); }
Node* literal_node(double re, double im) {
  Node* node = literal_node(DType::c64, re, 0);
  node->imaginary = im;
  return node;
}

Array concrete(const Type* interned, BufferPtr buffer, NamedSharding sharding) {
  Node* node = new_node();
  node->kind = Node::Kind::concrete;
  node->type = interned;
  node->pieces.one = std::move(buffer);
  node->sharding = sharding;
  return Array(node);
}

Array concrete(const Type* interned, LanePiecesPtr pieces, NamedSharding sharding) {
  Array array = concrete(interned, BufferPtr(), sharding);
  array.node()->pieces.divided = std::move(pieces);
  return array;
}

namespace {

// Guards Node::host where it is filled on first use.
std::mutex& host_mutex() {
  static std::mutex mutex;
  return mutex;
}

// A buffer of the main lane with elements of `node`, as an array. `all`: all elements, so that it shares the host copy.
Array on_main_lane(const Type* type, BufferPtr buffer, const Node& node, bool all, const NamedSharding& sharding = {}) {
  const bool on_host = buffer->space() != MemorySpace::device;
  Array out = concrete(type, std::move(buffer), sharding);
  if (!all || on_host) return out;
  const std::lock_guard lock(host_mutex());
  const BufferPtr& one = node.pieces.one;
  out.node()->host = one && one->space() != MemorySpace::device ? one : node.host;
  return out;
}

}  // namespace

Array with_new_sharding(const Array& array, const NamedSharding& sharding) {
  const Node& node = *array.node();
  if (node.kind == Node::Kind::concrete && node.pieces.divided)
    return concrete(node.type, node.pieces.divided, sharding);
  if (node.kind != Node::Kind::concrete || local_lane_count() > 1)
    return concrete(node.type, buffer_of(array, "device_put"), sharding);
  // Uploaded once, and shared by the handles with other shardings.
  BufferPtr buffer = main_lane_buffer(Lanes::current().main(), array, *node.type, "device_put");
  return on_main_lane(node.type, std::move(buffer), node, true, sharding);
}

std::optional<Array> contiguous_slice(const Array& array, int64_t first, const Shape& shape) {
  if (Trace::current() || !array.defined()) return {};
  const Node& node = *array.node();
  if (node.kind != Node::Kind::concrete || node.pieces.divided || node.sharding.defined()) return {};
  const Type* const type = intern({node.type->dtype, shape});
  const int64_t bytes = type->bytes(), begin = first * size_of(type->dtype);
  Lane& lane = Lanes::current().main();
  std::unique_lock running(Lanes::current().run_mutex(), std::defer_lock);
  if (lane.info().asynchronous) running.lock();
  BufferPtr from = main_lane_buffer(lane, array, *node.type, "slice");
  const bool all = bytes == node.type->bytes();
  return on_main_lane(type, all ? std::move(from) : lane.copy_of(*from, begin, bytes), node, all);
}

Array traced(const Type& type, uint64_t trace, ValueId value, bool is_number_input) {
  Node* node = new_node();
  node->kind = Node::Kind::traced;
  node->type = intern(type);
  node->trace = trace;
  node->value = value;
  node->is_number_input = is_number_input;
  return Array(node);
}

namespace {

template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  return with_stored_dtype(dtype, [&]<class T>() -> decltype(auto) { return f(T{}); });
}

template <class To, class From>
To convert_element(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (is_half<From> || is_float8_type<From>)
    return convert_element<To>(static_cast<float>(x));
  else if constexpr (is_complex_type<To> && is_complex_type<From>)
    return To(static_cast<typename To::value_type>(x.real()), static_cast<typename To::value_type>(x.imag()));
  else if constexpr (is_complex_type<To>)
    return To(convert_element<typename To::value_type>(x));
  else if constexpr (is_complex_type<From> && std::is_same_v<To, bool>)
    return x != From{};
  else if constexpr (is_complex_type<From>)
    return convert_element<To>(x.real());
  else if constexpr (std::is_same_v<To, bool>)
    return x != From{};
  else if constexpr (is_half<To> || is_float8_type<To>)
    return To(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

}  // namespace

BufferPtr literal_buffer(const Node& node, DType dtype) {
  BufferPtr buffer = allocate(size_of(dtype));
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (is_complex(node.type->dtype))
      *buffer->as<T>() = convert_element<T>(std::complex<double>(node.real, node.imaginary));
    else
      *buffer->as<T>() =
          node.type->dtype == DType::f32 ? convert_element<T>(node.real) : convert_element<T>(node.integer);
  });
  return buffer;
}

void check_readable(const Array& array, const char* wanted_by) {
  if (!array.defined()) throw_error("{}: the array is empty; assign it before use", wanted_by);
  const Node& node = *array.node();
  switch (node.kind) {
    case Node::Kind::concrete:
      if (node.pieces.divided && !node.pieces.divided->complete())
        throw_error(
            "{}: the array {} is sharded over several processes by {}, and none holds all of it; replicate it in the "
            "compiled function (out_shardings P()), or gather it with distributed::process_allgather",
            wanted_by, to_string(*node.type), to_string(node.sharding.spec()));
      return;
    case Node::Kind::donated:
      throw_error(
          "{}: the array {} was donated to a compiled function, whose result reuses its memory; use the result, or "
          "remove the argument from `donate`",
          wanted_by, to_string(*node.type));
    case Node::Kind::traced:
      if (!Trace::find(node.trace)) Trace::throw_escaped(wanted_by, node);
      throw_error(
          "{}: the array {} is traced: it has no value while jit, grad or vmap trace the function; return it from the "
          "function and read it outside, or use where() or cond() to select by it",
          wanted_by, to_string(*node.type));
    case Node::Kind::literal:
      return;
  }
}

const BufferPtr& buffer_of(const Array& array, const char* wanted_by) {
  check_readable(array, wanted_by);
  Node& node = *array.node();
  const BufferPtr& one = node.pieces.one;
  if (node.kind == Node::Kind::concrete && one && one->space() != MemorySpace::device) return one;
  const std::lock_guard lock(host_mutex());
  if (!node.host)
    node.host = node.kind == Node::Kind::literal ? literal_buffer(node, node.type->dtype)
                : one                            ? Lanes::current().main().download(one)
                                                 : assemble(*node.pieces.divided, *node.type);
  return node.host;
}

Array from_bytes(const void* data, Type type) {
  BufferPtr buffer = allocate(type.bytes());
  if (buffer->size()) std::memcpy(buffer->data(), data, static_cast<size_t>(type.bytes()));
  return concrete(intern(type), std::move(buffer));
}

Array adopt_bytes(void* data, Type type, void* owner, void (*destroy)(void*)) {
  return concrete(intern(type), Allocator::host().adopt(data, type.bytes(), owner, destroy));
}

void check_count(size_t values, const Shape& shape, SourceLine at) {
  const CallerLine line(at);
  if (static_cast<int64_t>(values) != count(shape))
    throw_error("array: {} values for shape {}, which has {} elements; the numbers must match", values,
                to_string(shape), count(shape));
}

}  // namespace detail

using detail::Node;

Array::Array(const Array& other) : node_(other.node_) {
  if (node_) detail::retain(node_);
}
Array& Array::operator=(const Array& other) noexcept {
  detail::Node* const before = node_;
  if (other.node_) detail::retain(other.node_);
  node_ = other.node_;
  if (before) detail::release(before);
  return *this;
}
Array& Array::operator=(Array&& other) noexcept {
  detail::Node* const node = std::exchange(other.node_, nullptr);
  detail::Node* const before = std::exchange(node_, node);
  if (before) detail::release(before);
  return *this;
}
Array::~Array() {
  if (node_) detail::release(node_);
}

detail::Node* detail::shared_node(const Array& array) {
  if (array.node()) retain(array.node());
  return array.node();
}

Operand::Operand(const Array& array, SourceLine at) : Array(array), line_(at) {}
Operand::Operand(Array&& array, SourceLine at) : Array(std::move(array)), line_(at) {}
Operand::Operand(detail::Node* node, SourceLine at) : Array(node), line_(at) {}
Operand::Operand(const Operand& other) : Array(other), line_({}) {}
Operand::~Operand() = default;

Operands::Operands(std::initializer_list<Array> arrays, SourceLine at) : vector(arrays), line_(at) {}
Operands::Operands(const vector& arrays, SourceLine at) : vector(arrays), line_(at) {}
Operands::Operands(vector&& arrays, SourceLine at) : vector(std::move(arrays)), line_(at) {}
Operands::Operands(const Operands& other) : vector(other), line_({}) {}
Operands::~Operands() = default;

Array Array::from(const std::vector<bool>& values, const Shape& shape, SourceLine at) {
  detail::check_count(values.size(), shape, at);
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  return detail::from_bytes(bytes.data(), {DType::boolean, shape});
}

bool Array::is_traced() const { return node_ && node_->kind == Node::Kind::traced; }

const Type& Array::type(SourceLine at) const {
  if (!node_) {
    const detail::CallerLine line(at);
    throw_error("array: the array is empty; assign it before use");
  }
  return *node_->type;
}

int64_t Array::shape(int64_t axis, SourceLine where) const {
  const detail::CallerLine line(where);
  const Shape& s = shape();
  const int64_t n = rank(), at = axis < 0 ? axis + n : axis;
  if (at < 0 || at >= n)
    throw_error("shape: axis {} is out of range for {}; valid axes: {} to {}", axis, lockstep::to_string(s), -n, n - 1);
  return s[static_cast<size_t>(at)];
}

NamedSharding Array::sharding(SourceLine at) const {
  type(at);  // throws for an empty array
  if (node_->sharding.defined()) return node_->sharding;
  return {Mesh({local_devices()[0]}, {}, {}), P()};
}

const void* Array::raw_data(DType wanted, SourceLine at) const {
  const detail::CallerLine line(at);
  const BufferPtr& buffer = detail::buffer_of(*this, "data");
  if (dtype() != wanted)
    throw_error("data: the array is {}, not {}; use to_vector(), which converts, or astype()",
                lockstep::to_string(type()), name(wanted));
  return buffer->data();
}

template <class T>
std::vector<T> Array::to_vector(SourceLine at) const {
  const detail::CallerLine line(at);
  const BufferPtr& buffer = detail::buffer_of(*this, "to_vector");
  std::vector<T> out(static_cast<size_t>(size()));
  detail::with_type(dtype(), [&](auto zero) {
    using From = decltype(zero);
    const From* from = buffer->as<From>();
    for (size_t i = 0; i < out.size(); ++i) out[i] = detail::convert_element<T>(from[i]);
  });
  return out;
}

template <class T>
T Array::item(SourceLine at) const {
  const detail::CallerLine line(at);
  const BufferPtr& buffer = detail::buffer_of(*this, "item");
  if (size() != 1)
    throw_error("item: the array is {}, with {} elements; item() needs exactly one: use at() or to_vector()",
                lockstep::to_string(type()), size());
  return detail::with_type(dtype(),
                           [&](auto zero) { return detail::convert_element<T>(*buffer->as<decltype(zero)>()); });
}

#define INSTANTIATE(T)                                           \
  template std::vector<T> Array::to_vector<T>(SourceLine) const; \
  template T Array::item<T>(SourceLine) const;
INSTANTIATE(bool)
INSTANTIATE(uint8_t)
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)
INSTANTIATE(int8_t)
INSTANTIATE(int16_t)
INSTANTIATE(uint16_t)
INSTANTIATE(uint32_t)
INSTANTIATE(uint64_t)
INSTANTIATE(std::complex<float>)
INSTANTIATE(std::complex<double>)
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

Array::operator bool() const {
  if (is_traced())
    throw_error(
        "bool: branch on the traced array {}, which has no value while the function is traced; use where() to select "
        "elements, cond() to choose a computation, or pass the argument as a plain C++ value, which is static",
        lockstep::to_string(type()));
  if (defined() && size() != 1)
    throw_error("bool: branch on the array {}, with {} elements; use any() or all(), or where() to select elements",
                lockstep::to_string(type()), size());
  return item<bool>();
}

namespace {

// Dimensions longer than kLong print only their first and last kEdge elements.
constexpr int64_t kEdge = 3, kLong = 8;

template <class Print>
void print_elements(const Shape& shape, size_t dim, int64_t offset, int64_t stride, std::string& out,
                    const Print& print) {
  if (dim == shape.size()) {
    out += print(offset);
    return;
  }
  const int64_t n = shape[dim], inner = n ? stride / n : 0;
  out += '[';
  for (int64_t i = 0; i < n; ++i) {
    if (i) out += ", ";
    if (n > kLong && i == kEdge) {
      out += "..., ";
      i = n - kEdge;
    }
    print_elements(shape, dim + 1, offset + i * inner, inner, out, print);
  }
  out += ']';
}

}  // namespace

std::string Array::to_string() const {
  if (!node_) return "(empty)";
  std::string out = lockstep::to_string(type());
  if (node_->kind == Node::Kind::traced) return out + " (traced)";
  if (node_->kind == Node::Kind::donated) return out + " (donated)";
  out += ' ';
  const BufferPtr& buffer = detail::buffer_of(*this, "to_string");
  detail::with_type(dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* data = buffer->as<T>();
    print_elements(shape(), 0, 0, size(), out, [&](int64_t i) {
      if constexpr (is_half<T> || is_float8_type<T>)
        return fmt::format("{:.4g}", static_cast<float>(data[i]));
      else if constexpr (std::is_floating_point_v<T>)
        return fmt::format("{:.7g}", data[i]);
      else if constexpr (is_complex_type<T>)
        return fmt::format("{:.7g}{:+.7g}i", data[i].real(), data[i].imag());
      else
        return fmt::format("{}", data[i]);
    });
  });
  return out;
}

std::ostream& operator<<(std::ostream& out, const Array& array) { return out << array.to_string(); }

}  // namespace lockstep
