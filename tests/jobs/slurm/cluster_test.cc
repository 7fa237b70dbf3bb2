// Jobs on a real Slurm with two nodes: task layouts, preemption, signals before the time limit, lost nodes.
#include "jobs/slurm/cluster.h"

#include <algorithm>

#include "support/long_tests.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

// The sorted lines that begin with one of `beginnings`: those of the processes, without script and scontrol.
std::vector<std::string> lines_with(const std::string& text, const std::vector<std::string>& beginnings) {
  std::vector<std::string> out;
  for (const std::string& line : lines_of(text))
    if (std::ranges::any_of(beginnings, [&](const std::string& each) { return line.starts_with(each); }))
      out.push_back(line);
  std::ranges::sort(out);
  return out;
}

const std::vector<std::string> kQuery = {"# Local", "# Global"}, kSum = {"Total", "Process"};
const std::string kGlobal4 = "# Global devices:[ 4 ], [cpu(id=0), cpu(id=1), cpu(id=2), cpu(id=3)]";

// Slurm only counts the GPUs of this cluster; the processes use virtual CPU devices.
TEST_F(OnSlurm, ProcessesOfAllFourLayoutsFormOneJob) {
  const Words flags = {"--constraint", "a100"};
  const std::string a = submit("a", flags + Words{"--shape", "G4N1p4"}, {"devices"});
  const std::string b =
      submit("b", flags + Words{"--shape", "G4N2p2", "--env", "LOCKSTEP_NUM_CPU_DEVICES=2"}, {"devices"});
  const std::string c = submit("c", flags + Words{"--shape", "G4N2p4"}, {"devices"});
  const std::string d = submit("d", flags + Words{"--shape", "allreduce"}, {"allreduce"});
  for (const std::string& id : {a, b, c, d}) EXPECT_EQ(end_of(id), "COMPLETED") << id;

  std::vector<std::string> one_each, two_each = {kGlobal4, kGlobal4}, sums;
  for (int i = 0; i < 4; ++i) one_each.push_back(kGlobal4);
  for (int i = 0; i < 4; ++i) one_each.push_back(fmt::format("# Local devices: [ 1 ], [cpu(id={})]", i));
  two_each.push_back("# Local devices: [ 2 ], [cpu(id=0), cpu(id=1)]");
  two_each.push_back("# Local devices: [ 2 ], [cpu(id=2), cpu(id=3)]");
  for (int i = 0; i < 8; ++i) sums.push_back(fmt::format("Process {} has y=[8.]", i));
  for (int i = 0; i < 8; ++i) sums.push_back("Total devices: 8  |  Devices per task: 1");
  EXPECT_EQ(lines_with(printed("a"), kQuery), one_each) << printed("a");
  EXPECT_EQ(lines_with(printed("b"), kQuery), two_each) << printed("b");
  EXPECT_EQ(lines_with(printed("c"), kQuery), one_each) << printed("c");
  EXPECT_EQ(lines_with(printed("d"), kSum), sums) << printed("d");
  expect_contains(printed("d"), "JobName=d");  // scontrol show job
}

TEST_F(OnSlurm, PartitionsWithoutGpusUseVirtualDevices) {
  const std::string id =
      submit("cpu", {"--shape", "G4N2p2", "--cpu", "--env", "LOCKSTEP_COLLECTIVES=tcp"}, {"allreduce"});
  EXPECT_EQ(end_of(id), "COMPLETED");
  EXPECT_EQ(lines_with(printed("cpu"), kSum), (std::vector<std::string>{"Process 0 has y=[4.]", "Process 1 has y=[4.]",
                                                                        "Total devices: 4  |  Devices per task: 2",
                                                                        "Total devices: 4  |  Devices per task: 2"}))
      << printed("cpu");
}

