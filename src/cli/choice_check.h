// Checks words on the command line against a list. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

// Accepts one of the words, which also become the value's name in the help:
// `"fetsh" is not one of fetch, verify; did you mean "fetch"?`.
CLI::Validator one_of(const std::vector<std::string>& words);

}  // namespace lockstep::cli
