// Checks of numbers on the command line, in words of our own. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

namespace lockstep::cli {

// A whole number in a range: `"x" is not a whole number from 1 to 8`.
CLI::Validator whole(int low, int high);

}  // namespace lockstep::cli
