#include "lockstep/complex.h"

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/math.h"
#include "ops/complex.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;

// f of complex arrays, and `otherwise` of real ones, in which bools are integers.
Array of_complex(const char* what, const Array& x, Value (*f)(Value), Value (*otherwise)(Value)) {
  return apply1(what, {x}, [&](Builder&, const Values& v) {
    return is_complex(v[0].dtype()) ? f(v[0]) : otherwise(detail::to_number(v[0]));
  });
}

Value same(Value x) { return x; }

// Where the imaginary part is zero.
Value has_no_imaginary(Value x) { return eq(imag(x), zeros_like(imag(x))); }
Value constant_like(Value x, bool value) { return full(x.builder(), {DType::boolean, x.shape()}, value ? 1 : 0); }

}  // namespace

Array complex(const Operand& re, const Operand& im) {
  const Array both[] = {re, im};
  const DType dtype = detail::common_dtype(both);
  if (is_complex(dtype))
    throw_error("complex: the parts are {} and {}; give real arrays", to_string(re.type()), to_string(im.type()));
  const DType part = dtype == f64 ? f64 : f32;
  return apply1(
      "complex", {re, im},
      [&](Builder&, const Values& v) {
        const Values parts = detail::promote_and_broadcast("complex", v, part);
        return complex(parts[0], parts[1]);
      },
      part);
}

Array real(const Operand& x) { return of_complex("real", x, real, same); }
Array imag(const Operand& x) { return of_complex("imag", x, imag, zeros_like); }
Array conj(const Operand& x) { return of_complex("conj", x, conj, same); }

Array angle(const Operand& x) {
  return apply1("angle", {x}, [](Builder&, const Values& v) {
    return complex_angle(is_complex(v[0].dtype()) ? v[0] : to_complex(v[0], complex_of(v[0].dtype())));
  });
}

Array isreal(const Operand& x) {
  return of_complex("isreal", x, has_no_imaginary, [](Value v) { return constant_like(v, true); });
}
Array iscomplex(const Operand& x) {
  return of_complex(
      "iscomplex", x, [](Value v) { return bit_not(has_no_imaginary(v)); },
      [](Value v) { return constant_like(v, false); });
}

}  // namespace lockstep
