// The definitions of CrossEntropyLoops, included once by each file that compiles them for an instruction set.
// Everything here has internal linkage and calls no function of the standard library.
#pragma once

#include "ops/loops/cross_entropy_loops.h"
#include "ops/math.h"

namespace lockstep {
namespace {

// Elements are combined in this many independent sums, for every instruction set: so the bits are the same.
inline constexpr int64_t kLossLanes = 32;

// Combines f(x[i]) over all elements: lane by lane, then the lanes pairwise.
template <class F, class Combine>
LOCKSTEP_INLINE float combine_lanes(const float* x, int64_t n, float identity, const F& f, const Combine& combine) {
  float lanes[kLossLanes];
  for (int64_t k = 0; k < kLossLanes; ++k) lanes[k] = identity;
  int64_t i = 0;
  for (; i + kLossLanes <= n; i += kLossLanes)
    for (int64_t k = 0; k < kLossLanes; ++k) lanes[k] = combine(lanes[k], f(x[i + k]));
  for (int64_t k = 0; i + k < n; ++k) lanes[k] = combine(lanes[k], f(x[i + k]));
  for (int64_t half = kLossLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) lanes[k] = combine(lanes[k], lanes[k + half]);
  return lanes[0];
}

float loss_max(const float* x, int64_t n) {
  return combine_lanes(
      x, n, -math::kInf, [](float a) { return a; }, [](float most, float a) { return a > most ? a : most; });
}

float loss_sum_exp(const float* x, int64_t n, float shift) {
  return combine_lanes(
      x, n, 0.0f, [shift](float a) { return math::exp(a - shift); }, [](float a, float b) { return a + b; });
}

float loss_sum(const float* x, int64_t n, float shift) {
  return combine_lanes(
      x, n, 0.0f, [shift](float a) { return a - shift; }, [](float a, float b) { return a + b; });
}

void loss_gradient(float* out, const float* x, int64_t n, float lse, float less, float scale) {
  int64_t i = 0;
  for (; i + kLossLanes <= n; i += kLossLanes) {
    float block[kLossLanes];
    for (int64_t k = 0; k < kLossLanes; ++k) block[k] = (math::exp(x[i + k] - lse) - less) * scale;
    for (int64_t k = 0; k < kLossLanes; ++k) out[i + k] = block[k];
  }
  for (; i < n; ++i) out[i] = (math::exp(x[i] - lse) - less) * scale;
}

constexpr CrossEntropyLoops make_cross_entropy_loops() { return {loss_max, loss_sum_exp, loss_sum, loss_gradient}; }

}  // namespace
}  // namespace lockstep
