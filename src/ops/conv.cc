// The rows of convolution. Shapes: x [n, h, w, c], w [kh, kw, ci, co] with ci = c / groups, y and dy [n, oh, ow, co].
#include "ops/conv.h"

#include <algorithm>
#include <tuple>

#include "ops/conv_cpu.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/fused.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "ops/window_attrs.h"
#include "ops/window_rules.h"

namespace lockstep {
namespace {

Attrs to_attrs(const ConvOptions& o) {
  return {{"stride", to_ints(o.stride)},
          {"pad", to_ints(o.pad)},
          {"lhs_dilation", to_ints(o.lhs_dilation)},
          {"rhs_dilation", to_ints(o.rhs_dilation)},
          {"groups", o.groups}};
}

Attrs to_attrs(const ConvOptions& o, Shape shape) {
  Attrs attrs = to_attrs(o);
  attrs.set("shape", std::move(shape));
  return attrs;
}

ConvOptions checked_conv_options(std::string_view op, const Attrs& attrs) {
  ConvOptions o;
  o.stride = fixed_ints<2>(op, attrs, "stride", 1);
  o.pad = fixed_ints<4>(op, attrs, "pad", 0);
  o.lhs_dilation = fixed_ints<2>(op, attrs, "lhs_dilation", 1);
  o.rhs_dilation = fixed_ints<2>(op, attrs, "rhs_dilation", 1);
  o.groups = attrs.integer("groups");
  if (o.groups < 0) throw_error("{}: groups is {}; it must be at least 1", op, o.groups);
  return o;
}

void expect_rank4(std::string_view op, std::string_view what, const Shape& shape, std::string_view dims) {
  if (shape.size() != 4)
    throw_error("{}: the {} is {}, of rank {}; it must have the dimensions [{}]", op, what, to_string(shape),
                shape.size(), dims);
}

void expect_dtypes(std::string_view op, Types in) {
  expect_operands(op, in, 2);
  expect_same_dtype(op, in[0], in[1]);
  if (!is_floating(in[0].dtype)) throw_error("{}: {} is not floating; cast it to f32", op, to_string(in[0]));
}

// The shape of y; throws Error if the shapes of x and w do not fit.
Shape result_shape(std::string_view op, const Shape& x, const Shape& w, const ConvOptions& o) {
  expect_rank4(op, "input", x, "n, h, w, c");
  expect_rank4(op, "filter", w, "kh, kw, c / groups, co");
  // A shard with no groups has no channels; 0 groups with channels is the user's mistake.
  if (o.groups == 0 && (x[3] != 0 || w[3] != 0)) throw_error("{}: groups is 0; it must be at least 1", op);
  const int64_t groups = std::max<int64_t>(o.groups, 1);
  if (x[3] % groups != 0 || w[3] % groups != 0)
    throw_error(
        "{}: input {} and filter {} do not divide into {} groups; the channels of both must be multiples of the groups",
        op, to_string(x), to_string(w), o.groups);
  if (o.groups > 0 && w[2] != x[3] / o.groups)
    throw_error("{}: filter {} reads {} channels and input {} has {} in each of {} group{}; they must agree", op,
                to_string(w), w[2], to_string(x), x[3] / o.groups, o.groups, o.groups == 1 ? "" : "s");
  Shape y{x[0], 0, 0, w[3]};
  for (size_t d = 0; d < 2; ++d) {
    if (w[d] < 1) throw_error("{}: filter {} has an empty window; each extent is at least 1", op, to_string(w));
    const int64_t dilated = x[d + 1] == 0 ? 0 : (x[d + 1] - 1) * o.lhs_dilation[d] + 1;
    const int64_t padded = dilated + o.pad[2 * d] + o.pad[2 * d + 1], window = (w[d] - 1) * o.rhs_dilation[d] + 1;
    if (window > padded)
      throw_error(
          "{}: the window spans {} along {} and the padded input {}; pad more, or use a smaller filter or dilation", op,
          window, d == 0 ? "h" : "w", padded);
    y[d + 1] = (padded - window) / o.stride[d] + 1;
  }
  return y;
}

void expect_result(std::string_view op, const Type& dy, const Shape& y) {
  if (dy.shape != y)
    throw_error("{}: the cotangent is {} where the convolution gives {}; pass the gradient of its result", op,
                to_string(dy.shape), to_string(y));
}

std::vector<Type> conv2d_type(Types in, const Attrs& attrs) {
  expect_dtypes("conv2d", in);
  return {{in[0].dtype, result_shape("conv2d", in[0].shape, in[1].shape, checked_conv_options("conv2d", attrs))}};
}

std::vector<Type> input_grad_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "conv2d_input_grad";
  expect_dtypes(kOp, in);
  const Shape& x = attrs.ints("shape");
  expect_result(kOp, in[0], result_shape(kOp, x, in[1].shape, checked_conv_options(kOp, attrs)));
  return {{in[0].dtype, x}};
}

std::vector<Type> filter_grad_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "conv2d_filter_grad";
  expect_dtypes(kOp, in);
  const Shape& w = attrs.ints("shape");
  expect_result(kOp, in[1], result_shape(kOp, in[0].shape, w, checked_conv_options(kOp, attrs)));
  return {{in[0].dtype, w}};
}

