// `lockstep render slurm` as users call it.
#include "base/os/run_program.h"
#include "cli/training.h"

namespace lockstep {
namespace {

ProgramResult render(const Words& words) { return run_program(Words{program_path(), "render", "slurm"} + words); }

void expect_rejected(const Words& words, const std::string& message) {
  const ProgramResult result = render(words);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "lockstep: render slurm: " + message + "\n");
}

TEST(RenderSlurm, ShapesHaveTheirCommands) {
  for (const auto& [shape, layout, command] : std::vector<std::array<std::string, 3>>{
           {"G4N1p4", "--nodes=1\n#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=4\n", "lockstep devices"},
           {"G4N2p2", "--nodes=2\n#SBATCH --ntasks=2\n#SBATCH --ntasks-per-node=1\n", "lockstep devices"},
           {"G4N2p4", "--nodes=2\n#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=2\n", "lockstep devices"},
           {"allreduce", "--nodes=2\n#SBATCH --ntasks=8\n#SBATCH --ntasks-per-node=4\n", "lockstep allreduce"}}) {
    const ProgramResult result = render({"--shape", shape});
    EXPECT_EQ(result.code, 0) << result.err;
    expect_contains(result.out, "#SBATCH --job-name=" + shape + "\n#SBATCH " + layout + "#SBATCH --cpus-per-task=4\n");
    expect_contains(result.out, "/" + command + " || status=$?\n");
    EXPECT_EQ(run_program({"bash", "-n"}, {.input = result.out}).code, 0);
  }
}

TEST(RenderSlurm, CpuFlagReplacesGpusByVirtualDevices) {
  const std::string text = render({"--shape", "G4N2p2", "--cpu"}).out;
  expect_contains(text, "\n  env 'LOCKSTEP_NUM_CPU_DEVICES=2' ");
  expect_lacks(text, "--gpus");
}

TEST(RenderSlurm, FlagsOverrideTheShape) {
  const std::string text =
      render({"--shape", "G4N1p4", "--tasks-per-node", "2", "--cpus-per-task", "8", "--time", "2-0", "--job-name", "x"})
          .out;
  for (const char* part :
       {"--job-name=x\n", "--ntasks=2\n", "--cpus-per-task=8\n", "--time=2-0\n", "--gpus-per-node=4\n"})
    expect_contains(text, part);
}

TEST(RenderSlurm, OnlyTrainingGetsASignalBeforeTheTimeLimit) {
  expect_contains(render({"--", "train"}).out, "#SBATCH --signal=USR1@120\n");
  expect_contains(render({"--signal-seconds", "30", "--", "lockstep", "train"}).out, "#SBATCH --signal=USR1@30\n");
  expect_lacks(render({"--signal-seconds", "0", "--", "train"}).out, "--signal=");
  expect_lacks(render({"--", "devices"}).out, "--signal=");
  expect_lacks(render({"--program", "/bin/python3", "--", "train"}).out, "--signal=");
}

TEST(RenderSlurm, ContainersRunTheProgramOfTheImage) {
  expect_contains(render({"--container", "a.sif", "--", "devices"}).out,
                  "\n  apptainer exec a.sif \\\n  lockstep devices ||");
}

TEST(RenderSlurm, RepeatedFlagsLeaveTheCommandAlone) {
  const std::string text =
      render({"--env", "A=1", "--env", "B=2", "--module", "m", "--sbatch=--nice", "--", "train", "--model", "mlp"}).out;
  expect_contains(text, "\n  env 'A=1' 'B=2' ");
  expect_contains(text, "lockstep train --model mlp || ");
  expect_contains(text, "module load m\n");
  expect_contains(text, "#SBATCH --nice\n");
}

TEST(RenderSlurm, CommandsAreChecked) {
  for (const Words& words : {Words{"train", "--modle", "mlp"}, Words{"lockstep", "train", "--modle", "mlp"}}) {
    const ProgramResult result = render(Words{"--"} + words);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err,
              "lockstep: train: unknown flag --modle; did you mean \"--model\"? see `lockstep train --help`\n");
  }
}

TEST(RenderSlurm, InvalidFlagsAreRejected) {
  expect_rejected({"--nodes", "2"},
                  "no command after --; add one, such as `lockstep render slurm --nodes 2 -- train --model mlp`");
  expect_rejected(
      {"--", "trian"},
      "unknown command \"trian\"; did you mean \"train\"? to run another program, give its path or use --program");
  expect_rejected({"--env", "A", "--", "train"}, "--env: \"A\" is not NAME=VALUE");
  for (const char* wrong : {"lots", "16X", "G", "-1"})
    expect_rejected({std::string("--mem=") + wrong, "--", "train"},
                    "--mem: \"" + std::string(wrong) +
                        "\" is not a size such as 16G or 500M; see `lockstep render slurm "
                        "--help`");
  for (const char* size : {"0", "500", "16G", "16gb"})
    expect_contains(render({"--mem", size, "--", "train"}).out, "#SBATCH --mem=" + std::string(size) + "\n");
  expect_rejected({"--max-requeues", "3", "--", "train"},
                  "--max-requeues has no effect without --requeue; add --requeue or omit it");
  expect_rejected(
      {"--time", "1h", "--", "train"},
      "invalid time \"1h\"; write MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES:SECONDS");
}

}  // namespace
}  // namespace lockstep
