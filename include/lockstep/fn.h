// Elementwise functions as objects, to pass them to transforms. The functions themselves are overloaded with those of the C
// library. jit, vmap, grad and value_and_grad take those of one array by name, vmap(log1p); the others do not:
//
//   Array y = jacfwd(fn::log1p)(x);
//   Array d = grad(fn::tanh)(0.5f);
//   Params p = tree_map(fn::square, params);
//
// For any other function write a lambda: jit([](Array x) { return softmax(x); }). Safe to use from any thread.
#pragma once

#include "lockstep/math.h"

namespace lockstep::fn {

#define LOCKSTEP_UNARY(name)                                               \
  inline constexpr struct {                                                \
    Array operator()(const Array& x) const { return lockstep::name(x); }   \
  } name;
#define LOCKSTEP_BINARY(name)                                                              \
  inline constexpr struct {                                                                \
    Array operator()(const Array& a, const Array& b) const { return lockstep::name(a, b); } \
  } name;

LOCKSTEP_UNARY(abs)
LOCKSTEP_UNARY(ceil)
LOCKSTEP_UNARY(cos)
LOCKSTEP_UNARY(erf)
LOCKSTEP_UNARY(erf_inv)
LOCKSTEP_UNARY(exp)
LOCKSTEP_UNARY(expm1)
LOCKSTEP_UNARY(floor)
LOCKSTEP_UNARY(gelu)
LOCKSTEP_UNARY(isfinite)
LOCKSTEP_UNARY(isinf)
LOCKSTEP_UNARY(isnan)
LOCKSTEP_UNARY(log)
LOCKSTEP_UNARY(log1p)
LOCKSTEP_UNARY(log_sigmoid)
LOCKSTEP_UNARY(relu)
LOCKSTEP_UNARY(round)
LOCKSTEP_UNARY(rsqrt)
LOCKSTEP_UNARY(sigmoid)
LOCKSTEP_UNARY(sign)
LOCKSTEP_UNARY(silu)
LOCKSTEP_UNARY(sin)
LOCKSTEP_UNARY(softplus)
LOCKSTEP_UNARY(sqrt)
LOCKSTEP_UNARY(square)
LOCKSTEP_UNARY(stop_gradient)
LOCKSTEP_UNARY(tanh)
LOCKSTEP_BINARY(logaddexp)
LOCKSTEP_BINARY(maximum)
LOCKSTEP_BINARY(minimum)
LOCKSTEP_BINARY(pow)

#undef LOCKSTEP_UNARY
#undef LOCKSTEP_BINARY

}  // namespace lockstep::fn
