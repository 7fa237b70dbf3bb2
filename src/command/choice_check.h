// A validator for flags with a fixed list of values. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

// Accepts exactly these words. The help and the completion scripts list them. Message:
// `"fetsh" is not one of fetch, verify; did you mean "fetch"?`.
CLI::Validator one_of(const std::vector<std::string>& words);

}  // namespace lockstep::cli
