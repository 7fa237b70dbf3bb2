// What `lockstep render` prints: each kind of cluster is a subcommand of it. Used by the main thread only.
#pragma once

#include "cli/command.h"

namespace lockstep::cli {

// Each adds its subcommand to `lockstep render`. REQUIRES: action outlives the parse.
void add_render_slurm_command(CLI::App& render, Action& action);
void add_render_kubernetes_command(CLI::App& render, Action& action);

}  // namespace lockstep::cli
