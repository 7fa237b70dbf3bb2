// The rows of pooling. Shapes: x, dx and t [n, h, w, c]; y and dy [n, oh, ow, c].
#include "ops/pool.h"

#include <tuple>

#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/fused.h"
#include "ops/ops.h"
#include "ops/pool_cpu.h"
#include "ops/shape_ops.h"
#include "ops/window_attrs.h"
#include "ops/window_rules.h"

namespace lockstep {
namespace {

Attrs to_attrs(const PoolingOptions& o) {
  return {{"window", to_ints(o.window)}, {"stride", to_ints(o.stride)}, {"pad", to_ints(o.pad)}};
}

PoolingOptions checked_pool_options(std::string_view op, const Attrs& attrs) {
  PoolingOptions o;
  o.window = fixed_ints<2>(op, attrs, "window", 1);
  o.stride = fixed_ints<2>(op, attrs, "stride", 1);
  o.pad = fixed_ints<4>(op, attrs, "pad", 0);
  for (size_t i = 0; i < 4; ++i)
    if (o.pad[i] >= o.window[i / 2])
      throw_error("{}: padding {} is not smaller than the window {}; a window of padding alone has no elements", op,
                  to_string(attrs.ints("pad")), to_string(attrs.ints("window")));
  return o;
}

// The shape of y; throws Error if the windows do not fit x.
Shape result_shape(std::string_view op, const Shape& x, const Attrs& attrs) {
  const PoolingOptions o = checked_pool_options(op, attrs);
  if (x.size() != 4)
    throw_error("{}: the input is {}, of rank {}; it must have the dimensions [n, h, w, c]", op, to_string(x),
                x.size());
  Shape y = x;
  for (size_t d = 0; d < 2; ++d) {
    if (x[d + 1] == 0) throw_error("{}: the images of {} are empty; a window needs an element", op, to_string(x));
    const int64_t padded = x[d + 1] + o.pad[2 * d] + o.pad[2 * d + 1];
    if (o.window[d] > padded)
      throw_error("{}: the window is {} along {} and the padded input {}; pad more, or use a smaller window", op,
                  o.window[d], d == 0 ? "h" : "w", padded);
    y[d + 1] = (padded - o.window[d]) / o.stride[d] + 1;
  }
  return y;
}

void expect_number(std::string_view op, const Type& x) {
  if (x.dtype == DType::boolean) throw_error("{}: {} has no arithmetic; cast it to a number", op, to_string(x));
  if (x.dtype == DType::u64 || (is_integer(x.dtype) && x.dtype != DType::u8 && size_of(x.dtype) < 4))
    throw_error("{}: windows of {} are not supported; cast it to i32, i64 or a float", op, to_string(x));
}

void expect_like(std::string_view op, std::string_view what, const Type& got, const Type& wanted) {
  if (got != wanted) throw_error("{}: the {} is {}; it must be {}", op, what, to_string(got), to_string(wanted));
}

std::vector<Type> pooled_type(const Op& op, Types in, const Attrs& attrs) {
  expect_operands(op.name, in, 1);
  expect_number(op.name, in[0]);
  return {{in[0].dtype, result_shape(op.name, in[0].shape, attrs)}};
}
std::vector<Type> max_pool_type(Types in, const Attrs& attrs) { return pooled_type(max_pool_op, in, attrs); }
std::vector<Type> sum_pool_type(Types in, const Attrs& attrs) { return pooled_type(sum_pool_op, in, attrs); }

std::vector<Type> max_pool_grad_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "max_pool_grad";
  expect_operands(kOp, in, 3);
  const Type y = pooled_type(max_pool_op, in.first(1), attrs)[0];
  expect_like(kOp, "result of the pooling", in[1], y);
  expect_like(kOp, "cotangent", in[2], y);
  return {in[0]};
}

std::vector<Type> max_pool_pick_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "max_pool_pick";
  expect_operands(kOp, in, 3);
  const Type y = pooled_type(max_pool_op, in.first(1), attrs)[0];
  expect_like(kOp, "result of the pooling", in[1], y);
  expect_like(kOp, "array to pick from", in[2], in[0]);
  return {y};
}

std::vector<Type> sum_pool_grad_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "sum_pool_grad";
  expect_operands(kOp, in, 1);
  expect_number(kOp, in[0]);
  const Shape& x = attrs.ints("shape");
  expect_like(kOp, "cotangent", in[0], {in[0].dtype, result_shape(kOp, x, attrs)});
  return {{in[0].dtype, x}};
}

