#include "cli/render.h"

namespace lockstep::cli {

void add_render_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("render", "write what a cluster needs to run a job: manifests, batch scripts");
  command->require_subcommand(1);
  add_render_slurm_command(*command, action);
  add_render_kubernetes_command(*command, action);
}

}  // namespace lockstep::cli
