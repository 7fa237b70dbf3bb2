// The rows of layer norm and RMS norm. A row of the gradient is differentiated by writing its formula with other rows.
#include "ops/norm.h"

#include <cmath>

#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/norm_cpu.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// ---- types

// The type of a mean, or of an rstd.
Type statistics_of(const Type& x) {
  return {x.dtype == DType::f64 ? DType::f64 : DType::f32, Shape(x.shape.begin(), x.shape.end() - 1)};
}

// The shape of a scale, or of a bias.
Shape parameter_shape(const Shape& x, int64_t batch_dims) {
  Shape out(x.begin(), x.begin() + batch_dims);
  out.push_back(x.back());
  return out;
}

void expect_normalizable(std::string_view op, const Type& x, const Attrs& attrs) {
  if (!is_floating(x.dtype)) throw_error("{}: x is {}; cast it to a floating-point type", op, to_string(x));
  if (x.rank() == 0) throw_error("{}: x is a scalar; it needs a dimension to normalize", op);
  const int64_t batch_dims = attrs.integer("batch_dims");
  if (batch_dims < 0 || batch_dims >= x.rank())
    throw_error("{}: {} batch dimensions do not fit x {}; they must come before the last dimension", op, batch_dims,
                to_string(x.shape));
}

void expect_parameter(std::string_view op, const Type& scale, const Type& x, const Attrs& attrs) {
  const Shape wanted = parameter_shape(x.shape, attrs.integer("batch_dims"));
  if (!is_floating(scale.dtype) || scale.shape != wanted)
    throw_error("{}: the scale is {}; for x {} it must be floating, of shape {}", op, to_string(scale), to_string(x),
                to_string(wanted));
}

void expect_norm_operand(std::string_view op, const char* what, const Type& got, const Type& wanted) {
  if (got != wanted) throw_error("{}: the {} is {}; it must be {}", op, what, to_string(got), to_string(wanted));
}

void expect_epsilon(std::string_view op, const Attrs& attrs) {
  const double epsilon = attrs.get<double>("epsilon");
  if (!(epsilon >= 0) || std::isinf(epsilon))
    throw_error("{}: the epsilon is {}; it must be finite and not negative", op, epsilon);
}

std::vector<Type> layer_norm_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "layer_norm";
  expect_operands(kOp, in, 3);
  expect_normalizable(kOp, in[0], attrs);
  expect_epsilon(kOp, attrs);
  expect_parameter(kOp, in[1], in[0], attrs);
  expect_norm_operand(kOp, "bias", in[2], in[1]);
  return {in[0], statistics_of(in[0]), statistics_of(in[0])};
}

std::vector<Type> layer_norm_grad_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "layer_norm_grad";
  expect_operands(kOp, in, 5);
  expect_normalizable(kOp, in[0], attrs);
  expect_parameter(kOp, in[1], in[0], attrs);
  expect_norm_operand(kOp, "mean", in[2], statistics_of(in[0]));
  expect_norm_operand(kOp, "rstd", in[3], statistics_of(in[0]));
  expect_norm_operand(kOp, "cotangent", in[4], in[0]);
  return {in[0], in[1], in[1]};
}

std::vector<Type> rms_norm_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "rms_norm";
  expect_operands(kOp, in, 2);
  expect_normalizable(kOp, in[0], attrs);
  expect_epsilon(kOp, attrs);
  expect_parameter(kOp, in[1], in[0], attrs);
  return {in[0], statistics_of(in[0])};
}

std::vector<Type> rms_norm_grad_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "rms_norm_grad";
  expect_operands(kOp, in, 4);
  expect_normalizable(kOp, in[0], attrs);
  expect_parameter(kOp, in[1], in[0], attrs);
  expect_norm_operand(kOp, "rstd", in[2], statistics_of(in[0]));
  expect_norm_operand(kOp, "cotangent", in[3], in[0]);
  return {in[0], in[1]};
}

// ---- rules: rows are independent of each other, except in the sums of dscale and dbias

struct NormTerms {
  std::string x, rows, parameter;

  NormTerms(const Type& type, const Attrs& attrs) : x(Factors().next(type.rank())) {
    rows = x.substr(0, x.size() - 1);
    parameter = x.substr(0, static_cast<size_t>(attrs.integer("batch_dims"))) + x.back();
  }
  Rule rule(std::vector<std::string> in, std::vector<std::string> out) const {
    return {std::move(in), std::move(out), std::string(1, x.back())};
  }
};