// max_pool_grad followed by an elementwise program of its result.
std::vector<Type> max_pool_grad_fused_type(Types in, const Attrs& attrs) {
  return with_body_type(max_pool_grad_type(in.first(3), attrs)[0], 3, in, attrs);
}
bool max_pool_grad_fused_alias(Types in, Types out, const Attrs& attrs, size_t operand, size_t result) {
  return with_body_alias(3, in, out, attrs, operand, result);
}

SlidingWindow sliding(const PoolingOptions& o, const Shape& x, const Shape& y, size_t d) {
  return {.in = x[d + 1],
          .out = y[d + 1],
          .span = o.window[d],
          .stride = o.stride[d],
          .low = o.pad[2 * d],
          .high = o.pad[2 * d + 1]};
}

// Which operands of a pooling row have halos where the rows and columns of images are sharded: x, y, or x only if
// windows tile the images and the halos are empty.
enum class PoolHalo : uint8_t { x, y, tiles };

// Images and channels can be sharded; rows and columns of images where shards of x and y have the same boundaries.
Rule pool_rule(std::string_view text, const Attrs& attrs, const Shape& x, const Shape& y, PoolHalo halo) {
  Rule rule = parse_rule(text);
  rule.unsharded = "hwpq";
  const PoolingOptions o = pooling_options(attrs);
  for (size_t d = 0; d < 2; ++d) {
    const SlidingWindow w = sliding(o, x, y, d);
    if (w.is_shardable() && (halo != PoolHalo::tiles || !w.needs_position()))
      share_factor(rule, "hw"[d], "pq"[d], w, halo != PoolHalo::y, halo == PoolHalo::y);
  }
  return rule;
}
Rule max_pool_rule(Types in, const Attrs& attrs) {
  return pool_rule("nhwc->npqc", attrs, in[0].shape, max_pool_type(in, attrs)[0].shape, PoolHalo::x);
}
Rule sum_pool_rule(Types in, const Attrs& attrs) {
  return pool_rule("nhwc->npqc", attrs, in[0].shape, sum_pool_type(in, attrs)[0].shape, PoolHalo::x);
}
// The gradient of a maximum also depends on the other elements of the windows over it.
Rule max_pool_grad_rule(Types in, const Attrs& attrs) {
  return pool_rule("nhwc,npqc,npqc->nhwc", attrs, in[0].shape, in[1].shape, PoolHalo::tiles);
}
Rule max_pool_pick_rule(Types in, const Attrs& attrs) {
  return pool_rule("nhwc,npqc,nhwc->npqc", attrs, in[0].shape, in[1].shape, PoolHalo::x);
}
Rule sum_pool_grad_rule(Types in, const Attrs& attrs) {
  return pool_rule("npqc->nhwc", attrs, attrs.ints("shape"), in[0].shape, PoolHalo::y);
}

Attrs local_pool(const LocalEqnContext& v, const Shape& x, const Shape& y, PoolHalo halo) {
  Attrs attrs = v.attrs;
  if (v.attrs.find("shape")) attrs.set("shape", v.local_out[0].shape);
  const PoolingOptions o = pooling_options(v.attrs);
  std::array<int64_t, 4> pad = o.pad;
  for (size_t d = 0; d < 2; ++d) {
    const auto piece = v.ranges.find("hw"[d]);
    if (piece == v.ranges.end()) continue;
    const SlidingWindow w = sliding(o, x, y, d);
    std::tie(pad[2 * d], pad[2 * d + 1]) =
        halo == PoolHalo::y
            ? padding_of_gradient(w, piece->second, v.local_out[0].shape[d + 1], v.local_in[0].shape[d + 1])
            : padding_of_shard(w, piece->second);
  }
  attrs.set("pad", to_ints(pad));
  return attrs;
}
Attrs local_pooled(const LocalEqnContext& v) { return local_pool(v, v.in[0].shape, v.out[0].shape, PoolHalo::x); }
Attrs local_sum_pool_grad(const LocalEqnContext& v) {
  return local_pool(v, v.out[0].shape, v.in[0].shape, PoolHalo::y);
}