// What an equation says about dimension d of the images: x [n, h, w, c], filters w, results y.
SlidingWindow sliding(const ConvOptions& o, const Shape& x, const Shape& w, const Shape& y, size_t d) {
  return {.in = x[d + 1],
          .out = y[d + 1],
          .span = (w[d] - 1) * o.rhs_dilation[d] + 1,
          .stride = o.stride[d],
          .low = o.pad[2 * d],
          .high = o.pad[2 * d + 1],
          .base_dilation = o.lhs_dilation[d]};
}

// The operands and the result of an equation by their role.
struct ConvShapes {
  const Shape &x, &w, &y;
};

// Images and channels can be sharded. With several groups the groups (factor g) are sharded, since they are
// independent: one step along g is the channels of one group. The rows and columns of images (factors h and w) can be
// sharded where shards of x and y have the same boundaries.
Rule conv_rule(const Attrs& attrs, std::string_view plain, std::string_view in_groups, Types in, const Type& result,
               const ConvShapes& shapes, bool y_has_halo) {
  const ConvOptions o = conv_options(attrs);
  Rule rule = parse_rule(o.groups <= 1 ? plain : in_groups);
  rule.unsharded = o.groups <= 1 ? "hwabpq" : "hwabpqi";
  if (o.groups > 1) {
    for (const Type& t : in) rule.in_step.push_back({{'g', t.shape[3] / o.groups}});
    rule.out_step.push_back({{'g', result.shape[3] / o.groups}});
  }
  for (size_t d = 0; d < 2; ++d)
    if (const SlidingWindow w = sliding(o, shapes.x, shapes.w, shapes.y, d); w.is_shardable())
      share_factor(rule, "hw"[d], "pq"[d], w, !y_has_halo, y_has_halo);
  return rule;
}

Rule conv2d_rule(Types in, const Attrs& attrs) {
  const Type y = conv2d_type(in, attrs)[0];
  return conv_rule(attrs, "nhwc,abco->npqo", "nhwg,abig->npqg", in, y, {in[0].shape, in[1].shape, y.shape}, false);
}
Rule input_grad_rule(Types in, const Attrs& attrs) {
  const Type x = input_grad_type(in, attrs)[0];
  return conv_rule(attrs, "npqo,abco->nhwc", "npqg,abig->nhwg", in, x, {x.shape, in[1].shape, in[0].shape}, true);
}
Rule filter_grad_rule(Types in, const Attrs& attrs) {
  const Type w = filter_grad_type(in, attrs)[0];
  return conv_rule(attrs, "nhwc,npqo->abco", "nhwg,npqg->abig", in, w, {in[0].shape, w.shape, in[1].shape}, false);
}

Attrs local_conv(const LocalEqnContext& v, const ConvShapes& shapes, bool y_has_halo) {
  Attrs attrs = v.attrs;
  if (v.attrs.find("shape")) attrs.set("shape", v.local_out[0].shape);
  if (const auto piece = v.ranges.find('g'); piece != v.ranges.end()) attrs.set("groups", piece->second.size());
  const ConvOptions o = conv_options(v.attrs);
  std::array<int64_t, 4> pad = o.pad;
  for (size_t d = 0; d < 2; ++d) {
    const auto piece = v.ranges.find("hw"[d]);
    if (piece == v.ranges.end()) continue;
    const SlidingWindow w = sliding(o, shapes.x, shapes.w, shapes.y, d);
    std::tie(pad[2 * d], pad[2 * d + 1]) =
        y_has_halo ? padding_of_gradient(w, piece->second, v.local_out[0].shape[d + 1], v.local_in[0].shape[d + 1])
                   : padding_of_shard(w, piece->second);
  }
  attrs.set("pad", to_ints(pad));
  return attrs;
}
Attrs local_conv2d(const LocalEqnContext& v) {
  return local_conv(v, {v.in[0].shape, v.in[1].shape, v.out[0].shape}, false);
}
Attrs local_input_grad(const LocalEqnContext& v) {
  return local_conv(v, {v.out[0].shape, v.in[1].shape, v.in[0].shape}, true);
}
Attrs local_filter_grad(const LocalEqnContext& v) {
  return local_conv(v, {v.in[0].shape, v.out[0].shape, v.in[1].shape}, false);
}

// ---- gradients: each row is linear in each of its operands; its transposes are the two other rows

