// The subcommands that `lockstep` and users' programs share. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include "command/command.h"
#include "command/problem_runs.h"

namespace lockstep::cli {

// Each function adds its subcommand to the program. REQUIRES: action outlives the parse.
void add_inspect_command(CLI::App& program, Action& action);
void add_completion_command(CLI::App& program, Action& action);

// Adds `eval` for the problem of a user's program.
void add_task_eval_command(CLI::App& program, Action& action, const ProblemFactory& make);

}  // namespace lockstep::cli