Rule layer_norm_rule(Types in, const Attrs& attrs) {
  const NormTerms t(in[0], attrs);
  return t.rule({t.x, t.parameter, t.parameter}, {t.x, t.rows, t.rows});
}
Rule layer_norm_grad_rule(Types in, const Attrs& attrs) {
  const NormTerms t(in[0], attrs);
  return t.rule({t.x, t.parameter, t.rows, t.rows, t.x}, {t.x, t.parameter, t.parameter});
}
Rule rms_norm_rule(Types in, const Attrs& attrs) {
  const NormTerms t(in[0], attrs);
  return t.rule({t.x, t.parameter}, {t.x, t.rows});
}
Rule rms_norm_grad_rule(Types in, const Attrs& attrs) {
  const NormTerms t(in[0], attrs);
  return t.rule({t.x, t.parameter, t.rows, t.x}, {t.x, t.parameter});
}

// By the rule, scale and bias would be copied for each example.
Batched norm_batch(const Batch& b) {
  const bool shared = std::find(b.batched.begin() + 1, b.batched.end(), true) == b.batched.end();
  if (!shared || b.attrs.integer("batch_dims") != 0) return batch_by_rule(b);
  return b.builder.emit(b.op, b.in, b.attrs);
}

bool norm_alias(Types, Types, const Attrs&, size_t in, size_t out) { return in == 0 && out == 0; }
// dx may replace x or dy, which is the last operand.
bool norm_grad_alias(Types in_types, Types, const Attrs&, size_t in, size_t out) {
  return out == 0 && (in == 0 || in + 1 == in_types.size());
}

// ---- gradients

Value in_norm_type(Value x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

// A statistic [B..., rows...] repeated along the last dimension of x.
Value along_row(Value statistic, const Shape& x) { return broadcast(statistic, x, counting(0, statistic.rank())); }

// A scale or bias [B..., d] repeated for the rows of x.
Value for_rows(Value parameter, const Shape& x) {
  Dims dims = counting(0, parameter.rank() - 1);
  dims.push_back(static_cast<int64_t>(x.size()) - 1);
  return broadcast(parameter, x, dims);
}

// The mean along the last dimension, repeated along it.
Value row_mean(Value x) {
  const Shape shape = x.shape();
  const auto d = static_cast<double>(std::max<int64_t>(shape.back(), 1));
  return along_row(reduce_sum(x, {x.rank() - 1}) / d, shape);
}

// The gradients dx, dscale and dbias (RMS norm: without dbias and `mean`) by other rows.
Values gradient_formula(Value x, Value scale, Value mean, Value rstd, Value dy, int64_t batch_dims) {
  const DType wide = rstd.dtype();
  const Shape shape = x.shape();
  const Value sent = in_norm_type(dy, wide), all_rstd = along_row(rstd, shape);
  Value centered = in_norm_type(x, wide);
  if (mean) centered = centered - along_row(mean, shape);
  const Value normal = centered * all_rstd, g = sent * for_rows(in_norm_type(scale, wide), shape);
  const Value free = mean ? g - row_mean(g) : g;
  const Dims rows = counting(batch_dims, x.rank() - 1);
  Values out{in_norm_type(all_rstd * (free - normal * row_mean(g * normal)), x.dtype()),
             in_norm_type(reduce_sum(sent * normal, rows), scale.dtype())};
  if (mean) out.push_back(in_norm_type(reduce_sum(sent, rows), scale.dtype()));
  return out;
}

// Differentiates a row of the gradient: the joint program of its formula.
Grads grad_vjp(const Vjp& v, bool centered) {
  Builder b;
  Values in;
  for (const Value& operand : v.in) in.push_back(b.input(operand.type()));
  const Value mean = centered ? in[2] : Value();
  const size_t rstd = centered ? 3 : 2;
  const Program formula =
      b.take(gradient_formula(in[0], in[1], mean, in[rstd], in[rstd + 1], v.attrs.integer("batch_dims")));
  Values args(v.in.begin(), v.in.end());
  for (size_t k = 0; k < v.out.size(); ++k) args.push_back(v.cts[k] ? v.cts[k] : zeros_like(v.out[k]));
  const Values results = args[0].builder().inline_program(v.passes.joint(formula, v.wanted), args);
  Grads grads(v.in.size());
  for (size_t i = 0, next = v.out.size(); i < grads.size(); ++i)
    if (v.wanted[i]) grads[i] = results[next++];
  return grads;
}
Grads layer_norm_grad_vjp(const Vjp& v) { return grad_vjp(v, true); }
Grads rms_norm_grad_vjp(const Vjp& v) { return grad_vjp(v, false); }

// The cotangent of x from those of mean and rstd, which may be absent. Gradients of gradients have them.
Value statistics_ct(Value x, Value mean, Value rstd, Value mean_ct, Value rstd_ct) {
  const Shape shape = x.shape();
  const auto d = static_cast<double>(std::max<int64_t>(shape.back(), 1));
  Value out;
  if (mean_ct) out = along_row(mean_ct / d, shape);
  if (rstd_ct) {
    Value centered = in_norm_type(x, rstd.dtype());
    if (mean) centered = centered - along_row(mean, shape);
    const Value slope = -(rstd_ct * rstd * rstd * rstd / d), term = centered * along_row(slope, shape);
    out = out ? out + term : term;
  }
  return in_norm_type(out, x.dtype());
}

Grads with_statistics_ct(const Vjp& v, Grads grads, Value mean, Value rstd, Value mean_ct, Value rstd_ct) {
  if (!v.wanted[0] || (!mean_ct && !rstd_ct)) return grads;
  const Value more = statistics_ct(v.in[0], mean, rstd, mean_ct, rstd_ct);
  grads[0] = grads[0] ? grads[0] + more : more;
  return grads;
}

Grads layer_norm_vjp(const Vjp& v) {
  Grads grads(3);
  if (v.cts[0]) grads = layer_norm_grad(v.in[0], v.in[1], v.out[1], v.out[2], v.cts[0], v.attrs.integer("batch_dims"));
  return with_statistics_ct(v, std::move(grads), v.out[1], v.out[2], v.cts[1], v.cts[2]);
}

Grads rms_norm_vjp(const Vjp& v) {
  Grads grads(2);
  if (v.cts[0]) grads = rms_norm_grad(v.in[0], v.in[1], v.out[1], v.cts[0], v.attrs.integer("batch_dims"));
  return with_statistics_ct(v, std::move(grads), {}, v.out[1], {}, v.cts[1]);
}

}  // namespace

