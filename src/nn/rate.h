// Shared by schedules and optimizers. Pure functions, safe from any thread.
#pragma once

#include "lockstep/schedules.h"

namespace lockstep::detail {

// Schedule::operator() in f64, for computations that round only their final result.
Array rate(const Schedule&, const Array& step);

// Throws Error `what: the name is value; ...` unless the number is finite and at least 0.
void check_not_negative(const char* what, const char* name, double value);

}  // namespace lockstep::detail