TEST_F(OnSlurm, MpiIsUsedForDataIfSrunSupportsIt) {
#ifndef LOCKSTEP_WITH_MPI
  GTEST_SKIP() << "built without MPI";
#endif
  const ProgramResult kinds = run_program({"srun", "--mpi=list"});
  if (!contains(kinds.out + kinds.err, "pmix")) GTEST_SKIP() << "this Slurm has no PMIx";
  // On one node: PMIx does not support two slurmd daemons on one machine.
  const std::string id =
      submit("mpi", {"--tasks-per-node", "2", "--mpi", "pmix", "--env", "LOCKSTEP_COLLECTIVES=mpi"}, {"allreduce"});
  EXPECT_EQ(end_of(id), "COMPLETED");
  EXPECT_EQ(lines_with(printed("mpi"), {"Process"}),
            (std::vector<std::string>{"Process 0 has y=[2.]", "Process 1 has y=[2.]"}))
      << printed("mpi");
}

TEST_F(OnSlurm, PermanentErrorFailsTheJobWithItsExitCode) {
  const std::string id =
      submit("fails", {"--tasks-per-node", "2", "--requeue"}, {"train", "--dataset", "no-such-data-set"});
  EXPECT_EQ(end_of(id), "FAILED");  // not requeued: the error would occur again
  const std::optional<SlurmJobInfo> now = info(id);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->restarts, 0);
  EXPECT_EQ(now->exit_code, 2) << printed("fails");
}

// A program with train_main() joins the job as `lockstep train` does.
TEST_F(OnSlurm, ProgramsOfUsersTrainInSeveralProcesses) {
  const std::string program = LOCKSTEP_BINARY_DIR "/examples/my_task";
  if (!FileSystem::real().exists(program)) GTEST_SKIP() << "built without examples";
  const Words flags = {"--points", "2000", "--batch-size", "100", "--steps", "30"};
  const std::string id = submit("task", {"--nodes", "2", "--time", "60", "--requeue"},
                                Words{program} + flags + Words{"--checkpoint-dir", checkpoints("task")});
  EXPECT_EQ(end_of(id), "COMPLETED") << printed("task");
  expect_contains(printed("task"), "training   30 steps");
  expect_contains(printed("task"), "wave test loss 0.");
  const RunningProgram::Result launched = RunningProgram(Words{program_path(), "launch", "-n", "2", "--", program} +
                                                         flags + Words{"--checkpoint-dir", checkpoints("launched")})
                                              .wait();
  ASSERT_EQ(launched.exit_code, 0) << launched.err;
  const Checkpoint a = load_checkpoint(checkpoint_path(checkpoints("task"), 30)),
                   b = load_checkpoint(checkpoint_path(checkpoints("launched"), 30));
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (size_t i = 0; i < a.arrays.size(); ++i)
    EXPECT_EQ(a.arrays[i].second.to_vector<float>(), b.arrays[i].second.to_vector<float>()) << a.arrays[i].first;
}

class TrainingOnSlurm : public OnSlurm {
 protected:
  const Words kLayout = {"--nodes", "2", "--cpus-per-task", "4", "--time", "60", "--requeue"};

  std::string submit_training(const std::string& name, const Words& flags = {}) {
    return submit(name, kLayout + flags, train_command(name, kSteps));
  }

  // Waits until training has resumed `restart` times and has made some steps since.
  bool makes_steps(const std::string& name, int restart) {
    return comes_true([&] { return trains(printed(name), restart); }, std::chrono::minutes(2));
  }
};

