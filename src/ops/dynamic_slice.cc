// dynamic_slice and update_slice: a block whose position is data.
//
// With the attribute batch_dims = k, the first k dimensions of all operands correspond: x [B..., dims...], each of the
// starts [B...], the block [B..., sizes...]. The functions use k = 0; batching adds one.
#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "ops/tangents.h"
#include "ops/view_copy.h"

namespace lockstep {
namespace {

// The type of the block: the batch dimensions, then extents `sizes`. Throws Error if it does not fit x.
Type check_block(std::string_view op, const Type& x, Types starts, const Dims& sizes, int64_t batch_dims) {
  const int64_t rank = x.rank() - batch_dims;
  if (batch_dims < 0 || rank < 0)
    throw_error("{}: batch_dims is {}, out of range for {}; give at most its rank", op, batch_dims, to_string(x.shape));
  const Shape batch(x.shape.begin(), x.shape.begin() + batch_dims);
  if (static_cast<int64_t>(starts.size()) != rank || static_cast<int64_t>(sizes.size()) != rank)
    throw_error("{}: {} has {} dimensions and got {} starts and a block of {}; give one of each per dimension", op,
                to_string(x.shape), rank, starts.size(), to_string(sizes));
  Type block{x.dtype, batch};
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (starts[d].dtype != DType::i32 && starts[d].dtype != DType::i64)
      throw_error("{}: start {} is {}; starts must be i32 or i64", op, d, to_string(starts[d]));
    if (starts[d].shape != batch)
      throw_error("{}: start {} is {}; it must have shape {}", op, d, to_string(starts[d]), to_string(batch));
    const int64_t n = x.shape[d + batch.size()];
    if (sizes[d] < 0 || sizes[d] > n)
      throw_error("{}: a block of {} elements does not fit dimension {} of {}; valid sizes: 0 to {}", op, sizes[d],
                  d + batch.size(), to_string(x.shape), n);
    block.shape.push_back(sizes[d]);
  }
  return block;
}

Value emit_slice(Value x, std::span<const Value> starts, std::vector<int64_t> sizes, int64_t batch_dims) {
  Values in{x};
  in.insert(in.end(), starts.begin(), starts.end());
  return emit(dynamic_slice_op, in, {{"sizes", std::move(sizes)}, {"batch_dims", batch_dims}});
}

Value emit_update(Value x, Value update, std::span<const Value> starts, int64_t batch_dims) {
  Values in{x, update};
  in.insert(in.end(), starts.begin(), starts.end());
  return emit(update_slice_op, in, {{"batch_dims", batch_dims}});
}

// Whether the batch becomes an ordinary dimension with start 0: no start is batched, and there are no batch dimensions.
// Then one block is moved, and not one for each example as with a batch dimension, which the rule would add. `first` is
// the number of operands before the starts.
bool is_batch_ordinary(const Batch& b, size_t first) {
  return b.attrs.integer("batch_dims") == 0 && std::none_of(b.batched.begin() + static_cast<std::ptrdiff_t>(first),
                                                            b.batched.end(), [](bool x) { return x; });
}
// The starts, with that of the batch.
Values with_start_of_batch(const Batch& b, size_t first) {
  Values starts{full(b.builder, {DType::i32, {}}, 0)};
  starts.insert(starts.end(), b.in.begin() + static_cast<std::ptrdiff_t>(first), b.in.end());
  return starts;
}

Dims block_sizes(const Shape& block, int64_t batch_dims) { return Dims(block.begin() + batch_dims, block.end()); }

// Factors of x, of the block and of the starts. x and the block share the factor of a dimension that the block fills.
Rule block_rule(const Shape& x, const Shape& block, int64_t batch_dims, size_t starts, std::string& x_term,
                std::string& block_term) {
  Factors factors;
  Rule rule;
  for (size_t d = 0; d < x.size(); ++d) {
    const char letter = factors.next();
    x_term += letter;
    block_term += x[d] == block[d] ? letter : factors.next();
    if (x[d] != block[d]) rule.unsharded += {letter, block_term.back()};
  }
  rule.in.assign(starts, x_term.substr(0, static_cast<size_t>(batch_dims)));
  return rule;
}

// Finds the block at run time: its offset in elements for batch element b.
struct BlockLocator {
  std::vector<int64_t> strides, last;  // per dimension: stride in x, greatest start
  std::vector<bool> wide;              // the start is an i64
  int64_t x_elements, block_elements;  // of one batch element

