// The definitions of norm_loops.h, included by loops_impl.h and under its rules. Elements are summed in lanes, which
// become vector registers; after every kSumBlock elements the lanes are added up and to a total in double.
#pragma once

#include "ops/loops/norm_loops.h"
#include "ops/loops/vectorize.h"
#include "ops/math.h"

namespace lockstep {
namespace {

inline constexpr int64_t kSumBlock = 2048;
template <class T>
inline constexpr int64_t kSumLanes = 128 / static_cast<int64_t>(sizeof(T));

// Adds up the lanes.
template <class T>
LOCKSTEP_INLINE double lane_total(T* lanes) {
  for (int64_t half = kSumLanes<T> / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  return static_cast<double>(lanes[0]);
}

template <class T>
double row_sum(const T* x, int64_t n) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = n - begin < kSumBlock ? n : begin + kSumBlock;
    T lanes[kSumLanes<T>] = {};
    int64_t i = begin;
    for (; i + kSumLanes<T> <= end; i += kSumLanes<T>)
      for (int64_t k = 0; k < kSumLanes<T>; ++k) lanes[k] += x[i + k];
    for (int64_t k = 0; k < end - i; ++k) lanes[k] += x[i + k];
    total += lane_total(lanes);
  }
  return total;
}

template <class T>
double row_square_sum(const T* x, T center, int64_t n) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = n - begin < kSumBlock ? n : begin + kSumBlock;
    T lanes[kSumLanes<T>] = {};
    const auto add = [&](int64_t k, int64_t at) {
      const T centered = x[at] - center;
      lanes[k] += centered * centered;
    };
    int64_t i = begin;
    for (; i + kSumLanes<T> <= end; i += kSumLanes<T>)
      for (int64_t k = 0; k < kSumLanes<T>; ++k) add(k, i + k);
    for (int64_t k = 0; k < end - i; ++k) add(k, i + k);
    total += lane_total(lanes);
  }
  return total;
}

template <class T>
void normalize_row(const NormRow<T>& row, const T* bias, T* y) {
  const T *x = row.x, *scale = row.scale, mean = row.mean, rstd = row.rstd;
  if (!bias) {
    LOCKSTEP_VECTORIZE
    for (int64_t i = 0; i < row.n; ++i) y[i] = (x[i] - mean) * rstd * scale[i];
    return;
  }
  LOCKSTEP_VECTORIZE
  for (int64_t i = 0; i < row.n; ++i) y[i] = (x[i] - mean) * rstd * scale[i] + bias[i];
}

template <class T, bool kBias>
NormSums gradient_sums_of(const NormRow<T>& row, const T* dy, T* dscale, T* dbias) {
  const T *x = row.x, *scale = row.scale, mean = row.mean, rstd = row.rstd;
  NormSums total{0, 0};
  for (int64_t begin = 0; begin < row.n; begin += kSumBlock) {
    const int64_t end = row.n - begin < kSumBlock ? row.n : begin + kSumBlock;
    T lanes[kSumLanes<T>] = {}, normal_lanes[kSumLanes<T>] = {};
    const auto add = [&](int64_t k, int64_t at) {
      const T normal = (x[at] - mean) * rstd, g = dy[at] * scale[at];
      if constexpr (kBias) lanes[k] += g;
      normal_lanes[k] += g * normal;
    };
    int64_t i = begin;
    for (; i + kSumLanes<T> <= end; i += kSumLanes<T>)
      for (int64_t k = 0; k < kSumLanes<T>; ++k) add(k, i + k);
    for (int64_t k = 0; k < end - i; ++k) add(k, i + k);
    if constexpr (kBias) total.g += lane_total(lanes);
    total.g_normal += lane_total(normal_lanes);
  }
  LOCKSTEP_VECTORIZE
  for (int64_t i = 0; i < row.n; ++i) {
    dscale[i] += dy[i] * ((x[i] - mean) * rstd);
    if constexpr (kBias) dbias[i] += dy[i];
  }
  return total;
}

template <class T>
NormSums row_gradient_sums(const NormRow<T>& row, const T* dy, T* dscale, T* dbias) {
  return dbias ? gradient_sums_of<T, true>(row, dy, dscale, dbias) : gradient_sums_of<T, false>(row, dy, dscale, dbias);
}

template <class T>
void row_gradient(const NormRow<T>& row, const T* dy, T mean_g, T mean_g_normal, T* dx) {
  const T *x = row.x, *scale = row.scale, mean = row.mean, rstd = row.rstd;
  LOCKSTEP_VECTORIZE
  for (int64_t i = 0; i < row.n; ++i) dx[i] = rstd * (dy[i] * scale[i] - mean_g - (x[i] - mean) * rstd * mean_g_normal);
}

template <class T>
constexpr NormLoops<T> make_norm_loops() {
  return {row_sum<T>, row_square_sum<T>, normalize_row<T>, row_gradient_sums<T>, row_gradient<T>};
}

}  // namespace
}  // namespace lockstep