Grads conv2d_vjp(const Vjp& v) {
  const ConvOptions o = conv_options(v.attrs);
  const Value x = v.in[0], w = v.in[1];
  Grads grads(2);
  if (v.wanted[0]) grads[0] = conv2d_input_grad(v.ct(), w, x.shape(), o);
  if (v.wanted[1]) grads[1] = conv2d_filter_grad(x, v.ct(), w.shape(), o);
  return grads;
}

Grads input_grad_vjp(const Vjp& v) {
  const ConvOptions o = conv_options(v.attrs);
  const Value dy = v.in[0], w = v.in[1];
  Grads grads(2);
  if (v.wanted[0]) grads[0] = conv2d(v.ct(), w, o);
  if (v.wanted[1]) grads[1] = conv2d_filter_grad(v.ct(), dy, w.shape(), o);
  return grads;
}

Grads filter_grad_vjp(const Vjp& v) {
  const ConvOptions o = conv_options(v.attrs);
  const Value x = v.in[0], dy = v.in[1];
  Grads grads(2);
  if (v.wanted[0]) grads[0] = conv2d_input_grad(dy, v.ct(), x.shape(), o);
  if (v.wanted[1]) grads[1] = conv2d(x, v.ct(), o);
  return grads;
}

// ---- batching: if only the images are batched, the rule merges the batch into them. It has no factor for a batch of
// filters, or for the images of a filter's gradient: that batch is merged into the channels of each group or, if both
// operands are batched, into the groups.

// Splits dimension d into extents `a` and `b`.
Value split_dim(Value x, size_t d, int64_t a, int64_t b) {
  Shape shape = x.shape();
  shape[d] = a;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, b);
  return reshape(x, shape);
}

// Merges dimensions d and d + 1.
Value merge_dims(Value x, size_t d) {
  Shape shape = x.shape();
  shape[d] *= shape[d + 1];
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
  return reshape(x, shape);
}

// [b, d0, ..., dk, ...] -> [d0, ..., b * dk, ...]; split_out() undoes it.
Value join_in(Value x, int64_t k) { return merge_dims(transpose(x, move_dim(x.rank(), 0, k)), static_cast<size_t>(k)); }
Value split_out(Value x, int64_t k, int64_t batch) {
  const auto d = static_cast<size_t>(k);
  const Value parted = split_dim(x, d, batch, x.shape()[d] / batch);
  return transpose(parted, move_dim(parted.rank(), k, 0));
}

// [b, d0, d1, d2, groups * m] -> [d0, d1, d2, groups * (b * m)]; split_out_grouped() undoes it.
Value join_in_grouped(Value x, int64_t groups) {
  return merge_dims(join_in(split_dim(x, 4, groups, x.shape()[4] / groups), 4), 3);
}
Value split_out_grouped(Value x, int64_t groups, int64_t batch) {
  return merge_dims(split_out(split_dim(x, 3, groups, x.shape()[3] / groups), 4, batch), 4);
}

Shape times(Shape shape, size_t d, int64_t by) {
  shape[d] *= by;
  return shape;
}

// The result of an empty batch.
Batched no_results(const Batch& b) {
  std::vector<Type> in;
  for (size_t i = 0; i < b.in.size(); ++i) {
    in.push_back(b.in[i].type());
    if (b.batched[i]) in.back().shape.erase(in.back().shape.begin());
  }
  Type out = infer_types(b.op, in, b.attrs)[0];
  out.shape = prepend(0, out.shape);
  return full(b.builder, out, 0);
}

Batched conv2d_batch(const Batch& b) {
  if (b.size == 0) return no_results(b);
  if (!b.batched[1]) return batch_by_rule(b);
  ConvOptions o = conv_options(b.attrs);
  const Value x = b.in[0], w = b.in[1];
  if (!b.batched[0]) return split_out_grouped(conv2d(x, join_in_grouped(w, o.groups), o), o.groups, b.size);
  o.groups *= b.size;
  return split_out(conv2d(join_in(x, 3), join_in(w, 3), o), 3, b.size);
}

Batched input_grad_batch(const Batch& b) {
  if (b.size == 0) return no_results(b);
  if (!b.batched[1]) return batch_by_rule(b);
  ConvOptions o = conv_options(b.attrs);
  const Value dy = b.in[0], w = b.in[1];
  const Shape& shape = b.attrs.ints("shape");
  if (!b.batched[0]) {
    const Value dx = conv2d_input_grad(dy, join_in(w, 2), times(shape, 3, b.size), o);
    return split_out_grouped(dx, o.groups, b.size);
  }
  o.groups *= b.size;
  return split_out(conv2d_input_grad(join_in(dy, 3), join_in(w, 3), times(shape, 3, b.size), o), 3, b.size);
}

