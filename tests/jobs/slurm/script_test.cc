// Batch scripts: their text, and that user words reach programs unchanged.
#include "jobs/slurm/script.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/throws.h"
#include "base/os/run_program.h"
#include "lockstep/error.h"
#include "support/text.h"

namespace lockstep {
namespace {

template <class F>
void expect_error(F call, const std::string& message) {
  EXPECT_THROWS(call(), Error, message);
}

void expect_valid_bash(const std::string& text) {
  const ProgramResult result = run_program({"bash", "-n"}, {.input = text});
  EXPECT_EQ(result.code, 0) << result.err << text;
}

std::string render(const SlurmScript& script) {
  const std::string out = render_slurm(script, "render");
  expect_valid_bash(out);
  return out;
}

TEST(SlurmScript, DeviceQueryOnFourGpusOfOneNode) {
  EXPECT_EQ(render({.name = "G4N1p4",
                    .tasks = 4,
                    .nodes = 1,
                    .tasks_per_node = 4,
                    .cpus_per_task = 4,
                    .gpus_per_node = 4,
                    .time = "00:05:00",
                    .constraint = "a100",
                    .modules = {"dl", "jax/23.10-sif"},
                    .image = "$JAX_IMAGE",
                    .runtime = SlurmRuntime::singularity,
                    .command = {"lockstep", "devices"}}),
            R"(#!/bin/bash
#SBATCH --job-name=G4N1p4
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=4
#SBATCH --time=00:05:00
#SBATCH --constraint=a100
#SBATCH --no-requeue

set -euo pipefail
scontrol show job "$SLURM_JOB_ID"

set +u  # module scripts use unset variables
module load dl
module load jax/23.10-sif
set -u

# The secret that a process needs to join the job; a new one for every start.
LOCKSTEP_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export LOCKSTEP_TOKEN

# Each process detects its rank and its GPUs. When one fails, the others stop, report the cause and exit with a
# code that tells whether to retry. --kill-on-bad-exit=1 would kill them before that. srun kills processes that
# still run 120 s later.
status=0
srun --unbuffered --export=ALL --ntasks="$SLURM_NTASKS" --nodes="$SLURM_JOB_NUM_NODES" --cpus-per-task=4 \
  --kill-on-bad-exit=0 --wait=120 \
  singularity exec --nv "$JAX_IMAGE" \
  lockstep devices || status=$?
exit "$status"
)");
}

TEST(SlurmScript, TrainingIsRequeuedUpToTheLimit) {
  const std::string text = render({.tasks = 2,
                                   .nodes = 2,
                                   .time = "1:00:00",
                                   .partition = "cpu",
                                   .output = "%x-%j.out",
                                   .sbatch = {"--mail-type=END"},
                                   .signal_seconds = 120,
                                   .requeue = Requeue::transient,
                                   .max_requeues = 3,
                                   .command = {"lockstep", "train", "--checkpoint-dir", "run"}});
  for (const char* part :
       {"#SBATCH --partition=cpu\n", "#SBATCH --output=%x-%j.out\n", "#SBATCH --mail-type=END\n", "#SBATCH --requeue\n",
        "#SBATCH --open-mode=append\n", "#SBATCH --signal=USR1@120\n", "  75) again=yes ;;", "-ge 3 ]; then\n",
        "after 3 restarts; the limit is reached", "scontrol requeue \"$SLURM_JOB_ID\""})
    EXPECT_TRUE(contains(text, part)) << part << " in\n" << text;
  EXPECT_FALSE(contains(text, "gpus"));
}

TEST(SlurmScript, EachRuntimeGetsItsFormOfTheImage) {
  const auto with = [](const std::string& image, SlurmRuntime runtime, int gpus) {
    return render({.gpus_per_task = gpus, .image = image, .runtime = runtime, .command = {"lockstep", "devices"}});
  };
  EXPECT_TRUE(
      contains(with("my image.sif", SlurmRuntime::apptainer, 1), "\n  apptainer exec --nv 'my image.sif' \\\n"));
  EXPECT_TRUE(contains(with("./a.sif", SlurmRuntime::apptainer, 0), "\n  apptainer exec ./a.sif \\\n"));
  EXPECT_TRUE(
      contains(with("example.org/me/jax:1", SlurmRuntime::apptainer, 0), " docker://example.org/me/jax:1 \\\n"));
  EXPECT_TRUE(contains(with("$1", SlurmRuntime::apptainer, 0), " 'docker://$1' \\\n"));
  EXPECT_TRUE(contains(with("ghcr.io/me/jax:1", SlurmRuntime::pyxis, 1),
                       "\n  --container-image='ghcr.io#me/jax:1' --container-mounts=\"$PWD:$PWD\" "
                       "--container-workdir=\"$PWD\" \\\n"));
  EXPECT_TRUE(contains(with("me/jax", SlurmRuntime::pyxis, 1), " --container-image=me/jax "));
}

TEST(SlurmScript, EveryCombinationIsValidBash) {
  for (const Requeue requeue : {Requeue::never, Requeue::transient, Requeue::retryable, Requeue::any_failure})
    for (const std::optional<int> limit : {std::optional<int>(), std::optional<int>(1)})
      for (const char* logs : {"", "/a b/50%/it's"})
        render({.tasks = 2,
                .mpi = "pmix",
                .requeue = requeue,
                .max_requeues = limit,
                .logs = logs,
                .folder = "/a 'b' $c",
                .env = {{"A", "b c"}},
                .command = {"x"}});
}

// Runs a script with a stub of scontrol that prints its arguments and a stub of srun that runs the command.
ProgramResult run_without_slurm(const SlurmScript& script, const std::string& folder) {
  const auto program = [&](const std::string& name, const std::string& text) {
    const std::string path = folder + "/" + name, whole = "#!/bin/bash\n" + text + "\n";
    FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(whole.data()), whole.size()});
    EXPECT_EQ(run_program({"chmod", "+x", path}).code, 0);
  };
  program("scontrol", "echo \"scontrol $*\" >&2");
  program("srun", "while [[ $1 == -* ]]; do shift; done; exec \"$@\"");
  return run_program({"env", "PATH=" + folder + ":/usr/bin:/bin", "SLURM_JOB_ID=1", "SLURM_NTASKS=1",
                      "SLURM_JOB_NUM_NODES=1", "SLURM_PROCID=1", "bash", "-s"},
                     {.input = render_slurm(script, "render")});
}

