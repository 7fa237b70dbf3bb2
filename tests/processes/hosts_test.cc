// Jobs on several hosts. Most tests simulate hosts on this machine; some use network namespaces.
#include "processes/cable.h"
#include "processes/job.h"

namespace lockstep {
namespace {

[[maybe_unused]] void expect_hosts_train_like_one(const std::vector<Words>& before) {
  const TempDir dir;
  Job(before, train_words(dir.path())).expect_success();
  expect_trained_like_one(dir.path());
}

#if defined(LOCKSTEP_WITH_GRPC)

TEST(Hosts, TwoOfTwoProcessesTrainLikeOne) {
  expect_hosts_train_like_one({on_host("a"), on_host("a"), on_host("b"), on_host("b")});
}

TEST(Hosts, RanksOfAHostNeedNotBeConsecutive) {
  expect_hosts_train_like_one({on_host("a"), on_host("b"), on_host("a"), on_host("b")});
}

TEST(Hosts, MayHaveDifferentNumbersOfProcesses) {
  expect_hosts_train_like_one({on_host("a"), on_host("b"), on_host("b"), on_host("b")});
}

TEST(Hosts, OneProcessOfTwoLanesEachTrainsLikeOne) {
  expect_hosts_train_like_one({on_host("a", {"LOCKSTEP_CPU_LANES=2"}), on_host("b", {"LOCKSTEP_CPU_LANES=2"})});
}

TEST(Hosts, SignedAndPlainDataTrainsLikeOne) {
  for (const char* const security : {"signed", "plain"}) {
    const Words variables = {std::string("LOCKSTEP_DATA_SECURITY=") + security};
    expect_hosts_train_like_one({on_host("a", variables), on_host("b", variables)});
  }
}

TEST(Hosts, OneLaneEachTrainsLikeOne) { expect_hosts_train_like_one({on_host("a"), on_host("b")}); }

TEST(Hosts, TcpBetweenAllLanesTrainsLikeOne) {
  const Words tcp = {"LOCKSTEP_COLLECTIVES=tcp"};
  expect_hosts_train_like_one({on_host("a", tcp), on_host("a", tcp), on_host("b", tcp), on_host("b", tcp)});
}

#endif

#ifdef LOCKSTEP_WITH_GRPC

void expect_all_refuse(const std::vector<Words>& before, const std::string& message) {
  for (const auto& result : Job(before, {program_path(), "allreduce"}).wait()) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
}

TEST(Hosts, DoNotShareMemory) {
  const Words shared = {"LOCKSTEP_COLLECTIVES=shared"};
  expect_all_refuse({on_host("a", shared), on_host("b", shared)},
                    "initialize: collectives is shared, but the processes run on 2 hosts; use auto, tcp or "
                    "mpi");
}

// Containers that share the network and /dev/shm, but not what shared memory needs.
TEST(Processes, InDifferentNamespacesUseTcp) {
  for (const Words& apart : {Words{"unshare", "--user", "--map-root-user"},
                             Words{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"}}) {
    SCOPED_TRACE(apart.back());
    if (RunningProgram(apart + Words{"true"}).wait().exit_code != 0)
      GTEST_SKIP() << "no permission to create user namespaces";
    const TempDir dir;
    bool reported = false;
    for (const auto& result : Job({apart, apart}, train_words(dir.path())).wait()) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      const size_t at =
          result.err.find("processes on one host use TCP instead of shared memory, which is slower: process 1");
      reported = reported || (at != std::string::npos &&
                              result.err.find("in one container, or use --collectives tcp", at) != std::string::npos);
    }
    EXPECT_TRUE(reported);
    expect_trained_like_one(dir.path());
  }
}

TEST(Processes, MustHaveTheSameNumberOfLanes) {
  expect_all_refuse({with({"LOCKSTEP_CPU_LANES=2"}), with({"LOCKSTEP_CPU_LANES=1"})},
                    "initialize: process 0 has 2 lanes and process 1 has 1 lane; give all processes the same "
                    "LOCKSTEP_CPU_LANES");
}

TEST(Processes, MustHaveTheSameDataSecurity) {
  expect_all_refuse({on_host("a", {"LOCKSTEP_DATA_SECURITY=plain"}), on_host("b")},
                    "initialize: process 0 has data_security plain and process 1 has auto; give all processes the same "
                    "--data-security (LOCKSTEP_DATA_SECURITY)");
}

TEST(Processes, UseMpiOnlyWhereItStartedThem) {
  const Words mpi = {"LOCKSTEP_COLLECTIVES=mpi"};
  expect_all_refuse({with(mpi), with(mpi)},
                    "initialize: collectives is mpi, but MPI did not start the processes; start them with mpirun or "
                    "srun --mpi=pmix, or use auto, shared or tcp");
}

TEST(Processes, ReportAMissingInterface) {
  const Words interface = {"LOCKSTEP_INTERFACE=nothing9"};
  expect_all_refuse({with(interface), with(interface)},
                    "initialize: no network interface matches \"nothing9\"; available: ");
}

#endif

#if defined(LOCKSTEP_WITH_GRPC)

class CableJob : public Cable {
 protected:
  // Two processes on each host.
  void expect_trains_like_one(const Words& variables) const {
    std::vector<Words> before;
    for (const char* const host : {"a", "a", "b", "b"}) before.push_back(on(host) + variables);
    const TempDir dir;
    Job(before, train_words(dir.path()), kCoordinator).expect_success();
    expect_trained_like_one(dir.path());
  }
};

TEST_F(CableJob, UsesMemoryOnHostsAndTcpBetweenThem) { expect_trains_like_one({}); }

TEST_F(CableJob, UsesTcpBetweenAllIfRequested) { expect_trains_like_one({"LOCKSTEP_COLLECTIVES=tcp"}); }

TEST_F(CableJob, UsesTheRequestedInterface) { expect_trains_like_one({"LOCKSTEP_INTERFACE=cab*"}); }

#endif

}  // namespace
}  // namespace lockstep
