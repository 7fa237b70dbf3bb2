// Elementary functions beyond lockstep/math.h, and special functions (jax.scipy.special). Operands are promoted as in
// arithmetic; integers become f32. Results at poles, infinities and NaN are those of JAX. Safe to call from any thread.
//
//   Array loss = special::kl_div(p, q);
//
// f32 results are within 1 ulp of the exact value (tan: 4), f64 within a few.
#pragma once

#include "lockstep/array.h"
#include "lockstep/math.h"
#include "lockstep/operand.h"
#include "lockstep/reduce.h"

namespace lockstep {

Array log2(const Operand& x);
Array log10(const Operand& x);
Array exp2(const Operand& x);
Array logaddexp2(const Operand& a, const Operand& b);  // log2(2^a + 2^b)
Array cbrt(const Operand& x);
Array hypot(const Operand& a, const Operand& b);

Array tan(const Operand& x);
Array asin(const Operand& x);
Array acos(const Operand& x);
Array atan(const Operand& x);
Array atan2(const Operand& y, const Operand& x);  // the angle of the point (x, y)
Array sinh(const Operand& x);
Array cosh(const Operand& x);
Array asinh(const Operand& x);
Array acosh(const Operand& x);
Array atanh(const Operand& x);

// NumPy's names.
inline Array arcsin(const Operand& x) { return asin(x); }
inline Array arccos(const Operand& x) { return acos(x); }
inline Array arctan(const Operand& x) { return atan(x); }
inline Array arctan2(const Operand& y, const Operand& x) { return atan2(y, x); }
inline Array arcsinh(const Operand& x) { return asinh(x); }
inline Array arccosh(const Operand& x) { return acosh(x); }
inline Array arctanh(const Operand& x) { return atanh(x); }

Array erfc(const Operand& x);  // 1 - erf(x), without the cancellation

namespace special {

using lockstep::erf;
using lockstep::erfc;
using lockstep::log_softmax;
using lockstep::logsumexp;
using lockstep::softmax;
Array erfinv(const Operand& x);

// The gamma function, log |gamma|, the sign of gamma, and the derivatives of gammaln: digamma is the first one,
// polygamma(n, x) number n + 1.
Array gamma(const Operand& x);
Array gammaln(const Operand& x);
Array gammasgn(const Operand& x);
Array digamma(const Operand& x);
Array polygamma(const Operand& n, const Operand& x);
Array factorial(const Operand& n);
Array multigammaln(const Operand& a, int64_t d);
Array beta(const Operand& a, const Operand& b);
Array betaln(const Operand& a, const Operand& b);
// The regularized incomplete gamma functions. They have no gradient with respect to `a`: Error.
Array gammainc(const Operand& a, const Operand& x);
Array gammaincc(const Operand& a, const Operand& x);
// Hurwitz's zeta function; no gradient with respect to `x`: Error.
Array zeta(const Operand& x, const Operand& q);

// Modified Bessel functions of the first kind, also multiplied by e^-|x|.
Array i0(const Operand& x);
Array i0e(const Operand& x);
Array i1(const Operand& x);
Array i1e(const Operand& x);

// The normal distribution function, its logarithm and its inverse.
Array ndtr(const Operand& x);
Array log_ndtr(const Operand& x);
Array ndtri(const Operand& p);

Array expit(const Operand& x);  // 1 / (1 + e^-x)
Array logit(const Operand& p);  // its inverse
// x log(y) and x log1p(y), 0 for x = 0 whatever y is.
Array xlogy(const Operand& x, const Operand& y);
Array xlog1py(const Operand& x, const Operand& y);
Array entr(const Operand& x);                        // -x log(x); -infinity for x < 0
Array rel_entr(const Operand& p, const Operand& q);  // p log(p / q); 0 for p = 0; infinity where it is not defined
Array kl_div(const Operand& p, const Operand& q);    // rel_entr(p, q) - p + q

}  // namespace special
}  // namespace lockstep