const std::vector<std::string> kSpecialWords = {
    "a b",      "$HOME", "`id`", "$(id)", "'",  "\"", "\\",    "a\nb", "",  "*",          "; exit 7 #",
    "&& false", "'\\''", "~",    "!x",    "-n", "--", "{a,b}", "#c",   "ä", "|| status=9"};

std::string printed(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += "<" + word + ">";
  return out;
}

TEST(SlurmScript, ArgumentsReachTheProgramUnchanged) {
  const TempDir dir;
  std::vector<std::string> command = {"printf", "<%s>"};
  command.insert(command.end(), kSpecialWords.begin(), kSpecialWords.end());
  const ProgramResult result = run_without_slurm({.command = command}, dir.path());
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, printed(kSpecialWords)) << result.err;
}

TEST(SlurmScript, VariablesReachTheProgramUnchanged) {
  const TempDir dir;
  for (const std::string& word : kSpecialWords) {
    const ProgramResult result = run_without_slurm(
        {.env = {{"A", word}, {"with.dot", word}, {"UID", "5"}}, .command = {"bash", "-c", "printf '<%s>' \"$A\""}},
        dir.path());
    EXPECT_EQ(result.out, "<" + word + ">") << result.err;
  }
}

TEST(SlurmScript, TasksMayRunDifferentCommands) {
  const TempDir dir;
  const ProgramResult result = run_without_slurm(
      {.tasks = 2,
       .per_task = {{.env = {}, .command = {"false"}},
                    {.env = {{"A", "it's $1"}}, .command = {"bash", "-c", "printf '<%s>' \"$A\" \"$1\"", "x", "'"}}}},
      dir.path());
  EXPECT_EQ(result.out, "<it's $1><'>") << result.err;
}

TEST(SlurmScript, RequeuesAfterTheExitCodesOfItsPolicyAndKeepsThem) {
  const TempDir dir;
  const auto is_requeued = [&](Requeue policy, int code, std::optional<int> limit = {}) {
    const ProgramResult result = run_without_slurm(
        {.requeue = policy, .max_requeues = limit, .command = {"bash", "-c", "exit $1", "x", std::to_string(code)}},
        dir.path());
    EXPECT_EQ(result.code, code);
    return contains(result.err, "scontrol requeue 1");
  };
  for (const int code : {75, 134, 135, 136, 137, 139}) EXPECT_TRUE(is_requeued(Requeue::transient, code)) << code;
  for (const int code : {0, 1, 2, 3, 127, 130, 138, 143}) EXPECT_FALSE(is_requeued(Requeue::transient, code)) << code;
  for (const int code : {75, 128, 129, 130, 143, 199, 255}) EXPECT_TRUE(is_requeued(Requeue::retryable, code)) << code;
  for (const int code : {0, 1, 74, 76, 127}) EXPECT_FALSE(is_requeued(Requeue::retryable, code)) << code;
  for (const int code : {1, 75, 255}) EXPECT_TRUE(is_requeued(Requeue::any_failure, code)) << code;
  EXPECT_FALSE(is_requeued(Requeue::any_failure, 0));
  EXPECT_FALSE(is_requeued(Requeue::never, 75));
  EXPECT_FALSE(is_requeued(Requeue::any_failure, 75, 0));
  EXPECT_TRUE(is_requeued(Requeue::any_failure, 75, 1));
}

