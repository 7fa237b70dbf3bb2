// A validator for flags that take integers. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

namespace lockstep::cli {

// Accepts the integers from `low` to `high`. Message: `"x" is not a whole number from 1 to 8`.
CLI::Validator integer_between(int low, int high);

}  // namespace lockstep::cli
