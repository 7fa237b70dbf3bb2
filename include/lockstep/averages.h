// An exponential moving average of weights, which often predicts better than the last weights.
//
//   Params average = params;                                      // before the first step
//   std::tie(params, state) = update(adamw, params, grads, state);  // inside the compiled step
//   average = update_average(average, params, 0.999, old_state.step);
//
// Pure functions, safe from any thread.
#pragma once

#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"
#include "lockstep/tree.h"

namespace lockstep {

// average + (1 - d) * (params - average), with d = min(decay, (1 + step) / (10 + step)). `step` is the number of
// earlier calls: an integer scalar, perhaps traced. So the initial weights soon count little, and no bias correction is
// needed. d is computed in f64, and 1 - d is rounded once to the type of each array. Equal elements stay equal bit for
// bit. Arrays that are not floating point are taken from `params`. Throws Error unless 0 <= decay < 1, and when shapes
// or types differ.
std::vector<Array> update_average(const std::vector<Array>& average, const std::vector<Array>& params, double decay,
                                  const Operand& step);

// The decay d that update_average() uses at a step.
double average_decay(double decay, int64_t step);

namespace detail {
// Averages the arrays of `next`, a copy of the parameters.
void update_average(TreeRef average, TreeRef params, double decay, const Operand& step, TreeRef next);
}  // namespace detail

// update_average() for parameters of any tree type. nn::State leaves are those of `params`.
template <class Params>
Params update_average(const Params& average, const Params& params, double decay, const Operand& step) {
  Params next = params;
  detail::update_average(detail::TreeRef(average), detail::TreeRef(params), decay, step, detail::TreeRef(next));
  return next;
}

}  // namespace lockstep