constinit const Op layer_norm_op = {
    .name = "layer_norm",
    .rule = layer_norm_rule,
    .type = layer_norm_type,
    .vjp = layer_norm_vjp,
    .batch = norm_batch,
    .dim_attrs = {{"batch_dims", DimAttr::leading}},
    .alias = norm_alias,
    .cpu = layer_norm_cpu,
    .cuda = LOCKSTEP_CUDA(norm_cuda<NormPass::layer>),
};

constinit const Op layer_norm_grad_op = {
    .name = "layer_norm_grad",
    .rule = layer_norm_grad_rule,
    .pending = PendingReduction::sum,
    .type = layer_norm_grad_type,
    .vjp = layer_norm_grad_vjp,
    .dim_attrs = {{"batch_dims", DimAttr::leading}},
    .alias = norm_grad_alias,
    .cpu = layer_norm_grad_cpu,
    .cuda = LOCKSTEP_CUDA(norm_cuda<NormPass::layer_grad>),
};

constinit const Op rms_norm_op = {
    .name = "rms_norm",
    .rule = rms_norm_rule,
    .type = rms_norm_type,
    .vjp = rms_norm_vjp,
    .batch = norm_batch,
    .dim_attrs = {{"batch_dims", DimAttr::leading}},
    .alias = norm_alias,
    .cpu = rms_norm_cpu,
    .cuda = LOCKSTEP_CUDA(norm_cuda<NormPass::rms>),
};

constinit const Op rms_norm_grad_op = {
    .name = "rms_norm_grad",
    .rule = rms_norm_grad_rule,
    .pending = PendingReduction::sum,
    .type = rms_norm_grad_type,
    .vjp = rms_norm_grad_vjp,
    .dim_attrs = {{"batch_dims", DimAttr::leading}},
    .alias = norm_grad_alias,
    .cpu = rms_norm_grad_cpu,
    .cuda = LOCKSTEP_CUDA(norm_cuda<NormPass::rms_grad>),
};

NormSizes::NormSizes(const Shape& x, int64_t batch_dims)
    : groups(extent(x, 0, batch_dims)), rows(extent(x, batch_dims, static_cast<int64_t>(x.size()) - 1)), d(x.back()) {}

Values layer_norm(Value x, Value scale, Value bias, double epsilon, int64_t batch_dims) {
  const Value in[] = {x, scale, bias};
  return x.builder().emit(layer_norm_op, in, {{"batch_dims", batch_dims}, {"epsilon", epsilon}});
}

Values layer_norm_grad(Value x, Value scale, Value mean, Value rstd, Value dy, int64_t batch_dims) {
  const Value in[] = {x, scale, mean, rstd, dy};
  return x.builder().emit(layer_norm_grad_op, in, {{"batch_dims", batch_dims}});
}

Values rms_norm(Value x, Value scale, double epsilon, int64_t batch_dims) {
  const Value in[] = {x, scale};
  return x.builder().emit(rms_norm_op, in, {{"batch_dims", batch_dims}, {"epsilon", epsilon}});
}

Values rms_norm_grad(Value x, Value scale, Value rstd, Value dy, int64_t batch_dims) {
  const Value in[] = {x, scale, rstd, dy};
  return x.builder().emit(rms_norm_grad_op, in, {{"batch_dims", batch_dims}});
}

}  // namespace lockstep
