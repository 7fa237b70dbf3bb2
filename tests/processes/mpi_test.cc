// Jobs that mpirun starts, without a coordinator.
#include "processes/job.h"

namespace lockstep {
namespace {

#ifdef LOCKSTEP_WITH_MPI

class Mpirun : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_program("mpirun")) GTEST_SKIP() << "there is no mpirun; install openmpi-bin";
  }

  // Allows root, more ranks than cores, and runs on this host only.
  static Words mpirun(const Words& arguments) {
    return Words{"timeout",
                 "60",
                 "env",
                 "OMPI_ALLOW_RUN_AS_ROOT=1",
                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                 "OMPI_MCA_rmaps_base_oversubscribe=1",
                 "OMPI_MCA_btl_vader_single_copy_mechanism=none",
                 "OMPI_MCA_mpi_yield_when_idle=1",
                 "mpirun"} +
           arguments;
  }

  // On one host, or on two simulated hosts.
  static void expect_trains_like_one(int processes, const Words& variables = {}, bool two_hosts = false) {
    const TempDir dir;
    const Words each = with(variables) + train_words(dir.path());
    const std::string n = std::to_string(processes / (two_hosts ? 2 : 1));
    const Words words = two_hosts ? Words{"-n", n} + on_host("a") + each + Words{":", "-n", n} + on_host("b") + each
                                  : Words{"-n", n} + each;
    const auto result = RunningProgram(mpirun(words)).wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    expect_trained_like_one(dir.path());
  }
};

TEST_F(Mpirun, TwoProcessesTrainLikeOne) { expect_trains_like_one(2); }
TEST_F(Mpirun, FourProcessesTrainLikeOne) { expect_trains_like_one(4); }
TEST_F(Mpirun, MpiBetweenAllTrainsLikeOne) { expect_trains_like_one(4, {"LOCKSTEP_COLLECTIVES=mpi"}); }
TEST_F(Mpirun, MpiBetweenProcessesOfTwoLanesTrainsLikeOne) {
  expect_trains_like_one(2, {"LOCKSTEP_COLLECTIVES=mpi", "LOCKSTEP_CPU_LANES=2"});
}
TEST_F(Mpirun, MpiBetweenHostsTrainsLikeOne) { expect_trains_like_one(4, {}, true); }
TEST_F(Mpirun, MpiBetweenHostsOfOneProcessTrainsLikeOne) { expect_trains_like_one(2, {}, true); }

// Returns the output of a job on two simulated hosts.
RunningProgram::Result train_on_two_hosts(const Words& prefix, const Words& variables, bool quiet) {
  const TempDir dir;
  Words each = train_words(dir.path());
  if (!quiet) std::erase(each, "--quiet");
  each = with(variables) + each;
  return RunningProgram(prefix + Words{"-n", "1"} + on_host("a") + each + Words{":", "-n", "1"} + on_host("b") + each)
      .wait();
}

TEST_F(Mpirun, NoteSaysThatDataBetweenHostsIsNotProtected) {
  const std::string note =
      "note: MPI carries data between hosts, neither encrypted nor signed; use --collectives tcp to encrypt it, or "
      "--data-security plain if you trust the network\n";
  struct Row {
    Words variables;
    bool quiet, noted;
  };
  for (const Row& row :
       {Row{{}, false, true}, Row{{}, true, false}, Row{{"LOCKSTEP_DATA_SECURITY=plain"}, false, false}}) {
    const auto result = train_on_two_hosts(mpirun({}), row.variables, row.quiet);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const size_t first = result.err.find(note);
    EXPECT_EQ(first != std::string::npos, row.noted) << result.err;
    if (row.noted) {
      EXPECT_EQ(result.err.find(note, first + 1), std::string::npos) << result.err;
    }
  }
}

TEST_F(Mpirun, DataThatMustBeEncryptedIsRefused) {
  const auto result = train_on_two_hosts(mpirun({}), {"LOCKSTEP_DATA_SECURITY=encrypted"}, true);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(
      result.err.find("initialize: data_security is encrypted, but MPI carries data between hosts, which Lockstep "
                      "can neither encrypt nor sign; use --collectives tcp, or --data-security plain"),
      std::string::npos)
      << result.err;
}

TEST_F(Mpirun, AllReducesOverAllProcesses) {
  const auto result = RunningProgram(mpirun({"-n", "3", program_path(), "allreduce"})).wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* const line : {"Process 0 has y=[3.]", "Process 1 has y=[3.]", "Process 2 has y=[3.]"})
    EXPECT_NE(result.out.find(line), std::string::npos) << result.out;
}

TEST_F(Mpirun, FailedProcessEndsTheOthersWithItsCause) {
  // Either process 0 or process 1 has no data. The other one is notified and does not wait for it.
  const TempDir dir;
  const Words fine = train_words(dir.path() + "/logs");
  Words wrong = fine;
  wrong[5] = "/nonexistent/images,/nonexistent/labels";
  for (const int failing : {0, 1}) {
    const auto result =
        RunningProgram(mpirun(Words{"-n", "1", "-wdir", dir.path()} + (failing == 0 ? wrong : fine) +
                              Words{":", "-n", "1", "-wdir", dir.path()} + (failing == 1 ? wrong : fine)))
            .wait();
    EXPECT_GT(result.exit_code, 0);
    EXPECT_LT(result.exit_code, 124) << "it took a minute, or a signal ended it: " << result.err;
    const std::string cause = "process " + std::to_string(failing) + " (host ";  // in the message of the other process
    EXPECT_NE(result.err.find(cause), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("open /nonexistent/images: No such file"), std::string::npos) << result.err;
  }
}

TEST_F(Mpirun, VariablesOfAnotherMpirunAreAnError) {
  const auto result =
      RunningProgram(Words{"timeout", "60", "env", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0",
                           "OMPI_COMM_WORLD_LOCAL_RANK=0", "PRTE_LAUNCHED=1", program_path(), "allreduce"})
          .wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("initialize: the launcher reports process 0 of 2, but MPI reports rank 0 of 1; start the "
                            "program with the mpirun of "),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find(" (under Slurm, srun --mpi=pmix), or set LOCKSTEP_COORDINATOR and use "
                            "LOCKSTEP_COLLECTIVES=tcp"),
            std::string::npos)
      << result.err;
}

#else

TEST(Mpirun, JobsAreRejectedWithoutMpi) {
  const auto result =
      RunningProgram(Words{"timeout", "60", "env", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0",
                           "OMPI_COMM_WORLD_LOCAL_RANK=0", "PRTE_LAUNCHED=1", program_path(), "allreduce"})
          .wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("mpi: liblockstep_mpi.so was not found (searched: "), std::string::npos) << result.err;
}

#endif

}  // namespace
}  // namespace lockstep
