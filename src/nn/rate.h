// What schedules and optimizers share. Pure functions, safe from any thread.
#pragma once

#include "lockstep/schedules.h"

namespace lockstep::detail {

// Schedule::operator() in f64, for arithmetic that rounds once, at its end.
Array rate(const Schedule&, const Array& step);

// Throws Error `what: the name is value; ...` unless the number is finite and not negative.
void check_not_negative(const char* what, const char* name, double value);

}  // namespace lockstep::detail
