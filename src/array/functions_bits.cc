// Functions of numeric.h that read the representation of numbers.
#include <cmath>
#include <limits>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/math.h"
#include "lockstep/numeric.h"
#include "ops/elementwise.h"

namespace lockstep {
namespace {

using detail::apply1;
using detail::convert;

// A binary floating format in the integer type of its width. 16-bit floats are computed in f32.
struct Format {
  DType number, bits;
  int64_t fraction, bias, infinity, least_normal_exponent;
};
Format format_of(DType dtype) {
  if (dtype == f64) return {f64, i64, 52, 1023, int64_t{0x7ff} << 52, -1022};
  return {f32, i32, 23, 127, 0x7f800000, -126};
}

Value integer(Value like, int64_t value) { return full(like.builder(), like.type(), value); }

// The bits of x without its sign, and the sign bit alone.
struct Parts {
  Value magnitude, sign;
};
Parts parts_of(Value x) {
  const Format f = format_of(x.dtype());
  const Value bits = bitcast(x, f.bits);
  const int64_t least = f.bits == i64 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  return {bit_and(bits, integer(bits, ~least)), bit_and(bits, integer(bits, least))};
}

Value is_negative(Value x) {
  if (!is_floating(x.dtype()))
    return is_signed(x.dtype()) ? lt(x, zeros_like(x)) : full(x.builder(), {boolean, x.shape()}, 0);
  const Value sign = parts_of(convert(x, format_of(x.dtype()).number)).sign;
  return ne(sign, zeros_like(sign));
}

// 2^e for integers e, each clamped to the exponents of normal numbers.
Value power_of_two(Value e, const Format& f) {
  const Value clamped = minimum(maximum(e, integer(e, f.least_normal_exponent)), integer(e, f.bias));
  return bitcast(shift_left(clamped + integer(e, f.bias), integer(e, f.fraction)), f.number);
}

// The numbers of ones in u32 words: sums of neighbouring groups of 1, 2, 4, 8 and 16 bits.
Value ones_of(Value x) {
  const auto shifted = [&](Value v, int64_t by) { return shift_right(v, integer(v, by)); };
  const auto masked = [&](Value v, int64_t mask) { return bit_and(v, integer(v, mask)); };
  x = x - masked(shifted(x, 1), 0x55555555);
  x = masked(x, 0x33333333) + masked(shifted(x, 2), 0x33333333);
  x = masked(x + shifted(x, 4), 0x0f0f0f0f);
  return shifted(x * integer(x, 0x01010101), 24);
}

Array count_ones(const char* what, const Array& x, bool of_magnitude) {
  if (is_floating(x.dtype()))
    throw_error("{}: the operand is {}; it must be an integer: use astype(x, i32)", what, to_string(x.type()));
  return apply1(what, {x}, [&](Builder&, const Values& v) {
    const Value n = of_magnitude && is_signed(v[0].dtype()) ? abs(v[0]) : v[0];
    Value ones = ones_of(cast(n, u32));
    if (n.dtype() == i64) ones = ones + ones_of(cast(shift_right(n, integer(n, 32)), u32));
    return convert(ones, of_magnitude ? u8 : v[0].dtype() == boolean ? u8 : v[0].dtype());
  });
}

// Both values in their floating common type and shape.
Array of_two(const char* what, const Array& a, const Array& b, FunctionRef<Value(Value, Value)> f) {
  const Array both[] = {a, b};
  const DType dtype = detail::floating_of(detail::common_dtype(both));
  return apply1(
      what, {a, b},
      [&](Builder&, const Values& v) {
        const Values operands = detail::promote_and_broadcast(what, v, dtype);
        return f(operands[0], operands[1]);
      },
      dtype);
}

Value next_after(Value a, Value b, DType dtype) {
  const Format f = format_of(dtype);
  const Value x = convert(a, f.number), y = convert(b, f.number);
  const Parts from = parts_of(x), to = parts_of(y);
  const Value bits = bit_or(from.magnitude, from.sign);
  // A step is one unit of the type in the bits of the format it is computed in.
  const Value step = integer(bits, dtype == bf16 ? 0x10000 : 1), zero = zeros_like(x);
  const Value grows = eq(lt(x, y), lt(zero, x));
  const Value moved = select(eq(x, zero), bit_or(to.sign, step), select(grows, bits + step, bits - step));
  const Value next = select(eq(x, y), y, bitcast(moved, f.number));
  const Value any_nan = bit_or(ne(x, x), ne(y, y));
  return convert(select(any_nan, x + y, next), dtype);
}

}  // namespace

Array signbit(const Operand& x) {
  return apply1("signbit", {x}, [](Builder&, const Values& v) { return is_negative(v[0]); });
}

Array copysign(const Operand& a, const Operand& b) {
  return of_two("copysign", a, b, [](Value x, Value y) { return select(eq(is_negative(x), is_negative(y)), x, -x); });
}

Array nextafter(const Operand& a, const Operand& b) {
  return of_two("nextafter", a, b, [](Value x, Value y) {
    if (x.dtype() == f16) throw_error("nextafter: the operands are f16; convert them to f32 or bf16");
    return next_after(x, y, x.dtype());
  });
}

std::pair<Array, Array> frexp(const Operand& x) {
  const detail::Arrays out = detail::apply(
      "frexp", std::span<const Array>(std::addressof<const Array>(x), 1), {}, [](Builder&, const Values& v) {
        const Value number = detail::to_floating(v[0]);
        const Format f = format_of(number.dtype());
        const Value wide = convert(number, f.number);
        const Value tiny = lt(abs(wide), full_like(wide, f.number == f64 ? 0x1p-1022 : 0x1p-126));
        const int64_t lift = f.fraction + 1;  // makes every number normal
        const Value normal = select(tiny, wide * std::ldexp(1.0, static_cast<int>(lift)), wide);
        const Parts p = parts_of(normal);
        const Value lifted =
            shift_right(p.magnitude, integer(p.magnitude, f.fraction)) - integer(p.magnitude, f.bias - 1);
        const Value exponent = lifted - select(tiny, integer(p.magnitude, lift), zeros_like(p.magnitude));
        const Value special = bit_or(eq(wide, zeros_like(wide)), bit_not(is_finite(wide)));
        // Products are exact, and have the gradient of JAX. One power of two alone could be subnormal.
        const Value half = select(special, zeros_like(lifted), shift_right(lifted, integer(lifted, 1)));
        const Value rest = select(special, zeros_like(lifted), lifted - half);
        const Value scaled = normal * power_of_two(-half, f) * power_of_two(-rest, f);
        const Value result = select(special, wide, scaled);
        return Values{convert(result, number.dtype()), convert(select(special, zeros_like(exponent), exponent), i32)};
      });
  return {out[0], out[1]};
}

Array ldexp(const Operand& x, const Operand& e) {
  if (is_floating(e.dtype()))
    throw_error("ldexp: the exponent is {}; it must be an integer: use astype(e, i32)", to_string(e.type()));
  return apply1("ldexp", {x, e}, [](Builder&, const Values& v) {
    const Value number = detail::to_floating(v[0]);
    const Format f = format_of(number.dtype());
    const Shape shapes[] = {v[0].shape(), v[1].shape()};
    const Shape shape = detail::broadcast_shape("ldexp", shapes);
    Value y = detail::broadcast_value("ldexp", convert(number, f.number), shape);
    Value left = detail::broadcast_value("ldexp", convert(v[1], f.bits), shape);
    // Three factors reach from the greatest number to the least and back.
    for (int part = 0; part < 3; ++part) {
      const Value most = integer(left, f.bias), least = integer(left, f.least_normal_exponent);
      const Value now = minimum(maximum(left, least), most);
      y = y * power_of_two(now, f);
      left = left - now;
    }
    return convert(y, number.dtype());
  });
}

Array bitwise_and(const Operand& a, const Operand& b) { return a & b; }
Array bitwise_or(const Operand& a, const Operand& b) { return a | b; }
Array bitwise_xor(const Operand& a, const Operand& b) { return a ^ b; }
Array bitwise_not(const Operand& x) { return ~x; }
Array bitwise_invert(const Operand& x) { return ~x; }
Array invert(const Operand& x) { return ~x; }
Array left_shift(const Operand& a, const Operand& b) { return a << b; }
Array right_shift(const Operand& a, const Operand& b) { return a >> b; }
Array population_count(const Operand& x) { return count_ones("population_count", x, false); }
Array bitwise_count(const Operand& x) { return count_ones("bitwise_count", x, true); }

}  // namespace lockstep
