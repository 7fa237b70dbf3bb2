// A signal to the launcher or to one process stops the job at one step, from which it resumes; and
// checkpoints of one number of processes load on any other.
#include <regex>

#include "processes/launched.h"
#include "support/variable.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

const Words kSignalRun = {"--steps", "200", "--log-every", "1", "--eval-every", "50"};

class StoppedJob : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(list_checkpoints(undisturbed()).empty()); }

  // The checkpoints of a job that is not stopped.
  static const std::string& undisturbed() {
    static const TempDir dir;
    static const std::string run = [] {
      const std::string out = dir.path() + "/wanted";
      EXPECT_EQ(launch({"-n", "3"}, train_words(kSignalRun + Words{"--checkpoint-dir", out})).exit_code, 0);
      return out;
    }();
    return run;
  }

  // Sends the signal to one process, or to the launcher (-1), and resumes the job afterwards.
  void expect_orderly_stop(int signal, int process, int exit_code) {
    SCOPED_TRACE(fmt::format("signal {} to {}", signal, process < 0 ? "all" : fmt::format("process {}", process)));
    const std::string run = fmt::format("{}/run_{}_{}", dir_.path(), signal, process + 1);
    const Words command = train_words(kSignalRun + Words{"--checkpoint-dir", run});
    LaunchedJob job({"-n", "3"}, command);
    ASSERT_TRUE(job.says("] step 5/"));
    if (process < 0)
      job.send(signal);
    else
      ASSERT_TRUE(job.send(process, signal));
    const RunningProgram::Result stopped = job.wait();
    EXPECT_EQ(stopped.exit_code, exit_code) << stopped.err;
    std::smatch match;
    ASSERT_TRUE(std::regex_search(stopped.err, match,
                                  std::regex(R"(\[0\] lockstep: stopped by (.*) at step (\d+) of 200; rerun)")))
        << stopped.err;
    EXPECT_EQ(match[1], process > 0 ? "another process" : signal == SIGTERM ? "SIGTERM" : "SIGUSR1");
    ASSERT_FALSE(list_checkpoints(run).empty());
    EXPECT_EQ(list_checkpoints(run).back(), std::stoi(match[2]));
    EXPECT_EQ(load_checkpoint(checkpoint_path(run, list_checkpoints(run).back())).step, std::stoi(match[2]));

    const RunningProgram::Result resumed = launch({"-n", "3"}, command);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_contains(resumed.err, fmt::format("[0] lockstep: resuming from step {} of 200\n", match[2].str()));
    expect_same_result(run, undisturbed());
  }

  const TempDir dir_;
  const ScopedVariable flight_{"LOCKSTEP_FLIGHT_DIR", dir_.path()};
};

TEST_F(StoppedJob, ByTheLauncherResumesByteEqual) {
  expect_orderly_stop(SIGTERM, -1, 143);
  expect_orderly_stop(SIGUSR1, -1, 75);
}

TEST_F(StoppedJob, ByOneProcessResumesByteEqual) {
  expect_orderly_stop(SIGTERM, 1, 143);
  expect_orderly_stop(SIGUSR1, 2, 75);
  expect_orderly_stop(SIGUSR1, 0, 75);
}

// Slurm's warning before the time limit: the launcher restarts the job, if restarts are allowed.
TEST_F(StoppedJob, IsRestartedAfterAWarning) {
  const std::string run = dir_.path() + "/run";
  LaunchedJob job({"-n", "3", "--max-restarts", "1", "--restart-delay", "0"},
                  train_words(kSignalRun + Words{"--checkpoint-dir", run}));
  ASSERT_TRUE(job.says("] step 5/"));
  ASSERT_TRUE(job.send(1, SIGUSR1));
  const RunningProgram::Result result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err, "] lockstep: resuming from step ");
  expect_same_result(run, undisturbed());
}

// ---- other numbers of processes

std::map<std::string, std::vector<float>> parameters(const std::string& dir) {
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, array] : load_checkpoint(checkpoint_path(dir, list_checkpoints(dir).back())).arrays)
    if (name.starts_with("params/")) out[name] = array.to_vector<float>();
  return out;
}

TEST(OtherNumberOfProcesses, ResumesFromTheShardsOfTwo) {
  const TempDir dir;
  const Words flags = {"--zero", "3", "--quiet", "--schedule", "constant"};
  const std::string two = dir.path() + "/two", wanted = dir.path() + "/wanted";
  ASSERT_EQ(launch({"-n", "2"}, train_words(flags + Words{"--steps", "12", "--checkpoint-dir", two})).exit_code, 0);
  ASSERT_EQ(launch({"-n", "2"}, train_words(flags + Words{"--steps", "20", "--checkpoint-dir", wanted})).exit_code, 0);
  EXPECT_EQ(inspect_checkpoint(checkpoint_path(two, 12), true).shards.size(), 2u);
  for (const char* n : {"1", "2", "3"}) {
    SCOPED_TRACE(n);
    const std::string run = dir.path() + "/on_" + n;
    const RunningProgram::Result result = launch(
        {"-n", n},
        train_words(flags + Words{"--steps", "20", "--checkpoint-dir", run, "--resume", checkpoint_path(two, 12)}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto got = parameters(run), expected = parameters(wanted);
    ASSERT_EQ(got.size(), 6u);
    for (const auto& [name, values] : expected)
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(got.at(name)[i], values[i], 2e-4) << name << " " << i;
  }
  // A single process loads it, with the same bytes as the shards.
  EXPECT_EQ(run_lockstep({"eval", checkpoint_path(two, 12), "--dataset", small_dataset()}).exit_code, 0);
}

}  // namespace
}  // namespace lockstep

#endif
