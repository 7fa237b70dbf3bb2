// doubles({...}): arrays of f64 for tests.
#pragma once

#include <initializer_list>

#include "lockstep/create.h"

namespace lockstep {

inline Array doubles(std::initializer_list<double> values) { return array(values, f64); }
inline Array doubles(std::initializer_list<std::initializer_list<double>> rows) { return array(rows, f64); }

}  // namespace lockstep
