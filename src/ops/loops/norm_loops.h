// The loops of normalization over one row, compiled once per instruction set (loops.h), all of which give the same
// bits. Sums have a fixed order. Immutable tables, safe from any thread.
#pragma once

#include <cstdint>

namespace lockstep {

// A row that is normalized: (x - mean) * rstd * scale. T is float or double.
template <class T>
struct NormRow {
  const T *x, *scale;
  T mean, rstd;
  int64_t n;
};

// The sums over a row of g = dy * scale, and of g * (x - mean) * rstd.
struct NormSums {
  double g, g_normal;
};

template <class T>
struct NormLoops {
  double (*sum)(const T* x, int64_t n);
  // The sum of (x - center)^2.
  double (*square_sum)(const T* x, T center, int64_t n);
  // Writes the normalized row plus `bias`, if that is not null. y may be x.
  void (*normalize)(const NormRow<T>& row, const T* bias, T* y);
  // Also adds the row's terms of the gradients of scale and, if it is not null, of bias.
  NormSums (*gradient_sums)(const NormRow<T>& row, const T* dy, T* dscale, T* dbias);
  // dx = rstd * (g - mean_g - normal * mean_g_normal). dx may be x or dy.
  void (*gradient)(const NormRow<T>& row, const T* dy, T mean_g, T mean_g_normal, T* dx);
};

}  // namespace lockstep