// Three causes of a requeue. Preemption with grace time sends SIGTERM to the tasks, but not to the script. The signal
// before the time limit is the same as this SIGUSR1. `scontrol requeue` ends tasks and script.
TEST_F(TrainingOnSlurm, RequeuedTrainingReachesTheSameWeights) {
  const std::string id = submit_training("run", {"--partition", "graceful"});
  ASSERT_TRUE(makes_steps("run", 0)) << printed("run");
  std::string urgent;
  {
    const PausedTraining run(checkpoints("run"));  // Slurm continues (SIGCONT) the processes it terminates
    urgent = submit_words({"--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true"});
    ASSERT_TRUE(restarts_soon(id, 1)) << printed("run");
  }
  EXPECT_EQ(end_of(urgent), "COMPLETED");
  expect_contains(printed("run"), "lockstep: stopped by ");
  expect_contains(printed("run"), "lockstep: exit code 143; requeueing the job (restart 1)");

  ASSERT_TRUE(makes_steps("run", 1)) << printed("run");
  {
    const PausedTraining run(checkpoints("run"));
    EXPECT_EQ(run_program({"scancel", "--signal=USR1", id}).code, 0);
  }
  ASSERT_TRUE(restarts_soon(id, 2)) << printed("run");
  expect_contains(printed("run"), "lockstep: exit code 75; requeueing the job (restart 2)");

  ASSERT_TRUE(makes_steps("run", 2)) << printed("run");
  {
    const PausedTraining run(checkpoints("run"));
    EXPECT_EQ(run_program({"scontrol", "requeue", id}).code, 0);
  }
  ASSERT_TRUE(restarts_soon(id, 3)) << printed("run");

  EXPECT_EQ(end_of(id), "COMPLETED") << printed("run");
  expect_same_weights(checkpoints("run"), undisturbed());
}

TEST_F(TrainingOnSlurm, CancelledTrainingSavesACheckpointAndIsNotRequeued) {
  const std::string id = submit_training("run");
  ASSERT_TRUE(makes_steps("run", 0)) << printed("run");
  EXPECT_EQ(run_program({"scancel", id}).code, 0);
  EXPECT_EQ(end_of(id), "CANCELLED");
  EXPECT_EQ(info(id)->restarts, 0);
  EXPECT_FALSE(list_checkpoints(checkpoints("run")).empty()) << printed("run");
}

// A node and all its processes are killed. Slurm would detect that after SlurmdTimeout; unless long tests run, the test
// sets the node DOWN, as a monitoring system would.
TEST_F(TrainingOnSlurm, LostNodeRequeuesOrFailsTheJobAsRequested) {
  const std::string once = submit("once", {"--nodes", "2", "--cpus-per-task", "4"}, train_command("once", 1'000'000));
  const bool first = makes_steps("once", 0);
  const std::string again = submit_training("again");
  const bool both = first && makes_steps("again", 0);
  {
    const PausedTraining run(checkpoints("again"));  // `once` keeps running and names the lost process
    SlurmCluster::instance().command("kill 127.0.0.2");
    ASSERT_TRUE(both) << printed("again") << printed("once");
    if (!long_tests()) {
      EXPECT_EQ(run_program({"scontrol", "update", "NodeName=127.0.0.2", "State=DOWN", "Reason=test"}).code, 0);
    }
    EXPECT_EQ(end_of(once), "NODE_FAIL");
    EXPECT_TRUE(slurm_eventually([&] { return info(again)->restarts == 1; }));
  }
  SlurmCluster::instance().command("start 127.0.0.2");
  EXPECT_TRUE(restarts_soon(again, 1)) << printed("again");
  EXPECT_EQ(end_of(again), "COMPLETED") << printed("again");
  expect_contains(printed("once"), "process 1 (host ");  // reported by the other process
  expect_same_weights(checkpoints("again"), undisturbed());
}

// Slurm checks time limits every 30 s.
TEST_F(TrainingOnSlurm, TimeLimitSendsTheSignalAndTheJobIsRequeued) {
  if (!long_tests()) GTEST_SKIP() << "takes two minutes; ./dev test --long runs it";
  const int steps = 20'000;
  const std::string id =
      submit("run", {"--nodes", "2", "--cpus-per-task", "4", "--time", "1", "--signal-seconds", "40", "--requeue"},
             train_command("run", steps));
  ASSERT_TRUE(restarts_soon(id, 1)) << printed("run");
  expect_contains(printed("run"), "lockstep: stopped by ");
  ASSERT_TRUE(makes_steps("run", 1)) << printed("run");
}

}  // namespace
}  // namespace lockstep

#endif
