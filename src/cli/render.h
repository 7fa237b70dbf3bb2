// The subcommands of `lockstep render`, one for each kind of cluster. Used by the main thread only.
#pragma once

#include "cli/command.h"

namespace lockstep::cli {

// Each function adds its subcommand to `lockstep render`. REQUIRES: action outlives the parse.
void add_render_slurm_command(CLI::App& render, Action& action);
void add_render_kubernetes_command(CLI::App& render, Action& action);

}  // namespace lockstep::cli
