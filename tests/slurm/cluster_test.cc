// Jobs on a real Slurm of two nodes: the layouts of a cluster's guide, preemption, warnings, lost nodes.
#include "slurm/cluster.h"

#include <algorithm>

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

bool long_tests() {
  const char* const text = std::getenv("LOCKSTEP_LONG_TESTS");
  return text && std::string(text) == "1";
}

// The lines of the processes; those of the script and of scontrol are left out.
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

// With GPUs that Slurm only counts: virtual devices of the CPU stand for those of a process.
TEST_F(OnSlurm, TheFourLayoutsOfTheGuideFindEachOther) {
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

TEST_F(OnSlurm, MpiCarriesTheDataWhereSrunOffersIt) {
#ifndef LOCKSTEP_WITH_MPI
  GTEST_SKIP() << "built without MPI";
#endif
  const ProgramResult kinds = run_program({"srun", "--mpi=list"});
  if (!contains(kinds.out + kinds.err, "pmix")) GTEST_SKIP() << "this Slurm has no PMIx";
  // On one node: two daemons of one machine do not get along in PMIx.
  const std::string id =
      submit("mpi", {"--tasks-per-node", "2", "--mpi", "pmix", "--env", "LOCKSTEP_COLLECTIVES=mpi"}, {"allreduce"});
  EXPECT_EQ(end_of(id), "COMPLETED");
  EXPECT_EQ(lines_with(printed("mpi"), {"Process"}),
            (std::vector<std::string>{"Process 0 has y=[2.]", "Process 1 has y=[2.]"}))
      << printed("mpi");
}

TEST_F(OnSlurm, AFailingProcessFailsTheJobWithItsCode) {
  const std::string id =
      submit("fails", {"--tasks-per-node", "2", "--requeue"}, {"train", "--dataset", "no-such-data-set"});
  EXPECT_EQ(end_of(id), "FAILED");  // not again: the same mistake would come again
  const std::optional<SlurmSight> now = sight(id);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->restarts, 0);
  EXPECT_EQ(now->exit_code, 2) << printed("fails");
}

class TrainingOnSlurm : public OnSlurm {
 protected:
  static constexpr int kSteps = 600;
  const Words kLayout = {"--nodes", "2", "--cpus-per-task", "4", "--time", "60", "--requeue"};

  // What a run that nobody disturbs comes to.
  void train_undisturbed() {
    const RunningProgram::Result result =
        RunningProgram(Words{program_path(), "launch", "-n", "2", "--"} + train_command("wanted", kSteps)).wait();
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  std::string submit_training(const std::string& name, const Words& flags = {}) {
    return submit(name, kLayout + flags, train_command(name, kSteps));
  }

  // Waits until training has come as far as some steps beyond where it went on from, in start `restart`.
  bool comes_to_train(const std::string& name, int restart) {
    return comes_true([&] { return trains(printed(name), restart); }, std::chrono::minutes(2));
  }
};

// Three ways for a job to go back into the queue. Preemption with grace sends SIGTERM to the processes and leaves the
// script alone; what Slurm sends before the time is up reaches them in the same way as this SIGUSR1; `requeue` ends
// all.
TEST_F(TrainingOnSlurm, ThatIsPushedBackGoesOnToTheSameWeights) {
  train_undisturbed();
  const std::string id = submit_training("run", {"--partition", "graceful"});
  ASSERT_TRUE(comes_to_train("run", 0)) << printed("run");
  std::string urgent;
  {
    const StandingStill run(checkpoints("run"));  // Slurm wakes whom it asks to end
    urgent = submit_words({"--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true"});
    ASSERT_TRUE(starts_again(id, 1)) << printed("run");
  }
  EXPECT_EQ(end_of(urgent), "COMPLETED");
  expect_contains(printed("run"), "lockstep: stopped by ");
  expect_contains(printed("run"), "lockstep: exit code 143; the job goes back into the queue (restart 1)");

  ASSERT_TRUE(comes_to_train("run", 1)) << printed("run");
  {
    const StandingStill run(checkpoints("run"));
    EXPECT_EQ(run_program({"scancel", "--signal=USR1", id}).code, 0);
  }
  ASSERT_TRUE(starts_again(id, 2)) << printed("run");
  expect_contains(printed("run"), "lockstep: exit code 75; the job goes back into the queue (restart 2)");

  ASSERT_TRUE(comes_to_train("run", 2)) << printed("run");
  {
    const StandingStill run(checkpoints("run"));
    EXPECT_EQ(run_program({"scontrol", "requeue", id}).code, 0);
  }
  ASSERT_TRUE(starts_again(id, 3)) << printed("run");

  EXPECT_EQ(end_of(id), "COMPLETED") << printed("run");
  expect_same_weights(checkpoints("run"), checkpoints("wanted"));
}

TEST_F(TrainingOnSlurm, ThatIsCancelledLeavesACheckpointAndStaysAway) {
  const std::string id = submit_training("run");
  ASSERT_TRUE(comes_to_train("run", 0)) << printed("run");
  EXPECT_EQ(run_program({"scancel", id}).code, 0);
  EXPECT_EQ(end_of(id), "CANCELLED");
  EXPECT_EQ(sight(id)->restarts, 0);
  EXPECT_FALSE(list_checkpoints(checkpoints("run")).empty()) << printed("run");
}

// The node is gone with all it ran. Slurm would see that after its SlurmdTimeout; here, as where something watches the
// nodes, it is told.
TEST_F(TrainingOnSlurm, OnANodeThatIsLostGoesOnOrEndsAsAsked) {
  train_undisturbed();
  const std::string once = submit("once", {"--nodes", "2", "--cpus-per-task", "4"}, train_command("once", 1'000'000));
  const bool first = comes_to_train("once", 0);
  const std::string again = submit_training("again");
  const bool both = first && comes_to_train("again", 0);
  {
    const StandingStill run(checkpoints("again"));  // `once` goes on, and names who was lost
    SlurmCluster::instance().tell("kill 127.0.0.2");
    ASSERT_TRUE(both) << printed("again") << printed("once");
    if (!long_tests()) {
      EXPECT_EQ(run_program({"scontrol", "update", "NodeName=127.0.0.2", "State=DOWN", "Reason=test"}).code, 0);
    }
    EXPECT_EQ(end_of(once), "NODE_FAIL");
    EXPECT_TRUE(slurm_comes_to([&] { return sight(again)->restarts == 1; }));
  }
  SlurmCluster::instance().tell("start 127.0.0.2");
  EXPECT_TRUE(starts_again(again, 1)) << printed("again");
  EXPECT_EQ(end_of(again), "COMPLETED") << printed("again");
  expect_contains(printed("once"), "process 1 (host ");  // the other one has named it
  expect_same_weights(checkpoints("again"), checkpoints("wanted"));
}

// Slurm looks at the clock twice a minute.
TEST_F(TrainingOnSlurm, WhoseTimeIsUpIsWarnedAndGoesOn) {
  if (!long_tests()) GTEST_SKIP() << "takes two minutes; ./dev test --long runs it";
  const int steps = 20'000;
  const std::string id =
      submit("run", {"--nodes", "2", "--cpus-per-task", "4", "--time", "1", "--signal-seconds", "40", "--requeue"},
             train_command("run", steps));
  ASSERT_TRUE(starts_again(id, 1)) << printed("run");
  expect_contains(printed("run"), "lockstep: stopped by ");
  ASSERT_TRUE(comes_to_train("run", 1)) << printed("run");
}

}  // namespace
}  // namespace lockstep

#endif