  int64_t offset(const void* const* starts, int64_t b) const {
    int64_t at = 0;
    for (size_t d = 0; d < strides.size(); ++d) {
      const int64_t start =
          wide[d] ? static_cast<const int64_t*>(starts[d])[b] : static_cast<const int32_t*>(starts[d])[b];
      at += std::clamp<int64_t>(start, 0, last[d]) * strides[d];
    }
    return at;
  }
};

BlockLocator block_locator(const Shape& x, const Shape& block, Types starts) {
  BlockLocator locator{dense_strides(x), {}, {}, count(x), count(block)};
  for (size_t d = 0; d < x.size(); ++d) {
    locator.last.push_back(x[d] - block[d]);
    locator.wide.push_back(starts[d].dtype == DType::i64);
  }
  return locator;
}

// ---- dynamic_slice

std::vector<Type> dynamic_slice_type(Types in, const Attrs& attrs) {
  if (in.empty()) throw_error("dynamic_slice: got no operands; give an array and its starts");
  return {check_block("dynamic_slice", in[0], in.subspan(1), attrs.ints("sizes"), attrs.integer("batch_dims"))};
}

Rule dynamic_slice_rule(Types in, const Attrs& attrs) {
  const int64_t k = attrs.integer("batch_dims");
  Shape block(in[0].shape.begin(), in[0].shape.begin() + k);
  block.insert(block.end(), attrs.ints("sizes").begin(), attrs.ints("sizes").end());
  std::string x_term, block_term;
  Rule rule = block_rule(in[0].shape, block, k, in.size() - 1, x_term, block_term);
  rule.in.insert(rule.in.begin(), x_term);
  rule.out = {block_term};
  return rule;
}

Grads dynamic_slice_vjp(const Vjp& v) {
  Grads grads(v.in.size());
  if (v.wanted[0]) grads[0] = emit_update(zeros_like(v.in[0]), v.ct(), v.in.subspan(1), v.attrs.integer("batch_dims"));
  return grads;
}

Batched dynamic_slice_batch(const Batch& b) {
  if (!is_batch_ordinary(b, 1)) return batch_by_rule(b);
  const Value x = with_batch(b, 0);
  return emit_slice(x, with_start_of_batch(b, 1), prepend(b.size, b.attrs.ints("sizes")), 0);
}

Attrs dynamic_slice_local(const LocalEqnContext& v) {
  Attrs attrs = v.attrs;
  attrs.set("sizes", block_sizes(v.local_out[0].shape, attrs.integer("batch_dims")));
  return attrs;
}

Value dynamic_slice_fold(const Fold& f) {
  if (f.in[0].type() == f.type) return f.in[0];
  if (f.attrs.integer("batch_dims") != 0) return {};
  Dims starts, limits;
  for (size_t d = 0; d + 1 < f.in.size(); ++d) {
    const int64_t size = f.type.shape[d], last = f.in[0].shape()[d] - size;
    const Attr* start = full_value(f.in[d + 1]);
    if (!start && last > 0) return {};
    starts.push_back(last > 0 ? std::clamp<int64_t>(std::get<int64_t>(*start), 0, last) : 0);
    limits.push_back(starts.back() + size);
  }
  return slice(f.in[0], starts, limits, Dims(starts.size(), 1));
}

Kernel dynamic_slice_cpu(const KernelSpec& spec) {
  const int64_t k = spec.attrs.integer("batch_dims"), batch = extent(spec.in[0].shape, 0, k);
  const Shape x = block_sizes(spec.in[0].shape, k), block = block_sizes(spec.out[0].shape, k);
  const AffineCopy copy(size_of(spec.out[0].dtype), block, dense_strides(x), dense_strides(block));
  return [locator = block_locator(x, block, spec.in.subspan(1)), copy, batch, bytes = size_of(spec.out[0].dtype),
          pool = &spec.pool](const void* const* in, void* const* out) {
    auto one = [&](int64_t b) {
      copy(static_cast<const std::byte*>(in[0]) + (b * locator.x_elements + locator.offset(in + 1, b)) * bytes,
           static_cast<std::byte*>(out[0]) + b * locator.block_elements * bytes, *pool);
    };
    if (batch == 1) return one(0);
    pool->parallel_for(batch, [&](int64_t b, int) { one(b); });
  };
}

// ---- update_slice

std::vector<Type> update_slice_type(Types in, const Attrs& attrs) {
  if (in.size() < 2) throw_error("update_slice: got {} operands; give an array, an update and its starts", in.size());
  const int64_t k = attrs.integer("batch_dims");
  expect_same_dtype("update_slice", in[0], in[1]);
  if (in[1].rank() != in[0].rank())
    throw_error("update_slice: {} cannot replace a block of {}; the ranks must be equal", to_string(in[1].shape),
                to_string(in[0].shape));
  const Type block = check_block("update_slice", in[0], in.subspan(2),
                                 block_sizes(in[1].shape, std::clamp<int64_t>(k, 0, in[1].rank())), k);
  if (block != in[1])
    throw_error("update_slice: the update is {}; it must be {}, with the same batch dimensions", to_string(in[1]),
                to_string(block));
  return {in[0]};
}

Rule update_slice_rule(Types in, const Attrs& attrs) {
  std::string x_term, block_term;
  Rule rule = block_rule(in[0].shape, in[1].shape, attrs.integer("batch_dims"), in.size() - 2, x_term, block_term);
  rule.in.insert(rule.in.begin(), {x_term, block_term});
  rule.out = {x_term};
  return rule;
}

Grads update_slice_vjp(const Vjp& v) {
  const int64_t k = v.attrs.integer("batch_dims");
  const std::span<const Value> starts = v.in.subspan(2);
  Grads grads(v.in.size());
  if (v.wanted[0]) grads[0] = emit_update(v.ct(), zeros_like(v.in[1]), starts, k);
  if (v.wanted[1]) grads[1] = emit_slice(v.ct(), starts, block_sizes(v.in[1].shape(), k), k);
  return grads;
}

Batched update_slice_batch(const Batch& b) {
  if (!is_batch_ordinary(b, 2)) return batch_by_rule(b);
  const Value x = with_batch(b, 0), update = with_batch(b, 1);
  return emit_update(x, update, with_start_of_batch(b, 2), 0);
}

Value update_slice_fold(const Fold& f) {
  if (f.in[1].type() == f.type) return f.in[1];
  return count(f.in[1].shape()) == 0 ? f.in[0] : Value();
}

bool update_slice_alias(Types, Types, const Attrs&, size_t in, size_t) { return in == 0; }

Kernel update_slice_cpu(const KernelSpec& spec) {
  const int64_t k = spec.attrs.integer("batch_dims"), batch = extent(spec.in[0].shape, 0, k);
  const Shape x = block_sizes(spec.in[0].shape, k), block = block_sizes(spec.in[1].shape, k);
  const AffineCopy copy(size_of(spec.out[0].dtype), block, dense_strides(block), dense_strides(x));
  return [locator = block_locator(x, block, spec.in.subspan(2)), copy, batch, bytes = size_of(spec.out[0].dtype),
          total = spec.out[0].bytes(), pool = &spec.pool](const void* const* in, void* const* out) {
    copy_bytes(in[0], out[0], total, *pool);
    auto one = [&](int64_t b) {
      copy(static_cast<const std::byte*>(in[1]) + b * locator.block_elements * bytes,
           static_cast<std::byte*>(out[0]) + (b * locator.x_elements + locator.offset(in + 2, b)) * bytes, *pool);
    };
    if (batch == 1) return one(0);
    pool->parallel_for(batch, [&](int64_t b, int) { one(b); });
  };
}

}  // namespace