TEST(SlurmScript, InvalidValuesAreRejected) {
  const auto expect_rejected = [](const SlurmScript& script, const std::string& message) {
    expect_error([&] { render_slurm(script, "render slurm"); }, "render slurm: " + message);
  };
  const std::vector<std::string> run = {"x"};
  expect_rejected({}, "no command; add the command that the tasks run");
  expect_rejected({.tasks = 0, .command = run}, "the number of tasks is 0; the minimum is 1");
  expect_rejected({.tasks = 2, .nodes = 3, .command = run},
                  "3 nodes for 2 tasks would leave nodes idle; request fewer nodes");
  expect_rejected({.tasks = 5, .nodes = 2, .tasks_per_node = 2, .command = run},
                  "2 nodes with 2 tasks each are 4 tasks, not 5; correct one of these numbers");
  expect_rejected({.gpus_per_node = 1, .gpus_per_task = 1, .command = run},
                  "gpus per node and gpus per task are both set; set only one of them");
  expect_rejected({.tasks = 4, .nodes = 1, .tasks_per_node = 4, .gpus_per_node = 2, .command = run},
                  "2 GPUs for 4 tasks on each node; the number of GPUs must be a multiple of the number of tasks");
  expect_rejected({.cpus_per_task = -1, .command = run}, "cpus per task is -1; the minimum is 0");
  expect_rejected({.signal_seconds = 65536, .command = run},
                  "the signal is requested 65536 s before the time limit; use 0 (no signal) to 65535");
  expect_rejected({.time = "2", .signal_seconds = 120, .command = run},
                  "the time limit is 120 s, but the signal is requested 120 s before it; raise the time limit or "
                  "lower the signal's seconds");
  expect_rejected({.name = "", .command = run}, "the job name is empty; set one");
  expect_rejected({.partition = "a\n#SBATCH --uid=0", .command = run},
                  "the partition is \"a\n#SBATCH --uid=0\"; remove characters that an #SBATCH line cannot "
                  "hold, such as spaces, quotes, $, # and \\");
  expect_rejected({.sbatch = {"exclusive"}, .command = run},
                  "\"exclusive\" is not an sbatch option; write it as in --mail-type=END");
  expect_rejected({.image = "a.sif", .command = run},
                  "an image is set, but no container runtime; choose apptainer, singularity or pyxis");
  expect_rejected({.runtime = SlurmRuntime::pyxis, .command = run},
                  "a container runtime is set, but no image; set both or neither");
  expect_error([] { parse_slurm_runtime("aptainer", "apply"); },
               "apply: container runtime: unknown value \"aptainer\"; choose apptainer, singularity or pyxis; did you "
               "mean \"apptainer\"?");
}

TEST(SlurmTime, SixFormatsAreParsedAndOthersRejected) {
  const auto seconds = [](const char* text) { return parse_slurm_time(text, "x")->count(); };
  EXPECT_EQ(seconds("90"), 5400);
  EXPECT_EQ(seconds("1:30"), 90);
  EXPECT_EQ(seconds("1:30:05"), 5405);
  EXPECT_EQ(seconds("2-12"), 60 * 3600);
  EXPECT_EQ(seconds("1-0:30"), 24 * 3600 + 1800);
  EXPECT_EQ(seconds("1-01:00:07"), 25 * 3600 + 7);
  EXPECT_EQ(parse_slurm_time("UNLIMITED", "x"), std::nullopt);
  for (const char* text :
       {"", "a", "1:", ":1", "1:2:3:4", "-1", "1-", "1-1:1:1:1", "1h", "1.5", "99999999999999999999"})
    expect_error([&] { parse_slurm_time(text, "x"); },
                 fmt::format("x: invalid time \"{}\"; write MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS or "
                             "DAYS-HOURS:MINUTES:SECONDS",
                             text));
  expect_error([] { parse_slurm_time("0", "x"); }, "x: the time limit is 0; set a longer one, or UNLIMITED");
}

}  // namespace
}  // namespace lockstep
