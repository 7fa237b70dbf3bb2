// The rows of matrices in 8-bit floats. They have no gradient: nn::float8_dot() defines that of a whole layer.
#include "ops/float8.h"

#include "base/check.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

const Type kScaleType{DType::f32, {}};

bool is_result_type(DType t) { return t == DType::bf16 || t == DType::f16 || t == DType::f32; }

std::vector<Type> quantize_type(Types in, const Attrs& attrs) {
  expect_operands("quantize", in, 2);
  const DType dtype = attrs.get<DType>("dtype");
  if (!is_float8(dtype)) throw_error("quantize: the result would be {}; choose f8_e4m3 or f8_e5m2", name(dtype));
  if (!is_result_type(in[0].dtype) || in[0].rank() != 2)
    throw_error("quantize: x is {}; it must be a matrix of bf16, f16 or f32", to_string(in[0]));
  if (in[1] != kScaleType) throw_error("quantize: the scale is {}; it must be f32[]", to_string(in[1]));
  return {Type{dtype, in[0].shape}, Type{dtype, {in[0].shape[1], in[0].shape[0]}}, kScaleType};
}

std::vector<Type> scaled_product_type(Types in, const Attrs& attrs) {
  expect_operands("scaled_product", in, 4);
  for (size_t i = 0; i < 2; ++i)
    if (!is_float8(in[i].dtype) || in[i].rank() != 2)
      throw_error("scaled_product: operand {} is {}; it must be a matrix of 8-bit floats", i, to_string(in[i]));
  if (in[0].shape[1] != in[1].shape[1])
    throw_error("scaled_product: the operands are {} and {}; they must have equally many columns", to_string(in[0]),
                to_string(in[1]));
  for (size_t i = 2; i < 4; ++i)
    if (in[i] != kScaleType) throw_error("scaled_product: scale {} is {}; it must be f32[]", i - 2, to_string(in[i]));
  const DType dtype = attrs.get<DType>("dtype");
  if (!is_result_type(dtype))
    throw_error("scaled_product: the result would be {}; choose bf16, f16 or f32", name(dtype));
  return {Type{dtype, {in[0].shape[0], in[1].shape[0]}}};
}

Rule quantize_rule(Types, const Attrs&) { return parse_rule("mk,->mk,km,"); }
Rule scaled_product_rule(Types, const Attrs&) { return parse_rule("mk,nk,,->mn"); }

// x [n...] times factor [n] or a scalar.
Value scaled_by(Value x, Value factor) {
  return x * broadcast(factor, x.shape(), factor.rank() == 0 ? Dims{} : Dims{0});
}

// The kernels take one matrix and one scale; a batch is computed by other rows.
Batched quantize_batch(const Batch& b) {
  const Value x = cast(with_batch(b, 0), DType::f32), scale = b.in[1];
  const Value narrow = cast(scaled_by(x, full_like(scale, 1.0) / scale), b.attrs.get<DType>("dtype"));
  const Value largest = reduce_max(abs(x), {1, 2});  // -inf for no elements
  return Values{narrow, transpose(narrow, {0, 2, 1}), maximum(largest, zeros_like(largest))};
}

Batched scaled_product_batch(const Batch& b) {
  const std::string spec = std::string(b.batched[0] ? "zmk," : "mk,") + (b.batched[1] ? "znk" : "nk");
  const bool batched = b.batched[0] || b.batched[1];
  Value y = einsum(spec + (batched ? "->zmn" : "->mn"), cast(b.in[0], DType::f32), cast(b.in[1], DType::f32));
  if (!batched) y = broadcast(y, {b.size, y.shape()[0], y.shape()[1]}, {1, 2});
  return cast(scaled_by(scaled_by(y, b.in[2]), b.in[3]), b.attrs.get<DType>("dtype"));
}

}  // namespace

Kernel quantize_cpu(const KernelSpec&);
Kernel scaled_product_cpu(const KernelSpec&);

constinit const Op quantize_op = {
    .name = "quantize",
    .rule = quantize_rule,
    .pending = PendingReduction::max,
    .type = quantize_type,
    .batch = quantize_batch,
    .cpu = quantize_cpu,
    .cuda = LOCKSTEP_CUDA(quantize_cuda),
};

constinit const Op scaled_product_op = {
    .name = "scaled_product",
    .rule = scaled_product_rule,
    .pending = PendingReduction::sum,
    .type = scaled_product_type,
    .batch = scaled_product_batch,
    .takes_float8 = true,
    .cpu = scaled_product_cpu,
    .cuda = LOCKSTEP_CUDA(scaled_product_cuda),
};

Values quantize(Value x, Value scale, DType dtype) {
  const Value in[] = {x, scale};
  return x.builder().emit(quantize_op, in, {{"dtype", dtype}});
}

Value scaled_product(Value a, Value b, Value scale_a, Value scale_b, DType dtype) {
  return emit(scaled_product_op, {a, b, scale_a, scale_b}, {{"dtype", dtype}});
}

}  // namespace lockstep
