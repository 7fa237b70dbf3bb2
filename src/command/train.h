// Training as a command. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include "command/command.h"
#include "command/problem_runs.h"

namespace lockstep::cli {

// Adds the flags of a training run to a command, which then trains. An empty factory stands for the built-in models and
// data sets. REQUIRES: action outlives the parse.
void add_training(CLI::App& command, Action& action, const ProblemFactory& make);

}  // namespace lockstep::cli
