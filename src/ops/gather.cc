// gather, and what it shares with the rows that scatter.
#include <algorithm>
#include <cstring>

#include "base/dispatch.h"
#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/index_places.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "ops/tangents.h"
#include "ops/view_copy.h"

namespace lockstep {
namespace {

constexpr int64_t kGatherGrain = 16384;

// f.template operator()<I>() with the C++ type of an index dtype.
template <class F>
Kernel with_index(DType dtype, F&& f) {
  if (dtype == DType::i32) return f.template operator()<int32_t>();
  if (dtype == DType::i64) return f.template operator()<int64_t>();
  return f.template operator()<uint32_t>();
}

// ---- gather

std::vector<Type> gather_type(Types in, const Attrs& attrs) {
  expect_operands("gather", in, 2);
  const Type out = slices_type("gather", in[0], in[1], attrs);
  const int64_t axis = attrs.integer("axis");
  if (in[0].shape[static_cast<size_t>(axis)] == 0 && count(out.shape) != 0)
    throw_error("gather: axis {} of {} is empty; {} slices cannot be taken from it", axis, to_string(in[0].shape),
                count(in[1].shape));
  return {out};
}

Rule gather_rule(Types in, const Attrs& attrs) {
  const PlaceTerms t = place_terms(in[0], in[1], attrs);
  return {{t.x, t.indices}, {t.slices}, std::string(1, t.axis)};
}

Grads gather_vjp(const Vjp& v) {
  if (!v.wanted[0]) return {{}, {}};
  const int64_t axis = v.attrs.integer("axis"), n = v.in[0].shape()[static_cast<size_t>(axis)];
  const Value zeros = zeros_like(v.in[0]), indices = clamp_indices(v.in[1], n);
  return {scatter_add(zeros, indices, v.ct(), axis, v.attrs.integer("batch_dims")), {}};
}

// By the rule, an operand that is not batched would be copied for each example.
Batched gather_batch(const Batch& b) {
  const int64_t axis = b.attrs.integer("axis"), batch_dims = b.attrs.integer("batch_dims");
  if (b.batched[0] && !b.batched[1] && batch_dims == 0) return gather(b.in[0], b.in[1], axis + 1, 0);
  if (b.batched[0]) return batch_by_rule(b);
  // Only the indices are batched: the batch is one more dimension of the indices, which is at `axis` of the result.
  const Value indices = transpose(b.in[1], move_dim(b.in[1].rank(), 0, batch_dims));
  const Value taken = gather(b.in[0], indices, axis, batch_dims);
  return transpose(taken, move_dim(taken.rank(), axis, 0));
}

// Slices of a fixed small size compile to plain moves.
template <int kBytes>
void copy_slice(const std::byte* from, std::byte* to, size_t bytes) {
  std::memcpy(to, from, kBytes > 0 ? static_cast<size_t>(kBytes) : bytes);
}

template <class I, int kBytes>
Kernel gather_slices(const PlaceSizes& s, int64_t bytes, Pool& pool) {
  return [s, bytes, pool = &pool](const void* const* in, void* const* out) {
    const auto* x = static_cast<const std::byte*>(in[0]);
    const auto* indices = static_cast<const I*>(in[1]);
    auto* slices = static_cast<std::byte*>(out[0]);
    const int64_t rows = s.batch * s.pre * s.places;
    if (rows == 0 || bytes == 0) return;
    pool->parallel_range(rows, std::max<int64_t>(2 * kGatherGrain / bytes, 1), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end;) {
        const int64_t block = row / s.places, stop = std::min(end, (block + 1) * s.places);
        const std::byte* from = x + block * s.n * bytes;
        const I* at = indices + block / s.pre * s.places - block * s.places;
        for (; row < stop; ++row) {
          const int64_t index = std::clamp<int64_t>(static_cast<int64_t>(at[row]), 0, s.n - 1);
          copy_slice<kBytes>(from + index * bytes, slices + row * bytes, static_cast<size_t>(bytes));
        }
      }
    });
  };
}

Kernel gather_cpu(const KernelSpec& spec) {
  const PlaceSizes sizes(spec.in[0], spec.in[1], spec.attrs);
  const int64_t bytes = sizes.post * size_of(spec.in[0].dtype);
  return with_index(spec.in[1].dtype, [&]<class I>() -> Kernel {
    switch (bytes) {
      case 1:
        return gather_slices<I, 1>(sizes, bytes, spec.pool);
      case 2:
        return gather_slices<I, 2>(sizes, bytes, spec.pool);
      case 4:
        return gather_slices<I, 4>(sizes, bytes, spec.pool);
      case 8:
        return gather_slices<I, 8>(sizes, bytes, spec.pool);
      case 16:
        return gather_slices<I, 16>(sizes, bytes, spec.pool);
      default:
        return gather_slices<I, 0>(sizes, bytes, spec.pool);
    }
  });
}

}  // namespace

