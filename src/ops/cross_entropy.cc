// The rows of the softmax cross-entropy. Shapes: logits [..., v]; labels, loss, lse and dloss [...].
#include "ops/cross_entropy.h"

#include "ops/cross_entropy_cpu.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

Shape rows_shape(const Type& logits) { return Shape(logits.shape.begin(), logits.shape.end() - 1); }

// The type of the loss.
Type loss_type(const Type& logits) {
  return {logits.dtype == DType::f64 ? DType::f64 : DType::f32, rows_shape(logits)};
}

void check_logits_and_labels(std::string_view op, Types in, const Attrs& attrs) {
  const Type &logits = in[0], &labels = in[1];
  if (logits.rank() == 0 || !is_floating(logits.dtype) || logits.shape.back() == 0)
    throw_error("{}: the logits are {}; they must be floating, [..., classes], with at least one class", op,
                to_string(logits));
  if (!is_integer(labels.dtype) || labels.shape != rows_shape(logits))
    throw_error("{}: the labels are {} for logits {}; they must be integers {}", op, to_string(labels),
                to_string(logits), to_string(rows_shape(logits)));
  const double smoothing = attrs.get<double>("smoothing");
  if (!(smoothing >= 0 && smoothing < 1))
    throw_error("{}: the smoothing is {}; it must be at least 0 and less than 1", op, smoothing);
}

std::vector<Type> cross_entropy_type(Types in, const Attrs& attrs) {
  expect_operands("cross_entropy", in, 2);
  check_logits_and_labels("cross_entropy", in, attrs);
  return {loss_type(in[0]), loss_type(in[0])};
}

std::vector<Type> cross_entropy_grad_type(Types in, const Attrs& attrs) {
  constexpr std::string_view kOp = "cross_entropy_grad";
  expect_operands(kOp, in, 4);
  check_logits_and_labels(kOp, in, attrs);
  const Type wanted = loss_type(in[0]);
  for (const size_t i : {size_t{2}, size_t{3}})
    if (in[i].dtype != wanted.dtype || in[i].shape != wanted.shape)
      throw_error("{}: the {} is {}; it must be {} for logits {}", kOp, i == 2 ? "lse" : "cotangent", to_string(in[i]),
                  to_string(wanted), to_string(in[0]));
  return {{in[0].dtype, in[0].shape}};
}

// The classes of a row are one sum.
Rule cross_entropy_rule(Types in, const Attrs&) {
  Factors factors;
  const std::string rows = factors.next(in[0].rank() - 1);
  const char classes = factors.next();
  return {{rows + classes, rows}, {rows, rows}, std::string(1, classes)};
}
Rule cross_entropy_grad_rule(Types in, const Attrs& attrs) {
  const Rule rule = cross_entropy_rule(in, attrs);
  const std::string &logits = rule.in[0], &rows = rule.in[1];
  return {{logits, rows, rows, rows}, {logits}, rule.unsharded};
}

bool cross_entropy_grad_alias(Types, Types, const Attrs&, size_t in, size_t) { return in == 0; }

// ---- gradients

// A value of the rows, repeated for all classes.
Value for_classes(Value rows, Value logits) { return broadcast(rows, logits.shape(), counting(0, logits.rank() - 1)); }

// exp(logits - lse) in the type of the loss.
Value softmax_of(Value logits, Value lse) { return exp(cast(logits, lse.dtype()) - for_classes(lse, logits)); }

Grads cross_entropy_vjp(const Vjp& v) {
  const Value logits = v.in[0], labels = v.in[1], lse = v.out[1];
  Value grad;
  if (v.cts[0]) grad = cross_entropy_grad(logits, labels, lse, v.cts[0], v.attrs.get<double>("smoothing"));
  if (v.cts[1]) {
    const Value of_lse = cast(softmax_of(logits, lse) * for_classes(v.cts[1], logits), logits.dtype());
    grad = grad ? grad + of_lse : of_lse;
  }
  return {grad, {}};
}

// The target distribution of each row, and whether its label is a class.
struct Target {
  Value weights, known;
};
Target target_of(Value logits, Value labels, DType dtype, double smoothing) {
  Builder& b = logits.builder();
  const int64_t classes = logits.shape().back();
  const Value label = cast(labels, DType::i64);
  const Type all{DType::i64, logits.shape(), logits.type().varying};
  const Value is_label = eq(for_classes(label, logits), iota(b, all, logits.rank() - 1));
  const auto bound = [&](int64_t value) { return full(b, label.type(), value); };
  const double even = smoothing / static_cast<double>(classes);
  return {cast(is_label, dtype) * (1 - smoothing) + even, bit_and(ge(label, bound(0)), lt(label, bound(classes)))};
}

// Of (softmax(logits) - target) * dloss, in rows whose label is a class.
Grads cross_entropy_grad_vjp(const Vjp& v) {
  const Value logits = v.in[0], lse = v.in[2], dloss = v.in[3];
  const Target target = target_of(logits, v.in[1], lse.dtype(), v.attrs.get<double>("smoothing"));
  const Value ct = cast(v.ct(), lse.dtype()), softmax = softmax_of(logits, lse);
  const Value known = select(target.known, dloss, zeros_like(dloss));
  const Value scaled = softmax * ct * for_classes(known, logits);
  Grads grads(4);
  if (v.wanted[0]) grads[0] = cast(scaled, logits.dtype());
  if (v.wanted[2]) grads[2] = neg(reduce_sum(scaled, {logits.rank() - 1}));
  if (v.wanted[3]) {
    const Value sum = reduce_sum((softmax - target.weights) * ct, {logits.rank() - 1});
    grads[3] = select(target.known, sum, zeros_like(sum));
  }
  return grads;
}

// The 16-bit array of which `logits` is a cast to f32, if it is one: the rows convert it themselves, with the same
// bits.
Value before_widening(Value logits) {
  const Eqn* eqn = logits.builder().definition(logits);
  if (!eqn || eqn->op != &cast_op || logits.dtype() != DType::f32) return logits;
  const Value narrow(&logits.builder(), eqn->in[0]);
  return narrow.dtype() == DType::bf16 || narrow.dtype() == DType::f16 ? narrow : logits;
}

}  // namespace

constinit const Op cross_entropy_op = {
    .name = "cross_entropy",
    .rule = cross_entropy_rule,
    .type = cross_entropy_type,
    .vjp = cross_entropy_vjp,
    .cpu = cross_entropy_cpu,
    .cuda = LOCKSTEP_CUDA(cross_entropy_cuda),
};

constinit const Op cross_entropy_grad_op = {
    .name = "cross_entropy_grad",
    .rule = cross_entropy_grad_rule,
    .type = cross_entropy_grad_type,
    .vjp = cross_entropy_grad_vjp,
    .alias = cross_entropy_grad_alias,
    .cpu = cross_entropy_grad_cpu,
    .cuda = LOCKSTEP_CUDA(cross_entropy_grad_cuda),
};

Values cross_entropy(Value logits, Value labels, double smoothing) {
  const Value in[] = {before_widening(logits), labels};
  return logits.builder().emit(cross_entropy_op, in, {{"smoothing", smoothing}});
}

Value cross_entropy_grad(Value logits, Value labels, Value lse, Value dloss, double smoothing) {
  return emit(cross_entropy_grad_op, {logits, labels, lse, dloss}, {{"smoothing", smoothing}});
}

}  // namespace lockstep
