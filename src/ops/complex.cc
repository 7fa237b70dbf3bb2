// The rows between complex numbers and their parts. Gradients follow JAX: a cotangent c of a complex value pairs with a
// tangent t as Re(c t), so that the gradient of a product is that of real numbers, without conjugates.
#include "ops/complex.h"

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/loops/loops.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

std::vector<Type> complex_type(Types in, const Attrs&) {
  if (in.size() != 2) throw_error("complex: takes 2 operands and got {}", in.size());
  if (in[0] != in[1] || (in[0].dtype != DType::f32 && in[0].dtype != DType::f64))
    throw_error("complex: the parts are {} and {}; give two f32 or two f64 arrays of one shape", to_string(in[0]),
                to_string(in[1]));
  return {Type{complex_of(in[0].dtype), in[0].shape}};
}

template <const Op& op>
std::vector<Type> part_type(Types in, const Attrs&) {
  if (in.size() != 1) throw_error("{}: takes 1 operand and got {}", op.name, in.size());
  if (!is_complex(in[0].dtype))
    throw_error("{}: the operand {} is not complex; use it as it is", op.name, to_string(in[0]));
  return {Type{real_of(in[0].dtype), in[0].shape}};
}

size_t complex_index(DType t) { return t == DType::c64 || t == DType::f32 ? 0 : 1; }
Loop complex_loop(std::span<const DType> in, DType) { return loops().make_complex[complex_index(in[0])]; }
Loop real_loop(std::span<const DType> in, DType) { return loops().real[complex_index(in[0])]; }
Loop imag_loop(std::span<const DType> in, DType) { return loops().imag[complex_index(in[0])]; }
Loop abs_loop(std::span<const DType> in, DType) { return loops().abs[complex_index(in[0])]; }
Loop angle_loop(std::span<const DType> in, DType) { return loops().angle[complex_index(in[0])]; }

Grads complex_vjp(const Vjp& v) {
  return {v.wanted[0] ? real(v.ct()) : Value(), v.wanted[1] ? neg(imag(v.ct())) : Value()};
}
Grads real_vjp(const Vjp& v) { return {complex(v.ct(), zeros_like(v.ct()))}; }
Grads imag_vjp(const Vjp& v) { return {complex(zeros_like(v.ct()), neg(v.ct()))}; }
// The derivative of |x| is the real part of conj(x) / |x|, and 0 at 0. Not written with sign(), which has no gradient.
Grads complex_abs_vjp(const Vjp& v) {
  const Value zero = eq(v.y(), zeros_like(v.y()));
  const Value share = div(v.ct(), select(zero, ones_like(v.y()), v.y()));
  const Value re = mul(share, real(v.in[0]));
  return {complex(re, neg(mul(share, imag(v.in[0]))))};
}
// The derivative of the angle is the imaginary part of 1/x: the real part of -i/x.
Grads complex_angle_vjp(const Vjp& v) { return {div(complex(zeros_like(v.ct()), neg(v.ct())), v.in[0])}; }

// The definition of `x` by row `op`, or null.
const Eqn* defined_by(const Fold& f, Value x, const Op& op) {
  const Eqn* eqn = f.builder.definition(x);
  return eqn && eqn->op == &op ? eqn : nullptr;
}

Value complex_fold(const Fold& f) {
  const Eqn* re = defined_by(f, f.in[0], real_op);
  const Eqn* im = defined_by(f, f.in[1], imag_op);
  return re && im && re->in[0] == im->in[0] ? Value(&f.builder, re->in[0]) : Value();
}
Value real_fold(const Fold& f) {
  if (const Attr* value = full_value(f.in[0])) return full_of(f.builder, f.type, *value);
  const Eqn* parts = defined_by(f, f.in[0], complex_op);
  return parts ? Value(&f.builder, parts->in[0]) : Value();
}
Value imag_fold(const Fold& f) {
  if (full_value(f.in[0])) return full(f.builder, f.type, 0);
  const Eqn* parts = defined_by(f, f.in[0], complex_op);
  return parts ? Value(&f.builder, parts->in[1]) : Value();
}

template <const Op& op>
Kernel part_cpu(const KernelSpec& spec) {
  return elementwise_kernel(op, spec);
}

template <const Op& op>
constexpr Op part_row(std::string_view name, Loop (*loop)(std::span<const DType>, DType), Grads (*vjp)(const Vjp&),
                      Value (*fold)(const Fold&), const char* text) {
  return {.name = name,
          .rule = pointwise_rule,
          .type = part_type<op>,
          .vjp = vjp,
          .fold = fold,
          .loop = loop,
          .takes_complex = true,
          .cpu = part_cpu<op>,
          .cuda_expression = {.text = text}};
}

}  // namespace

constinit const Op complex_op = {.name = "complex",
                                 .rule = pointwise_rule,
                                 .type = complex_type,
                                 .vjp = complex_vjp,
                                 .fold = complex_fold,
                                 .loop = complex_loop,
                                 .takes_complex = true,
                                 .cpu = part_cpu<complex_op>,
                                 .cuda_expression = {.text = "{0}{{{1}}}"}};
constinit const Op real_op = part_row<real_op>("real", real_loop, real_vjp, real_fold, "({1}).re");
constinit const Op imag_op = part_row<imag_op>("imag", imag_loop, imag_vjp, imag_fold, "({1}).im");
constinit const Op complex_abs_op =
    part_row<complex_abs_op>("complex_abs", abs_loop, complex_abs_vjp, nullptr, "math::abs({1})");
constinit const Op complex_angle_op =
    part_row<complex_angle_op>("complex_angle", angle_loop, complex_angle_vjp, nullptr, "math::angle({1})");

Value complex(Value re, Value im) { return emit(complex_op, {re, im}); }
Value real(Value x) { return emit(real_op, {x}); }
Value imag(Value x) { return emit(imag_op, {x}); }
Value complex_abs(Value x) { return emit(complex_abs_op, {x}); }
Value complex_angle(Value x) { return emit(complex_angle_op, {x}); }
Value conj(Value x) {
  const Value re = real(x);
  return complex(re, neg(imag(x)));
}

Value to_complex(Value x, DType dtype) {
  const Value re = cast(x, real_of(dtype));
  return complex(re, zeros_like(re));
}
Value from_complex(Value x, DType dtype) {
  if (dtype == DType::boolean) return ne(x, zeros_like(x));
  const Value re = real(x);
  return re.dtype() == dtype ? re : cast(re, dtype);
}

}  // namespace lockstep