Batched filter_grad_batch(const Batch& b) {
  if (b.size == 0) return no_results(b);
  ConvOptions o = conv_options(b.attrs);
  const Value x = b.in[0], dy = b.in[1];
  const Shape& shape = b.attrs.ints("shape");
  if (!b.batched[1])
    return split_out(conv2d_filter_grad(join_in_grouped(x, o.groups), dy, times(shape, 2, b.size), o), 2, b.size);
  if (!b.batched[0]) {
    const Value dw = conv2d_filter_grad(x, join_in_grouped(dy, o.groups), times(shape, 3, b.size), o);
    return split_out_grouped(dw, o.groups, b.size);
  }
  o.groups *= b.size;
  return split_out(conv2d_filter_grad(join_in(x, 3), join_in(dy, 3), times(shape, 3, b.size), o), 3, b.size);
}

// ---- the work: the window of the filter for each element of y or dy

double conv_multiply_adds(const Type& y, const Type& w) {
  double out = static_cast<double>(count(y.shape));
  for (size_t d = 0; d < 3; ++d) out *= static_cast<double>(w.shape[d]);
  return out;
}
double conv2d_multiply_adds(Types in, Types out, const Attrs&, double (*)(const Program&)) {
  return conv_multiply_adds(out[0], in[1]);
}
double input_grad_multiply_adds(Types in, Types, const Attrs&, double (*)(const Program&)) {
  return conv_multiply_adds(in[0], in[1]);
}
double filter_grad_multiply_adds(Types in, Types out, const Attrs&, double (*)(const Program&)) {
  return conv_multiply_adds(in[1], out[0]);
}

// ---- conv2d_fused: conv2d followed by an elementwise program of its result

std::vector<Type> conv2d_fused_type(Types in, const Attrs& attrs) {
  return with_body_type(conv2d_type(in.first(2), attrs)[0], 2, in, attrs);
}
bool conv2d_fused_alias(Types in, Types out, const Attrs& attrs, size_t operand, size_t result) {
  return with_body_alias(2, in, out, attrs, operand, result);
}

}  // namespace

ConvOptions conv_options(const Attrs& attrs) { return checked_conv_options("conv2d", attrs); }

constinit const Op conv2d_fused_op = {
    .name = "conv2d_fused",
    .type = conv2d_fused_type,
    .alias = conv2d_fused_alias,
    .multiply_adds = conv2d_multiply_adds,
    .cpu = conv2d_fused_cpu,
    .cuda = LOCKSTEP_CUDA(conv2d_fused_cuda),
};

constinit const Op conv2d_op = {
    .name = "conv2d",
    .linear = Linear::one,
    .rule = conv2d_rule,
    .pending = PendingReduction::sum,
    .type = conv2d_type,
    .vjp = conv2d_vjp,
    .batch = conv2d_batch,
    .fixed_rank = true,
    .local = local_conv2d,
    .multiply_adds = conv2d_multiply_adds,
    .with_epilogue = &conv2d_fused_op,
    .cpu = conv2d_cpu,
    .cuda = LOCKSTEP_CUDA(conv_cuda<ConvPass::forward>),
};

constinit const Op conv2d_input_grad_op = {
    .name = "conv2d_input_grad",
    .linear = Linear::one,
    .rule = input_grad_rule,
    .pending = PendingReduction::sum,
    .type = input_grad_type,
    .vjp = input_grad_vjp,
    .batch = input_grad_batch,
    .fixed_rank = true,
    .local = local_input_grad,
    .multiply_adds = input_grad_multiply_adds,
    .cpu = conv2d_input_grad_cpu,
    .cuda = LOCKSTEP_CUDA(conv_cuda<ConvPass::input_grad>),
};

constinit const Op conv2d_filter_grad_op = {
    .name = "conv2d_filter_grad",
    .linear = Linear::one,
    .rule = filter_grad_rule,
    .pending = PendingReduction::sum,
    .type = filter_grad_type,
    .vjp = filter_grad_vjp,
    .batch = filter_grad_batch,
    .local = local_filter_grad,
    .multiply_adds = filter_grad_multiply_adds,
    .cpu = conv2d_filter_grad_cpu,
    .cuda = LOCKSTEP_CUDA(conv_cuda<ConvPass::filter_grad>),
};

Value conv2d(Value x, Value w, const ConvOptions& options) { return emit(conv2d_op, {x, w}, to_attrs(options)); }

Value conv2d_input_grad(Value dy, Value w, Shape x, const ConvOptions& options) {
  return emit(conv2d_input_grad_op, {dy, w}, to_attrs(options, std::move(x)));
}

Value conv2d_filter_grad(Value x, Value dy, Shape w, const ConvOptions& options) {
  return emit(conv2d_filter_grad_op, {x, dy}, to_attrs(options, std::move(w)));
}

}  // namespace lockstep
