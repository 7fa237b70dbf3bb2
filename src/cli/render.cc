#include "cli/render.h"

#include "command/help.h"

namespace lockstep::cli {

void add_render_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("render", "generate Kubernetes manifests and Slurm batch scripts");
  command->require_subcommand(1);
  add_render_slurm_command(*command, action);
  add_render_kubernetes_command(*command, action);
  add_examples(*command, {"lockstep render slurm --shape G4N2p2 -- devices | sbatch",
                          "lockstep render kubernetes --set hosts_count=2 -o job.yaml"});
}

}  // namespace lockstep::cli