Type slices_type(std::string_view op, const Type& x, const Type& indices, const Attrs& attrs) {
  const int64_t axis = attrs.integer("axis"), batch_dims = attrs.integer("batch_dims");
  expect_axis(op, axis, x.shape);
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64 && indices.dtype != DType::u32)
    throw_error("{}: the indices are {}; cast them to i32, i64 or u32", op, to_string(indices));
  if (batch_dims < 0 || batch_dims > axis || batch_dims > indices.rank())
    throw_error(
        "{}: {} batch dimensions do not fit axis {} of {} and indices {}; they must come before the axis in both", op,
        batch_dims, axis, to_string(x.shape), to_string(indices.shape));
  if (!std::equal(x.shape.begin(), x.shape.begin() + batch_dims, indices.shape.begin()))
    throw_error("{}: the first {} dimensions of {} and of the indices {} differ; batch dimensions must be equal", op,
                batch_dims, to_string(x.shape), to_string(indices.shape));
  Type out{x.dtype, Shape(x.shape.begin(), x.shape.begin() + axis)};
  out.shape.insert(out.shape.end(), indices.shape.begin() + batch_dims, indices.shape.end());
  out.shape.insert(out.shape.end(), x.shape.begin() + axis + 1, x.shape.end());
  return out;
}

PlaceTerms place_terms(const Type& x, const Type& indices, const Attrs& attrs) {
  const auto axis = static_cast<size_t>(attrs.integer("axis")),
             batch_dims = static_cast<size_t>(attrs.integer("batch_dims"));
  Factors factors;
  PlaceTerms t;
  t.x = factors.next(x.rank());
  t.axis = t.x[axis];
  t.places = factors.next(indices.rank() - attrs.integer("batch_dims"));
  t.indices = t.x.substr(0, batch_dims) + t.places;
  t.slices = t.x.substr(0, axis) + t.places + t.x.substr(axis + 1);
  return t;
}

PlaceSizes::PlaceSizes(const Type& x, const Type& indices, const Attrs& attrs) {
  const int64_t axis = attrs.integer("axis"), batch_dims = attrs.integer("batch_dims");
  batch = extent(x.shape, 0, batch_dims);
  pre = extent(x.shape, batch_dims, axis);
  n = x.shape[static_cast<size_t>(axis)];
  post = extent(x.shape, axis + 1, x.rank());
  places = extent(indices.shape, batch_dims, indices.rank());
}

Value clamp_indices(Value indices, int64_t n) {
  const Type scalar{indices.dtype(), {}};
  auto constant = [&](int64_t value) { return broadcast(full(indices.builder(), scalar, value), indices.shape(), {}); };
  if (indices.dtype() != DType::u32) indices = maximum(indices, constant(0));
  const int64_t greatest = indices.dtype() == DType::i64   ? INT64_MAX
                           : indices.dtype() == DType::u32 ? UINT32_MAX
                                                           : INT32_MAX;
  return n <= greatest ? minimum(indices, constant(n - 1)) : indices;
}

Value index_scalar(Builder& b, int64_t at, int64_t extent) { return full(b, {index_dtype(extent), {}}, at); }

Value index_iota(Builder& b, const Shape& shape, int64_t dim) {
  return iota(b, {index_dtype(shape[static_cast<size_t>(dim)]), shape}, dim);
}

constinit const Op gather_op = {.name = "gather",
                                .rule = gather_rule,
                                .type = gather_type,
                                .vjp = gather_vjp,
                                .jvp = tangents_of_linear,
                                .batch = gather_batch,
                                .dim_attrs = {{"axis", DimAttr::dims}, {"batch_dims", DimAttr::leading}},
                                .takes_complex = true,
                                .cpu = gather_cpu,
                                .cuda = LOCKSTEP_CUDA(gather_cuda),
                                .cuda_task = LOCKSTEP_CUDA(&gather_task)};
Value gather(Value x, Value indices, int64_t axis, int64_t batch_dims) {
  return emit(gather_op, {x, indices}, {{"axis", axis}, {"batch_dims", batch_dims}});
}

}  // namespace lockstep
