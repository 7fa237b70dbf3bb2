// The vectorized loops of the row cross_entropy, compiled once per instruction set, with the same bits for each.
// Immutable tables, safe from any thread.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

// Functions of n consecutive f32 in cache.
struct CrossEntropyLoops {
  // The largest element; NaN is ignored. -inf if there is none.
  float (*max)(const float* x, int64_t n);
  // The sum of exp(x[i] - shift).
  float (*sum_exp)(const float* x, int64_t n, float shift);
  // The sum of x[i] - shift.
  float (*sum)(const float* x, int64_t n, float shift);
  // out[i] = (exp(x[i] - lse) - less) * scale. `out` may be `x`.
  void (*gradient)(float* out, const float* x, int64_t n, float lse, float less, float scale);
};

// The table for the instruction set of loops().
const CrossEntropyLoops& cross_entropy_loops();

// The tables of each instruction set that this machine supports, the best last.
std::span<const CrossEntropyLoops* const> all_cross_entropy_loops();

}  // namespace lockstep
