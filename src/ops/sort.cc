// sort and top_k. Keys are mapped to unsigned integers of the requested order and packed with their index, so that
// unstable sorting in place gives a stable order.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/dispatch.h"
#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kSortGrain = 8192;

// Keys of at most 32 bits share a word with their index.
struct Narrow {
  uint64_t word;

  Narrow(uint64_t key, uint32_t index) : word(key << 32 | index) {}
  uint32_t index() const { return static_cast<uint32_t>(word); }
  bool operator<(const Narrow& other) const { return word < other.word; }
};

struct Wide {
  uint64_t key;
  uint32_t place;

  Wide(uint64_t k, uint32_t index) : key(k), place(index) {}
  uint32_t index() const { return place; }
  bool operator<(const Wide& other) const { return key != other.key ? key < other.key : place < other.place; }
};

template <class T>
using Item = std::conditional_t<sizeof(T) == 8, Wide, Narrow>;

// Maps x to an unsigned integer of T's width (at least 32 bits) of the same order. NaN is greatest; both zeros are
// equal.
template <class T>
uint64_t ordered(T x, bool descending) {
  using Number = std::conditional_t<is_half<T>, float, T>;
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  const auto number = static_cast<Number>(x);
  Bits key;
  if constexpr (std::is_floating_point_v<Number>) {
    if (number != number) return descending ? Bits{0} : std::numeric_limits<Bits>::max();
    const auto bits = number == 0 ? Bits{0} : std::bit_cast<Bits>(number);
    key = bits & kSign ? ~bits : bits | kSign;
  } else {
    key = static_cast<Bits>(number);
    if constexpr (std::is_signed_v<Number>) key ^= kSign;
  }
  return descending ? static_cast<Bits>(~key) : key;
}

// Writes the items of a line of n keys, `stride` apart.
template <class T>
void make_items(const T* keys, int64_t n, int64_t stride, bool descending, Item<T>* items) {
  for (int64_t i = 0; i < n; ++i)
    new (items + i) Item<T>(ordered(keys[i * stride], descending), static_cast<uint32_t>(i));
}

template <int kBytes, class I>
void take(const std::byte* from, std::byte* to, const I* items, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(to + i * stride * kBytes, from + static_cast<int64_t>(items[i].index()) * stride * kBytes, kBytes);
}

// to[i] = from[index of items[i]] along a line of elements `stride` apart.
template <class I>
void take(int64_t bytes, const std::byte* from, std::byte* to, const I* items, int64_t n, int64_t stride) {
  switch (bytes) {
    case 1:
      return take<1>(from, to, items, n, stride);
    case 2:
      return take<2>(from, to, items, n, stride);
    case 4:
      return take<4>(from, to, items, n, stride);
    default:
      return take<8>(from, to, items, n, stride);
  }
}

void expect_countable(std::string_view op, const Shape& shape, int64_t axis) {
  if (shape[static_cast<size_t>(axis)] > std::numeric_limits<int32_t>::max())
    throw_error("{}: axis {} of {} is too long for i32 indices; split it", op, axis, to_string(shape));
}

// The cotangent of `x` [..., n], given the cotangent `taken` of its elements at `indices` along the last axis.
Value put_back(Value x, Value indices, Value taken) {
  const int64_t last = x.rank() - 1;
  return scatter_add(x, indices, taken, last, last);
}

// ---- sort

std::vector<Type> sort_type(Types in, const Attrs& attrs) {
  if (in.empty()) throw_error("sort: got no operands; give at least the key");
  const int64_t axis = attrs.integer("axis");
  expect_axis("sort", axis, in[0].shape);
  expect_countable("sort", in[0].shape, axis);
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i].shape != in[0].shape)
      throw_error("sort: operand {} is {} and the key is {}; all operands must have the shape of the key", i,
                  to_string(in[i].shape), to_string(in[0].shape));
  return {in.begin(), in.end()};
}

Rule sort_rule(Types in, const Attrs& attrs) {
  Rule rule = pointwise_rule(in, attrs);
  rule.out = rule.in;
  rule.unsharded = rule.in[0].substr(static_cast<size_t>(attrs.integer("axis")), 1);
  return rule;
}

// The residual is the permutation: an iota that is sorted along.
ForwardResult sort_forward(const Forward& f) {
  Values in(f.in.begin(), f.in.end());
  const int64_t axis = f.attrs.integer("axis");
  in.push_back(iota(in[0].builder(), {DType::i32, in[0].shape()}, axis));
  Values out = sort(in, axis, f.attrs.get<bool>("descending"));
  const Value permutation = out.back();
  out.pop_back();
  return {out, {permutation}};
}

Grads sort_vjp(const Vjp& v) {
  const int64_t rank = v.in[0].rank();
  const Dims order = move_dim(rank, v.attrs.integer("axis"), rank - 1);
  const Value permutation = transpose(v.residuals[0], order);
  Grads grads(v.in.size());
  for (size_t i = 0; i < v.in.size(); ++i) {
    if (!v.wanted[i] || !v.cts[i]) continue;
    const Value ct = transpose(v.cts[i], order);
    grads[i] = transpose(put_back(zeros_like(ct), permutation, ct), inverse(order));
  }
  return grads;
}

