#include "ops/elementwise.h"

#include <cmath>

#include "base/check.h"
#include "base/dispatch.h"
#include "ops/complex.h"
#include "ops/fused.h"
#include "ops/loops/loops.h"
#include "ops/ops.h"
#include "ops/special_gradients.h"

namespace lockstep {
namespace {

constexpr double kTwoOverRootPi = 1.1283791670955126;
constexpr double kHalfRootPi = 0.88622692545275801;
constexpr double kLn2 = 0.69314718055994531, kLn10 = 2.3025850929940457, kRootTwoPi = 2.5066282746310005;

// The sets of dtypes in elementwise.def.
struct DTypeSet {
  bool (*has)(DType);
  std::string_view names;
  bool has_complex = false;
};
constexpr DTypeSet floating{[](DType t) { return is_floating(t); }, "floats"};
constexpr DTypeSet analytic{[](DType t) { return is_inexact(t); }, "floats and complex numbers", true};
constexpr DTypeSet numeric{[](DType t) { return is_integer(t) || is_floating(t); }, "integers and floats"};
constexpr DTypeSet arithmetic{[](DType t) { return t != DType::boolean; }, "numbers", true};
constexpr DTypeSet integral{[](DType t) { return is_integer(t) || t == DType::boolean; }, "integers and bool"};
constexpr DTypeSet integers{[](DType t) { return is_integer(t); }, "integers"};
constexpr DTypeSet ordered{[](DType t) { return !is_complex(t); }, "every dtype but complex numbers"};
constexpr DTypeSet any{[](DType) { return true; }, "every dtype", true};

void check_count(const Op& op, Types in, size_t wanted) {
  if (in.size() != wanted) throw_error("{}: takes {} operands and got {}", op.name, wanted, in.size());
}

void check_equal(const Op& op, const Type& a, const Type& b) {
  if (a.dtype != b.dtype)
    throw_error("{}: operands are {} and {}; cast one of them", op.name, to_string(a), to_string(b));
  if (a.shape != b.shape)
    throw_error("{}: operands are {} and {}; broadcast them to one shape", op.name, to_string(a), to_string(b));
}

void check_operands(const Op& op, const DTypeSet& set, size_t operands, Types in) {
  check_count(op, in, operands);
  for (const Type& t : in) check_equal(op, in[0], t);
  if (!set.has(in[0].dtype))
    throw_error("{}: the operand is {} and the op takes {}; cast it", op.name, to_string(in[0]), set.names);
}

// The result has the type of the operands.
template <const Op& op, const DTypeSet& set, size_t operands>
std::vector<Type> same_type(Types in, const Attrs&) {
  check_operands(op, set, operands, in);
  return {in[0]};
}

template <const Op& op, const DTypeSet& set, size_t operands>
std::vector<Type> bool_type(Types in, const Attrs&) {
  check_operands(op, set, operands, in);
  return {Type{DType::boolean, in[0].shape}};
}

template <LoopId id>
Loop find_loop(std::span<const DType> in, DType) {
  return loops().map[static_cast<int>(id)][register_index(in[0])];
}

bool alias_same_width(Types in_types, Types out_types, const Attrs&, size_t in, size_t out) {
  return size_of(in_types[in].dtype) == size_of(out_types[out].dtype);
}

template <const Op& op>
Kernel cpu_kernel(const KernelSpec& spec) {
  return elementwise_kernel(op, spec);
}

// ---- Folding

// Computes the op now if each operand is one repeated element.
Value fold_constants(const Op& op, const Fold& f) {
  if (is_complex(f.type.dtype)) return {};  // a constant has no imaginary part
  alignas(16) char elements[3][16] = {};
  const void* pointers[3] = {elements[0], elements[1], elements[2]};
  DType registers[3];
  for (size_t i = 0; i < f.in.size(); ++i) {
    const Attr* value = constant_value(f.builder.definition(f.in[i]));
    if (!value) return {};
    registers[i] = register_type(f.in[i].dtype());
    encode_element(*value, f.in[i].dtype(), elements[i]);
  }
  alignas(16) char result[16];
  const Loop loop = op.loop({registers, f.in.size()}, f.type.dtype);
  loop(result, pointers, 1);
  return decode_element(result, f.builder, f.type);
}

// Whether operand i is this constant. The sign of a floating zero counts.
bool is_constant(const Fold& f, size_t i, double wanted) {
  const Attr* value = constant_value(f.builder.definition(f.in[i]));
  if (!value) return false;
  if (const auto* integer = std::get_if<int64_t>(value)) return *integer == static_cast<int64_t>(wanted);
  const double x = std::get<double>(*value);
  return x == wanted && std::signbit(x) == std::signbit(wanted);
}

Value fold_nothing(const Op&, const Fold&) { return {}; }

// f(f(x)) = x.
Value fold_involution(const Op& op, const Fold& f) {
  const Eqn* inner = f.builder.definition(f.in[0]);
  return inner && inner->op == &op ? Value(&f.builder, inner->in[0]) : Value();
}

// x + 0.0 is not x for x = -0.0, x + -0.0 is.
Value fold_add(const Op&, const Fold& f) {
  if (is_constant(f, 1, -0.0)) return f.in[0];
  if (is_constant(f, 0, -0.0)) return f.in[1];
  return {};
}

Value fold_sub(const Op&, const Fold& f) { return is_constant(f, 1, 0.0) ? f.in[0] : Value(); }

Value fold_mul(const Op&, const Fold& f) {
  for (size_t i : {0, 1}) {
    if (is_constant(f, i, 1.0)) return f.in[1 - i];
    if (is_integer(f.type.dtype) && is_constant(f, i, 0.0)) return f.in[i];
  }
  return {};
}

Value fold_div(const Op&, const Fold& f) { return is_constant(f, 1, 1.0) ? f.in[0] : Value(); }

Value fold_pow(const Op&, const Fold& f) {
  if (is_constant(f, 1, 0.0)) return ones_like(f.in[0]);
  if (is_constant(f, 1, 1.0)) return f.in[0];
  if (is_constant(f, 1, 2.0)) return f.in[0] * f.in[0];
  return {};
}

Value fold_select(const Op&, const Fold& f) {
  if (f.in[1] == f.in[2] || is_constant(f, 0, 1.0)) return f.in[1];
  return is_constant(f, 0, 0.0) ? f.in[2] : Value();
}

Value fold_same_type(const Op&, const Fold& f) { return f.in[0].type() == f.type ? f.in[0] : Value(); }

template <const Op& op, Value (*simpler)(const Op&, const Fold&)>
Value fold(const Fold& f) {
  const Value constant = fold_constants(op, f);
  return constant ? constant : simpler(op, f);
}

// ---- Gradients
//
// An expression that emits several equations as operands is split into statements: C++ does not order the operands of
// a call, and the program must not depend on the compiler.

// x with zeros replaced.
Value where_zero(Value x, double otherwise) {
  const Value zero = eq(x, zeros_like(x));
  return select(zero, full_like(x, otherwise), x);
}

// 1 - y^2, without the cancellation near 1.
Value one_minus_square(Value y) {
  const Value plus = 1.0 + y;
  const Value minus = 1.0 - y;
  return plus * minus;
}

// Second derivatives of the activations. 16-bit operands are widened: squares of f16 overflow from 256 on.
Value in_f32(Value (*f)(Value), Value x) {
  return size_of(x.dtype()) > 2 ? f(x) : cast(f(cast(x, DType::f32)), x.dtype());
}

Value gelu_curvature(Value x) {
  return in_f32(
      [](Value a) {
        constexpr double kRate = 0.79788456080286535588, kCube = 0.044715;
        const Value square = a * a;
        const Value slope = kRate * (1.0 + 3 * kCube * square);  // of the argument of tanh
        const Value t = tanh(kRate * (a + kCube * (a * square)));
        const Value bend = a * (3 * kRate * kCube * a - t * (slope * slope));
        return one_minus_square(t) * (slope + bend);
      },
      x);
}

Value gelu_exact_curvature(Value x) {
  return in_f32(
      [](Value a) {
        const Value square = a * a;
        const Value density = 0.39894228040143267794 * exp(-0.5 * square);
        return density * (2.0 - square);
      },
      x);
}

Value silu_curvature(Value x) {
  return in_f32(
      [](Value a) {
        const Value s = logistic(a);
        const Value slope = s * (1.0 - s);
        return slope * (2.0 + a * (1.0 - 2.0 * s));
      },
      x);
}

// b a^(b-1), and 0 for b = 0 if 1/a is not finite. Otherwise b = 0 is not a special case: its derivative with respect
// to b, 1/a, would be lost.
Value pow_gradient_base(Value ct, Value a, Value b) {
  const Value constant = eq(b, zeros_like(b));
  const Value reciprocal = 1.0 / a;
  // select instead of bit_and: it is folded away if b is a constant.
  const Value undefined = select(constant, bit_not(is_finite(reciprocal)), constant);
  const Value one = ones_like(b);
  const Value slope = b * pow(a, select(undefined, one, b - 1.0));
  return ct * select(undefined, zeros_like(b), slope);
}

// a - b, whose logistic function is e^a / (e^a + e^b). 0 for equal infinities: each gets half of the gradient, as for
// any a = b. The select must apply to infinities only, or the second derivative would be lost at a = b.
Value log_odds(Value a, Value b) {
  const Value infinite = bit_not(is_finite(a));
  const Value same_infinity = bit_and(infinite, eq(a, b));
  return select(same_infinity, zeros_like(a), a - b);
}

// The share of y's gradient that belongs to a, where y is a or b: ties are split equally.
Value share(Value a, Value b, Value y) {
  const Value half = full_like(y, 0.5), one = ones_like(y), zero = zeros_like(y);
  const Value also_b = eq(b, y), is_a = eq(a, y);
  return select(is_a, select(also_b, half, one), zero);
}

// a / b, rounded toward zero.
Value trunc_div(Value a, Value b) {
  const Value q = a / b;
  const Value size = floor(abs(q));
  return sign(q) * size;
}

constexpr bool is_none(std::string_view gradient) { return gradient == "none"; }

// The GPU functions of a line of elementwise.def.
constexpr CudaExpression cuda_functions([[maybe_unused]] std::string_view op) {
#define APPROXIMATION(name, function, bf16_function) \
  if (op == #name) return {nullptr, #function, #bf16_function};
#include "ops/elementwise.def"
  return {};
}

}  // namespace

// ---- The rows of elementwise.def

namespace {

// Emits the row, or for complex operands what has another result type or computes with the parts.
Value emit_unary(const Op& op, Value x) {
  if (is_complex(x.dtype()) && &op == &abs_op) return complex_abs(x);
  if (is_complex(x.dtype()) && &op == &is_finite_op) {
    const Value re = is_finite(real(x));
    return bit_and(re, is_finite(imag(x)));
  }
  return emit(op, {x});
}

}  // namespace

#define UNARY(name_, linear_, dtypes, cost, expression, gradient, fold_)    \
  Value name_(Value x) { return emit_unary(name_##_op, x); }                \
  static Grads name_##_vjp([[maybe_unused]] const Vjp& v) {                 \
    [[maybe_unused]] const Value ct = v.ct(), x = v.in[0], y = v.y(), none; \
    return {gradient};                                                      \
  }                                                                         \
  constinit const Op name_##_op = {                                         \
      .name = #name_,                                                       \
      .linear = Linear::linear_,                                            \
      .rule = pointwise_rule,                                               \
      .type = same_type<name_##_op, dtypes, 1>,                             \
      .vjp = is_none(#gradient) ? nullptr : name_##_vjp,                    \
      .fold = fold<name_##_op, fold_>,                                      \
      .loop = find_loop<LoopId::name_>,                                     \
      .alias = alias_same_width,                                            \
      .takes_complex = dtypes.has_complex,                                  \
      .cpu = cpu_kernel<name_##_op>,                                        \
      .cuda_expression = cuda_functions(#name_),                            \
  };
#define BINARY(name_, linear_, dtypes, cost, expression, gradient_a, gradient_b, fold_)  \
  Value name_(Value a, Value b) { return emit(name_##_op, {a, b}); }                     \
  static Grads name_##_vjp(const Vjp& v) {                                               \
    [[maybe_unused]] const Value ct = v.ct(), a = v.in[0], b = v.in[1], y = v.y(), none; \
    return {v.wanted[0] ? gradient_a : none, v.wanted[1] ? gradient_b : none};           \
  }                                                                                      \
  constinit const Op name_##_op = {                                                      \
      .name = #name_,                                                                    \
      .linear = Linear::linear_,                                                         \
      .rule = pointwise_rule,                                                            \
      .type = same_type<name_##_op, dtypes, 2>,                                          \
      .vjp = is_none(#gradient_a) ? nullptr : name_##_vjp,                               \
      .fold = fold<name_##_op, fold_>,                                                   \
      .loop = find_loop<LoopId::name_>,                                                  \
      .alias = alias_same_width,                                                         \
      .takes_complex = dtypes.has_complex,                                               \
      .cpu = cpu_kernel<name_##_op>,                                                     \
      .cuda_expression = cuda_functions(#name_),                                         \
  };
#define LOCKSTEP_TEST(name_, dtypes, operands)         \
  constinit const Op name_##_op = {                    \
      .name = #name_,                                  \
      .rule = pointwise_rule,                          \
      .type = bool_type<name_##_op, dtypes, operands>, \
      .fold = fold<name_##_op, fold_nothing>,          \
      .loop = find_loop<LoopId::name_>,                \
      .alias = alias_same_width,                       \
      .takes_complex = dtypes.has_complex,             \
      .cpu = cpu_kernel<name_##_op>,                   \
      .cuda_expression = cuda_functions(#name_),       \
  };
#define PREDICATE(name_, dtypes, cost, expression)           \
  Value name_(Value x) { return emit_unary(name_##_op, x); } \
  LOCKSTEP_TEST(name_, dtypes, 1)
#define COMPARE(name_, dtypes, cost, expression)                     \
  Value name_(Value a, Value b) { return emit(name_##_op, {a, b}); } \
  LOCKSTEP_TEST(name_, dtypes, 2)
#include "ops/elementwise.def"

// ---- The rows whose operands differ in type

namespace {

std::vector<Type> select_type(Types in, const Attrs&) {
  check_count(select_op, in, 3);
  check_equal(select_op, in[1], in[2]);
  if (in[0].dtype != DType::boolean)
    throw_error("select: the predicate is {}; compare it with something, or cast it to bool", to_string(in[0]));
  if (in[0].shape != in[1].shape)
    throw_error("select: the predicate is {} and the branches are {}; broadcast them to one shape", to_string(in[0]),
                to_string(in[1]));
  return {in[1]};
}

Grads select_vjp(const Vjp& v) {
  const Value zero = zeros_like(v.ct());
  return {{}, select(v.in[0], v.ct(), zero), select(v.in[0], zero, v.ct())};
}

Loop select_loop(std::span<const DType> in, DType) { return loops().select[register_index(in[1])]; }

std::vector<Type> cast_type(Types in, const Attrs& attrs) {
  check_count(cast_op, in, 1);
  if (is_complex(in[0].dtype) != is_complex(attrs.get<DType>("dtype")))
    throw_error("cast: {} to {} drops or adds imaginary parts; use real() or complex()", to_string(in[0]),
                name(attrs.get<DType>("dtype")));
  return {Type{attrs.get<DType>("dtype"), in[0].shape}};
}

Grads cast_vjp(const Vjp& v) {
  if (!is_inexact(v.in[0].dtype()) || !is_inexact(v.y().dtype())) return {Value()};
  return {cast(v.ct(), v.in[0].dtype())};
}

Loop cast_loop(std::span<const DType> in, DType out) { return loops().convert(in[0], out); }

std::vector<Type> bitcast_type(Types in, const Attrs& attrs) {
  check_count(bitcast_op, in, 1);
  const DType to = attrs.get<DType>("dtype");
  if (is_complex(in[0].dtype) || is_complex(to))
    throw_error("bitcast: {} to {}; complex numbers have two parts: use real() and imag()", to_string(in[0]), name(to));
  if (size_of(in[0].dtype) != size_of(to) || (size_of(to) < 4 && in[0].dtype != to))
    throw_error("bitcast: the operand is {} and the result {}; both must have 32 or both 64 bits", to_string(in[0]),
                name(to));
  return {Type{to, in[0].shape}};
}

Loop bitcast_loop(std::span<const DType> in, DType) { return loops().copy(in[0]); }

}  // namespace

Value select(Value predicate, Value a, Value b) { return emit(select_op, {predicate, a, b}); }
Value cast(Value x, DType dtype) {
  if (is_complex(x.dtype()) != is_complex(dtype))
    return is_complex(dtype) ? to_complex(x, dtype) : from_complex(x, dtype);
  return emit(cast_op, {x}, {{"dtype", dtype}});
}
Value bitcast(Value x, DType dtype) { return emit(bitcast_op, {x}, {{"dtype", dtype}}); }

constinit const Op select_op = {
    .name = "select",
    .rule = pointwise_rule,
    .type = select_type,
    .vjp = select_vjp,
    .fold = fold<select_op, fold_select>,
    .loop = select_loop,
    .alias = alias_same_width,
    .takes_float8 = true,
    .cpu = cpu_kernel<select_op>,
};

constinit const Op cast_op = {
    .name = "cast",
    .rule = pointwise_rule,
    .type = cast_type,
    .vjp = cast_vjp,
    .fold = fold<cast_op, fold_same_type>,
    .loop = cast_loop,
    .alias = alias_same_width,
    .takes_float8 = true,
    .cpu = cpu_kernel<cast_op>,
    .cuda_expression = {.text = "math::cast<{0}>({1})"},
};

constinit const Op bitcast_op = {
    .name = "bitcast",
    .rule = pointwise_rule,
    .type = bitcast_type,
    .fold = fold<bitcast_op, fold_same_type>,
    .loop = bitcast_loop,
    .alias = alias_same_width,
    .cpu = cpu_kernel<bitcast_op>,
    .cuda_expression = {.text = "__builtin_bit_cast({0}, {1})"},
};

// ---- Queries about rows

int elementwise_cost(const Op& op) {
  struct Cost {
    const Op* op;
    int cost;
  };
  static constexpr Cost kCosts[] = {
#define UNARY(name, linear, dtypes, cost, ...) {&name##_op, cost},
#define PREDICATE(name, dtypes, cost, ...) {&name##_op, cost},
#define BINARY(name, linear, dtypes, cost, ...) {&name##_op, cost},
#define COMPARE(name, dtypes, cost, ...) {&name##_op, cost},
#include "ops/elementwise.def"
  };
  for (const Cost& c : kCosts)
    if (c.op == &op) return c.cost;
  return 1;
}

}  // namespace lockstep
