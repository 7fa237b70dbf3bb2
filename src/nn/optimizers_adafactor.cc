// Adafactor (Shazeer and Stern, 2018) with the options that Hugging Face calls scale_parameter=False,
// relative_step=False, beta1=None, clip_threshold=1, decay_rate=-0.8 and eps=(1e-30, ...).
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "nn/optimizers_rules.h"

namespace lockstep::detail {
namespace {

constexpr double kSquareEpsilon = 1e-30;  // is added to squared gradients
constexpr double kLargestRms = 1;         // of an update, before it is multiplied by the rate

}  // namespace

ParameterArrays update_adafactor(const ParameterRule& rule, const StepScalars& n, const ParameterArrays& old,
                                 const Array& g) {
  const Array& p = old.param;
  const auto scalar = [&](const Array& x) { return astype(x, p.dtype()); };
  const auto averaged = [&](const Array& mean_before, const Array& value) {
    return scalar(n.keep) * mean_before + scalar(n.mix) * value;
  };
  ParameterArrays next;
  const Array squares = square(g) + kSquareEpsilon;
  Array change;
  if (is_factored(p.shape())) {
    next.second_rows = averaged(old.second_rows, mean(squares, -1));
    next.second_columns = averaged(old.second_columns, mean(squares, -2));
    // The second moment is estimated as rows * columns / mean(rows).
    const Array rows = rsqrt(next.second_rows / mean(next.second_rows, -1, {.keepdims = true}));
    change = g * expand_dims(rows, -1) * expand_dims(rsqrt(next.second_columns), -2);
  } else {
    next.second = averaged(old.second, squares);
    change = g * rsqrt(next.second);
  }
  const Array rms = sqrt(mean(square(change)));
  Array move = scalar(n.rate) * (change / maximum(rms / kLargestRms, 1.0));
  if (rule.weight_decay > 0) move = move + scalar(n.decay) * p;
  next.param = p - move;
  return next;
}

}  // namespace lockstep::detail