Kernel sort_cpu(const KernelSpec& spec) {
  const int64_t axis = spec.attrs.integer("axis");
  const Shape& shape = spec.in[0].shape;
  const int64_t n = shape[static_cast<size_t>(axis)], inner = extent(shape, axis + 1, spec.in[0].rank());
  const int64_t lines = extent(shape, 0, axis) * inner;
  std::vector<int64_t> bytes;
  for (const Type& t : spec.in) bytes.push_back(size_of(t.dtype));
  return with_dtype(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, descending = spec.attrs.get<bool>("descending"), pool = &spec.pool](const void* const* in,
                                                                                   void* const* out) {
      if (n == 0) return;
      pool->parallel_range(lines, std::max<int64_t>(kSortGrain / n, 1), [&](int64_t begin, int64_t end, int thread) {
        auto* items = static_cast<Item<T>*>(pool->scratch(thread, n * static_cast<int64_t>(sizeof(Item<T>))));
        for (int64_t line = begin; line < end; ++line) {
          const int64_t first = line / inner * n * inner + line % inner;
          make_items(static_cast<const T*>(in[0]) + first, n, inner, descending, items);
          std::sort(items, items + n);
          for (size_t i = 0; i < bytes.size(); ++i)
            take(bytes[i], static_cast<const std::byte*>(in[i]) + first * bytes[i],
                 static_cast<std::byte*>(out[i]) + first * bytes[i], items, n, inner);
        }
      });
    };
  });
}

// ---- top_k

std::vector<Type> top_k_type(Types in, const Attrs& attrs) {
  expect_operands("top_k", in, 1);
  const int64_t k = attrs.integer("k"), last = in[0].rank() - 1;
  expect_axis("top_k", last, in[0].shape);
  expect_countable("top_k", in[0].shape, last);
  if (k < 0 || k > in[0].shape.back())
    throw_error("top_k: k is {}, out of range for the last dimension of {}; valid: 0 to {}", k, to_string(in[0].shape),
                in[0].shape.back());
  Shape shape = in[0].shape;
  shape.back() = k;
  return {{in[0].dtype, shape}, {DType::i32, shape}};
}

Rule top_k_rule(Types in, const Attrs&) {
  Factors factors;
  const std::string term = factors.next(in[0].rank());
  std::string out = term;
  out.back() = factors.next();
  return {{term}, {out, out}, {term.back(), out.back()}};
}

Grads top_k_vjp(const Vjp& v) {
  if (!v.cts[0]) return {{}};
  return {put_back(zeros_like(v.in[0]), v.out[1], v.cts[0])};
}

Kernel top_k_cpu(const KernelSpec& spec) {
  const int64_t n = spec.in[0].shape.back(), k = spec.attrs.integer("k");
  const int64_t lines = extent(spec.in[0].shape, 0, spec.in[0].rank() - 1);
  return with_dtype(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const* in, void* const* out) {
      if (k == 0) return;
      pool->parallel_range(lines, std::max<int64_t>(kSortGrain / n, 1), [&](int64_t begin, int64_t end, int thread) {
        auto* items = static_cast<Item<T>*>(pool->scratch(thread, n * static_cast<int64_t>(sizeof(Item<T>))));
        for (int64_t line = begin; line < end; ++line) {
          const T* from = static_cast<const T*>(in[0]) + line * n;
          make_items(from, n, 1, true, items);
          if (k < n) std::nth_element(items, items + k, items + n);
          std::sort(items, items + k);
          T* values = static_cast<T*>(out[0]) + line * k;
          int32_t* indices = static_cast<int32_t*>(out[1]) + line * k;
          for (int64_t i = 0; i < k; ++i) {
            indices[i] = static_cast<int32_t>(items[i].index());
            values[i] = from[indices[i]];
          }
        }
      });
    };
  });
}

}  // namespace

constinit const Op sort_op = {.name = "sort",
                              .rule = sort_rule,
                              .type = sort_type,
                              .forward = sort_forward,
                              .vjp = sort_vjp,
                              .dim_attrs = {{"axis", DimAttr::dims}},
                              .cpu = sort_cpu,
                              .cuda = LOCKSTEP_CUDA(sort_cuda<false>)};
constinit const Op top_k_op = {.name = "top_k",
                               .rule = top_k_rule,
                               .type = top_k_type,
                               .vjp = top_k_vjp,
                               .cpu = top_k_cpu,
                               .cuda = LOCKSTEP_CUDA(sort_cuda<true>)};

Values sort(const Values& operands, int64_t axis, bool descending) {
  if (operands.empty()) throw_error("sort: got no operands; give at least the key");
  return operands[0].builder().emit(sort_op, operands, {{"axis", axis}, {"descending", descending}});
}

Values top_k(Value x, int64_t k) { return x.builder().emit(top_k_op, std::span<const Value>(&x, 1), {{"k", k}}); }

}  // namespace lockstep