constinit const Op dynamic_slice_op = {.name = "dynamic_slice",
                                       .rule = dynamic_slice_rule,
                                       .type = dynamic_slice_type,
                                       .vjp = dynamic_slice_vjp,
                                       .jvp = tangents_of_linear,
                                       .batch = dynamic_slice_batch,
                                       .dim_attrs = {{"batch_dims", DimAttr::leading}},
                                       .local = dynamic_slice_local,
                                       .fold = dynamic_slice_fold,
                                       .takes_float8 = true,
                                       .cpu = dynamic_slice_cpu,
                                       .cuda = LOCKSTEP_CUDA(dynamic_slice_cuda),
                                       .cuda_task = LOCKSTEP_CUDA(&dynamic_slice_task)};
constinit const Op update_slice_op = {.name = "update_slice",
                                      .rule = update_slice_rule,
                                      .type = update_slice_type,
                                      .vjp = update_slice_vjp,
                                      .jvp = tangents_of_linear,
                                      .batch = update_slice_batch,
                                      .dim_attrs = {{"batch_dims", DimAttr::leading}},
                                      .fold = update_slice_fold,
                                      .alias = update_slice_alias,
                                      .takes_float8 = true,
                                      .cpu = update_slice_cpu,
                                      .cuda = LOCKSTEP_CUDA(update_slice_cuda),
                                      .cuda_task = LOCKSTEP_CUDA(&update_slice_task)};

Value dynamic_slice(Value x, const Values& starts, std::vector<int64_t> sizes) {
  return emit_slice(x, starts, std::move(sizes), 0);
}

Value update_slice(Value x, Value update, const Values& starts) { return emit_update(x, update, starts, 0); }

}  // namespace lockstep
