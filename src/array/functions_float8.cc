#include "array/apply.h"
#include "array/promote.h"
#include "lockstep/quantize.h"
#include "ops/elementwise.h"
#include "ops/float8.h"
#include "ops/shape_ops.h"

namespace lockstep {

using detail::apply1;
using detail::convert;

Quantized quantize(const Operand& x, const Operand& scale, DType dtype) {
  const Array args[] = {x, scale};
  const detail::Arrays out = detail::apply("quantize", args, {}, [&](Builder&, const Values& v) {
    const Value factor = convert(v[1], f32);
    Values results = quantize(v[0], factor, dtype);
    results.push_back(factor);
    return results;
  });
  return {.values = out[0], .transposed = out[1], .scale = out[3], .largest = out[2]};
}

Array scaled_product(const Operand& a, const Operand& b, const Operand& scale_a, const Operand& scale_b, DType dtype) {
  return apply1("scaled_product", {a, b, scale_a, scale_b}, [&](Builder&, const Values& v) {
    return scaled_product(v[0], v[1], convert(v[2], f32), convert(v[3], f32), dtype);
  });
}

Array power_of_two_above(const Operand& x) {
  return apply1("power_of_two_above", {x}, [](Builder&, const Values& v) {
    const Value wide = convert(v[0], f32), none = full_like(wide, 0.0);
    const Value limited = minimum(maximum(wide, full_like(wide, 0x1p-100)), full_like(wide, 0x1p100));
    // Adding the largest mantissa carries into the exponent unless the mantissa is 0.
    const Value bits = bitcast(limited, i32);
    const auto word = [&](int64_t value) { return full(wide.builder(), bits.type(), value); };
    const Value above = bitcast(bit_and(bits + word(0x7fffff), word(0x7f800000)), f32);
    return select(bit_and(is_finite(wide), ne(wide, none)), above, full_like(wide, 1.0));
  });
}

}  // namespace lockstep