Grads max_pool_vjp(const Vjp& v) { return {max_pool_grad(v.in[0], v.y(), v.ct(), pooling_options(v.attrs))}; }
// The position of the maximum is locally constant in x almost everywhere, so no gradient flows through it.
Grads max_pool_grad_vjp(const Vjp& v) {
  if (!v.wanted[2]) return Grads(3);
  return {Value(), Value(), max_pool_pick(v.in[0], v.in[1], v.ct(), pooling_options(v.attrs))};
}
Grads max_pool_pick_vjp(const Vjp& v) {
  if (!v.wanted[2]) return Grads(3);
  return {Value(), Value(), max_pool_grad(v.in[0], v.in[1], v.ct(), pooling_options(v.attrs))};
}
Grads sum_pool_vjp(const Vjp& v) { return {sum_pool_grad(v.ct(), v.in[0].shape(), pooling_options(v.attrs))}; }
Grads sum_pool_grad_vjp(const Vjp& v) { return {sum_pool(v.ct(), pooling_options(v.attrs))}; }

}  // namespace

PoolingOptions pooling_options(const Attrs& attrs) { return checked_pool_options("pool", attrs); }

constinit const Op max_pool_op = {
    .name = "max_pool",
    .rule = max_pool_rule,
    .type = max_pool_type,
    .vjp = max_pool_vjp,
    .fixed_rank = true,
    .local = local_pooled,
    .cpu = max_pool_cpu,
    .cuda = LOCKSTEP_CUDA(pool_cuda<PoolPass::max>),
};

constinit const Op max_pool_grad_fused_op = {
    .name = "max_pool_grad_fused",
    .type = max_pool_grad_fused_type,
    .alias = max_pool_grad_fused_alias,
    .cpu = max_pool_grad_fused_cpu,
    .cuda = LOCKSTEP_CUDA(pool_cuda<PoolPass::max_grad>),
};

constinit const Op max_pool_grad_op = {
    .name = "max_pool_grad",
    .rule = max_pool_grad_rule,
    .type = max_pool_grad_type,
    .vjp = max_pool_grad_vjp,
    .fixed_rank = true,
    .with_epilogue = &max_pool_grad_fused_op,
    .cpu = max_pool_grad_cpu,
    .cuda = LOCKSTEP_CUDA(pool_cuda<PoolPass::max_grad>),
};

constinit const Op max_pool_pick_op = {
    .name = "max_pool_pick",
    .rule = max_pool_pick_rule,
    .type = max_pool_pick_type,
    .vjp = max_pool_pick_vjp,
    .fixed_rank = true,
    .local = local_pooled,
    .cpu = max_pool_pick_cpu,
    .cuda = LOCKSTEP_CUDA(pool_cuda<PoolPass::pick>),
};

constinit const Op sum_pool_op = {
    .name = "sum_pool",
    .linear = Linear::one,
    .rule = sum_pool_rule,
    .type = sum_pool_type,
    .vjp = sum_pool_vjp,
    .fixed_rank = true,
    .local = local_pooled,
    .cpu = sum_pool_cpu,
    .cuda = LOCKSTEP_CUDA(pool_cuda<PoolPass::sum>),
};

constinit const Op sum_pool_grad_op = {
    .name = "sum_pool_grad",
    .linear = Linear::one,
    .rule = sum_pool_grad_rule,
    .type = sum_pool_grad_type,
    .vjp = sum_pool_grad_vjp,
    .fixed_rank = true,
    .local = local_sum_pool_grad,
    .cpu = sum_pool_grad_cpu,
    .cuda = LOCKSTEP_CUDA(pool_cuda<PoolPass::sum_grad>),
};

Value max_pool(Value x, const PoolingOptions& options) { return emit(max_pool_op, {x}, to_attrs(options)); }

Value max_pool_grad(Value x, Value y, Value dy, const PoolingOptions& options) {
  return emit(max_pool_grad_op, {x, y, dy}, to_attrs(options));
}

Value max_pool_pick(Value x, Value y, Value t, const PoolingOptions& options) {
  return emit(max_pool_pick_op, {x, y, t}, to_attrs(options));
}

Value sum_pool(Value x, const PoolingOptions& options) { return emit(sum_pool_op, {x}, to_attrs(options)); }

Value sum_pool_grad(Value dy, Shape x, const PoolingOptions& options) {
  Attrs attrs = to_attrs(options);
  attrs.set("shape", std::move(x));
  return emit(sum_pool_grad_op, {dy}, std::move(attrs));
}

}  // namespace lockstep
