// The functions of the elementwise ops: NAME_() for each row of ops/elementwise.def, on register types.
#pragma once
#include "elements.cuh"

namespace lockstep {

#define UNARY(name, linear, dtypes, cost, expression, ...) \
  template <class T>                                       \
  inline T name##_(T x) {                                  \
    return expression;                                     \
  }
#define PREDICATE(name, dtypes, cost, expression) \
  template <class T>                              \
  inline bool name##_(T x) {                      \
    return expression;                            \
  }
#define BINARY(name, linear, dtypes, cost, expression, ...) \
  template <class T>                                        \
  inline T name##_(T a, T b) {                              \
    return expression;                                      \
  }
#define COMPARE(name, dtypes, cost, expression) \
  template <class T>                            \
  inline bool name##_(T a, T b) {               \
    return expression;                          \
  }
#include "ops/elementwise.def"

template <class T>
inline T select_(bool p, T a, T b) {
  return p ? a : b;
}

// Within 2 ulp (tanh: 5, gelu and its slope relative to the largest term) instead of 0.5, in a few instructions instead of
// dozens: for the results of TF32 and 16-bit products, which are less exact.
template <class T>
inline T quick_div_(T a, T b) {
  return div_(a, b);
}
template <class T>
inline T quick_sqrt_(T x) {
  return sqrt_(x);
}
template <class T>
inline T quick_tanh_(T x) {
  return tanh_(x);
}
template <>
inline float quick_div_(float a, float b) {
  return full_div(a, b);
}
template <>
inline float quick_sqrt_(float x) {
  return approx_sqrt(x);
}
template <>
inline float quick_tanh_(float x) {
  const float t = math::expm1_inside(2.0f * math::limit_magnitude(math::abs(x), 10.0f));
  return math::keep_nan(math::copysign(full_div(t, t + 2.0f), x), x);
}
inline float quick_logistic(float x) {
  const float z = math::exp(-math::abs(x));
  return full_div(x >= 0 ? 1.0f : z, 1.0f + z);
}
template <class T>
inline T quick_gelu_(T x) {
  return gelu_(x);
}
template <class T>
inline T quick_gelu_slope_(T x) {
  return gelu_slope_(x);
}
template <>
inline float quick_gelu_(float x) {
  return x * quick_logistic(math::gelu_argument(x));
}
template <>
inline float quick_gelu_slope_(float x) {
  const float a = math::limit_magnitude(x, 64.0f);
  return math::keep_nan(math::gelu_slope_from(a, quick_logistic(math::gelu_argument(a))), x);
}

// For bf16.
inline float approx_logistic(float x) { return 0.5f + 0.5f * approx_tanh(0.5f * x); }
inline float approx_gelu(float x) { return x * approx_logistic(math::gelu_argument(x)); }
inline float approx_gelu_slope(float x) {
  const float a = math::limit_magnitude(x, 64.0f);
  return math::keep_nan(math::gelu_slope_from(a, approx_logistic(math::gelu_argument(a))), x);
}

}  // namespace lockstep
