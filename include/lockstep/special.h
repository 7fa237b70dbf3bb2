// Elementary functions beyond lockstep/math.h, and special functions (jax.scipy.special). Operands are promoted as in
// arithmetic; integers become f32. Results at poles, infinities and NaN are those of JAX. Safe to call from any thread.
//
//   Array loss = special::kl_div(p, q);
//
// f32 results are within 1 ulp of the exact value (tan: 4), f64 within a few.
#pragma once

#include "lockstep/array.h"
#include "lockstep/math.h"
#include "lockstep/reduce.h"

namespace lockstep {

Array log2(const Array& x);
Array log10(const Array& x);
Array exp2(const Array& x);
Array logaddexp2(const Array& a, const Array& b);  // log2(2^a + 2^b)
Array cbrt(const Array& x);
Array hypot(const Array& a, const Array& b);

Array tan(const Array& x);
Array asin(const Array& x);
Array acos(const Array& x);
Array atan(const Array& x);
Array atan2(const Array& y, const Array& x);  // the angle of the point (x, y)
Array sinh(const Array& x);
Array cosh(const Array& x);
Array asinh(const Array& x);
Array acosh(const Array& x);
Array atanh(const Array& x);

// NumPy's names.
inline Array arcsin(const Array& x) { return asin(x); }
inline Array arccos(const Array& x) { return acos(x); }
inline Array arctan(const Array& x) { return atan(x); }
inline Array arctan2(const Array& y, const Array& x) { return atan2(y, x); }
inline Array arcsinh(const Array& x) { return asinh(x); }
inline Array arccosh(const Array& x) { return acosh(x); }
inline Array arctanh(const Array& x) { return atanh(x); }

Array erfc(const Array& x);  // 1 - erf(x), without the cancellation

namespace special {

using lockstep::erf;
using lockstep::erfc;
using lockstep::log_softmax;
using lockstep::logsumexp;
using lockstep::softmax;
Array erfinv(const Array& x);

// The gamma function, log |gamma|, the sign of gamma, and the derivatives of gammaln: digamma is the first one,
// polygamma(n, x) number n + 1.
Array gamma(const Array& x);
Array gammaln(const Array& x);
Array gammasgn(const Array& x);
Array digamma(const Array& x);
Array polygamma(const Array& n, const Array& x);
Array factorial(const Array& n);
Array multigammaln(const Array& a, int64_t d);
Array beta(const Array& a, const Array& b);
Array betaln(const Array& a, const Array& b);
// The regularized incomplete gamma functions. They have no gradient with respect to `a`: Error.
Array gammainc(const Array& a, const Array& x);
Array gammaincc(const Array& a, const Array& x);
// Hurwitz's zeta function; no gradient with respect to `x`: Error.
Array zeta(const Array& x, const Array& q);

// Modified Bessel functions of the first kind, also multiplied by e^-|x|.
Array i0(const Array& x);
Array i0e(const Array& x);
Array i1(const Array& x);
Array i1e(const Array& x);

// The normal distribution function, its logarithm and its inverse.
Array ndtr(const Array& x);
Array log_ndtr(const Array& x);
Array ndtri(const Array& p);

Array expit(const Array& x);  // 1 / (1 + e^-x)
Array logit(const Array& p);  // its inverse
// x log(y) and x log1p(y), 0 for x = 0 whatever y is.
Array xlogy(const Array& x, const Array& y);
Array xlog1py(const Array& x, const Array& y);
Array entr(const Array& x);                      // -x log(x); -infinity for x < 0
Array rel_entr(const Array& p, const Array& q);  // p log(p / q); 0 for p = 0; infinity where it is not defined
Array kl_div(const Array& p, const Array& q);    // rel_entr(p, q) - p + q

}  // namespace special
}  // namespace lockstep
