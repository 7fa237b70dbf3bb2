// The update rules of optimizers, for one parameter each. Pure functions, safe from any thread.
#pragma once

#include "lockstep/optimizers.h"

namespace lockstep::detail {

// The f64 scalars of one step for parameters with the same rule. Only those that the rule uses are defined.
struct StepScalars {
  Array rate;
  // Adam: factors of the two means. Both correct the bias (1 / (1 - beta^t)); the first includes the rate.
  Array first_scale, second_scale;
  Array keep, mix;  // adafactor: the weights of the old mean and of the new value; their sum is 1
  Array decay;      // decoupled weight decay: rate * weight_decay
};

// A parameter with its optimizer state. Only the arrays that its rule uses are defined.
struct ParameterArrays {
  Array param, first = {}, second = {}, second_rows = {}, second_columns = {};
};

bool is_adam(Optimizer::Kind);
bool has_momentum(Optimizer::Kind);
// Whether weight decay is applied to the parameter, not added to the gradient.
bool decouples_decay(Optimizer::Kind);
// Whether adafactor keeps the second moment of a parameter as means over rows and columns.
inline bool is_factored(const Shape& shape) { return shape.size() >= 2; }

// REQUIRES: g has the shape and type of the parameter.
ParameterArrays update_adafactor(const ParameterRule& rule, const StepScalars& n, const ParameterArrays& old,
                                 const Array& g);
ParameterArrays update_muon(const Optimizer& o, const ParameterRule& rule, const StepScalars& n,
                            const ParameterArrays& old, const Array& g);

}  // namespace lockstep::detail
