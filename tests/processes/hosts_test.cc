// Processes on several hosts. Most are on this one and take each other for strangers; some have a network of their own.
#include "processes/job.h"

namespace lockstep {
namespace {

[[maybe_unused]] void expect_hosts_train_like_one(const std::vector<Words>& before) {
  const TempDir dir;
  Job(before, train_words(dir.path())).expect_success();
  expect_trained_like_one(dir.path());
}

#if defined(LOCKSTEP_WITH_GRPC) && defined(LOCKSTEP_WITH_GLOO)

TEST(Hosts, TwoOfTwoProcessesTrainLikeOne) {
  expect_hosts_train_like_one({on_host("a"), on_host("a"), on_host("b"), on_host("b")});
}

TEST(Hosts, ProcessesOfAHostNeedNotFollowEachOther) {
  expect_hosts_train_like_one({on_host("a"), on_host("b"), on_host("a"), on_host("b")});
}

TEST(Hosts, MayHaveDifferentNumbersOfProcesses) {
  expect_hosts_train_like_one({on_host("a"), on_host("b"), on_host("b"), on_host("b")});
}

TEST(Hosts, OneProcessOfTwoLanesEachTrainsLikeOne) {
  expect_hosts_train_like_one({on_host("a", {"LOCKSTEP_CPU_LANES=2"}), on_host("b", {"LOCKSTEP_CPU_LANES=2"})});
}

TEST(Hosts, OneLaneEachTrainsLikeOne) { expect_hosts_train_like_one({on_host("a"), on_host("b")}); }

TEST(Hosts, GlooBetweenAllLanesTrainsLikeOne) {
  const Words gloo = {"LOCKSTEP_COLLECTIVES=gloo"};
  expect_hosts_train_like_one({on_host("a", gloo), on_host("a", gloo), on_host("b", gloo), on_host("b", gloo)});
}

#endif

#ifdef LOCKSTEP_WITH_GRPC

void expect_all_refuse(const std::vector<Words>& before, const std::string& message) {
  for (const auto& result : Job(before, {program_path(), "allreduce"}).wait()) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
}

TEST(Hosts, ShareNoMemory) {
  const Words shared = {"LOCKSTEP_COLLECTIVES=shared"};
  expect_all_refuse({on_host("a", shared), on_host("b", shared)},
                    "initialize: collectives through shared memory need all processes on one host; use auto, gloo or "
                    "mpi");
}

TEST(Processes, MustHaveTheSameNumberOfLanes) {
  expect_all_refuse({with({"LOCKSTEP_CPU_LANES=2"}), with({"LOCKSTEP_CPU_LANES=1"})},
                    "initialize: process 0 has 2 lanes and process 1 has 1 lane; give all of them the same "
                    "LOCKSTEP_CPU_LANES");
}

TEST(Processes, UseMpiOnlyWhereItStartedThem) {
  const Words mpi = {"LOCKSTEP_COLLECTIVES=mpi"};
  expect_all_refuse({with(mpi), with(mpi)},
                    "initialize: collectives over MPI need processes that MPI has started; start them with mpirun or "
                    "srun --mpi=pmix, or use auto, shared or gloo");
}

TEST(Processes, AreToldOfAnInterfaceThatIsNotThere) {
  const Words interface = {"LOCKSTEP_INTERFACE=nothing9"};
  expect_all_refuse({with(interface), with(interface)},
                    "initialize: no network interface is meant by \"nothing9\"; there are ");
}

#endif

#if defined(LOCKSTEP_WITH_GRPC) && defined(LOCKSTEP_WITH_GLOO)

// Two hosts as the kernel can pretend them: each has a network of its own, and a cable lies between them.
class Cable : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || !has_program("ip")) GTEST_SKIP() << "needs root and the package iproute2";
    const std::string script =
        "set -e; ip netns add $0a; ip netns add $0b; ip -n $0a link add cable type veth peer "
        "name cable netns $0b; ip -n $0a addr add 10.99.7.1/24 dev cable; ip -n $0b addr add "
        "10.99.7.2/24 dev cable; for n in a b; do ip -n $0$n link set lo up; ip -n $0$n link "
        "set cable up; done";
    made_ = true;
    const auto result = RunningProgram({"/bin/sh", "-c", script, name_}).wait();
    if (result.exit_code != 0) GTEST_SKIP() << "no namespaces can be made here: " << result.err;
  }
  void TearDown() override {
    if (made_) RunningProgram({"/bin/sh", "-c", "ip netns del $0a; ip netns del $0b", name_}).wait();
  }

  // Two processes on each.
  void expect_trains_like_one(const Words& variables) const {
    std::vector<Words> before;
    for (const char* const host : {"a", "a", "b", "b"})
      before.push_back(Words{"ip", "netns", "exec", name_ + host} + on_host(host, variables));
    const TempDir dir;
    Job(before, train_words(dir.path()), "10.99.7.1:7711").expect_success();
    expect_trained_like_one(dir.path());
  }

 private:
  const std::string name_ = "lockstep" + std::to_string(::getpid());
  bool made_ = false;
};

TEST_F(Cable, MemoryOnHostsAndGlooBetweenThem) { expect_trains_like_one({}); }

TEST_F(Cable, GlooBetweenAll) { expect_trains_like_one({"LOCKSTEP_COLLECTIVES=gloo"}); }

TEST_F(Cable, TheInterfaceIsTheOneAskedFor) { expect_trains_like_one({"LOCKSTEP_INTERFACE=cab*"}); }

#endif

}  // namespace
}  // namespace lockstep
