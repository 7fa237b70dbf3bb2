// `lockstep runs delete` and `lockstep runs prune`. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include "command/command.h"

namespace lockstep::cli {

// Each function adds its subcommand to `runs`. REQUIRES: action outlives the parse.
void add_runs_delete_command(CLI::App& runs, Action& action);
void add_runs_prune_command(CLI::App& runs, Action& action);

}  // namespace lockstep::cli
