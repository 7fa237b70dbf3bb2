#include "lockstep/averages.h"

#include <algorithm>

#include "base/check.h"
#include "lockstep/math.h"
#include "nn/trained_leaves.h"

namespace lockstep {
namespace {

void check_average(const std::vector<Array>& average, const std::vector<Array>& params, double decay,
                   const Array& step) {
  if (!(decay >= 0 && decay < 1))
    throw_error("update_average: the decay is {}; it must be at least 0 and less than 1", decay);
  if (!is_integer(step.dtype()) || step.type().rank() != 0)
    throw_error("update_average: the step is {}; give an integer scalar, such as the step of the optimizer state",
                to_string(step.type()));
  if (average.size() != params.size())
    throw_error("update_average: {} averages, but {} parameters; start with a copy of the parameters", average.size(),
                params.size());
  for (size_t i = 0; i < params.size(); ++i)
    if (average[i].dtype() != params[i].dtype() || average[i].shape() != params[i].shape())
      throw_error("update_average: average {} is {}, but the parameter is {}; start with a copy of the parameters", i,
                  to_string(average[i].type()), to_string(params[i].type()));
}

}  // namespace

std::vector<Array> update_average(const std::vector<Array>& average, const std::vector<Array>& params, double decay,
                                  const Operand& step) {
  check_average(average, params, decay, step);
  const Array n = astype(step, f64);
  // 1 - (1 + n) / (10 + n) = 9 / (10 + n).
  const Array share = maximum(1 - decay, 9.0 / (10.0 + n));
  std::vector<Array> out;
  for (size_t i = 0; i < params.size(); ++i) {
    const Array &a = average[i], &p = params[i];
    out.push_back(is_floating(p.dtype()) ? a + astype(share, p.dtype()) * (p - a) : p);
  }
  return out;
}

void detail::update_average(TreeRef average, TreeRef params, double decay, const Operand& step, TreeRef next) {
  assign_trained(next,
                 lockstep::update_average(trained_leaves(average).arrays, trained_leaves(params).arrays, decay, step));
}

double average_decay(double decay, int64_t step) {
  const auto n = static_cast<double>(step);
  return std::min(decay, (1 + n) / (10 + n));
}

}  // namespace lockstep
