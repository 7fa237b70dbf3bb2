// The network between two hosts fails during training: the link goes down, or packets are dropped silently.
#include "processes/cable.h"
#include "processes/processes.h"

#if defined(LOCKSTEP_WITH_GRPC)

namespace lockstep {
namespace {

const Words kCutRun = {"--steps", "100", "--log-every", "1", "--checkpoint-every", "10", "--checkpoint-dir"};

class Cut : public Cable {
 protected:
  // The first half of the processes run on host a, the others on host b.
  Processes::Options job(int count, const std::string& run, const Words& variables = {}) const {
    return {.variables = variables,
            .command = train_words(kCutRun + Words{run}),
            .before = [this, count](int p) { return on(p < count / 2 ? "a" : "b"); },
            .coordinator = kCoordinator};
  }

  // All processes exit within the heartbeat timeout and name a process of the other side. After the
  // network is restored, the restarted job ends with the same result.
  void expect_noticed(int count, int step, const std::string& cut, const std::string& restore) {
    SCOPED_TRACE(fmt::format("{} processes at step {}: {}", count, step, cut));
    const std::string dir = fmt::format("{}/run_{}", dir_.path(), runs_++);
    {
      Processes all(count, job(count, dir, {"LOCKSTEP_HEARTBEAT_TIMEOUT=3", "LOCKSTEP_COLLECTIVE_TIMEOUT=50"}));
      ASSERT_TRUE(all.reach(step)) << all.wait(0).err;
      ASSERT_TRUE(comes_true([&] { return !list_checkpoints(dir).empty() || all.ended(0); }));
      const auto done = run(cut);
      ASSERT_EQ(done.exit_code, 0) << done.err;
      for (int p = 0; p < count; ++p) {
        SCOPED_TRACE(p);
        const RunningProgram::Result result = all.wait(p);
        EXPECT_EQ(result.exit_code, 75) << result.err;
        const std::string words = last_words(result);
        EXPECT_EQ(named_in(words) < count / 2, p >= count / 2) << result.err;
        expect_contains(words, ", pid ");
        expect_contains(words, p < count / 2 ? ": lost: no heartbeat for 3 s" : ": lost: no answer for 3 s");
        expect_contains(words, fmt::format("; process {} was in step ", p));
        expect_lacks(words, "did not exit within the grace period");
      }
      EXPECT_EQ(all.flight_count(), static_cast<size_t>(count));
    }
    ASSERT_EQ(run(restore).exit_code, 0);
    Processes again(count, job(count, dir));
    for (int p = 0; p < count; ++p) {
      const RunningProgram::Result result = again.wait(p, std::chrono::minutes(5));
      EXPECT_EQ(result.exit_code, 0) << result.err;
      if (p == 0) expect_contains(result.err, "lockstep: resuming from step ");
    }
    expect_same_result(dir, undisturbed(count));
  }

  // The checkpoints of a job without a fault. They are the same in all tests.
  const std::string& undisturbed(int count) {
    static const TempDir dir;
    static std::map<int, std::string> known;
    const auto [at, missing] = known.try_emplace(count, fmt::format("{}/{}", dir.path(), count));
    if (missing) {
      Processes all(count, job(count, at->second));
      for (int p = 0; p < count; ++p) EXPECT_EQ(all.wait(p, std::chrono::minutes(5)).exit_code, 0);
    }
    return at->second;
  }

  const TempDir dir_;
  std::mt19937 random_{5};
  int runs_ = 0;
};

TEST_F(Cut, LinkDownIsNoticedByBothSides) {
  for (int round = 0; round < fault_rounds(); ++round) {
    const std::string side = round % 2 == 0 ? "a" : "b";
    expect_noticed(round % 2 == 0 ? 2 : 4, std::uniform_int_distribution<int>(15, 60)(random_),
                   "ip -n $0" + side + " link set cable down", "ip -n $0" + side + " link set cable up");
  }
}

// Both ends stay up, but no packet arrives.
TEST_F(Cut, DroppedPacketsAreNoticedByBothSides) {
  const std::string cut =
      "for n in a b; do ip netns exec $0$n tc qdisc replace dev cable root blackhole || exit 1; done";
  const std::string restore = "for n in a b; do ip netns exec $0$n tc qdisc del dev cable root || exit 1; done";
  if (const auto tried = run(cut + "; " + restore); tried.exit_code != 0)
    GTEST_SKIP() << "this kernel drops no packets by `tc` (CONFIG_NET_SCHED): " << tried.err;
  for (int round = 0; round < fault_rounds(1); ++round)
    expect_noticed(round % 2 == 0 ? 4 : 2, std::uniform_int_distribution<int>(15, 60)(random_), cut, restore);
}

// Only one direction fails. The side that still receives packets notices it as well.
TEST_F(Cut, OneWayNetworkIsNoticedByBothSides) {
  const std::string cut = "ip netns exec $0b tc qdisc replace dev cable root blackhole";
  const std::string restore = "ip netns exec $0b tc qdisc del dev cable root";
  if (const auto tried = run(cut + "; " + restore); tried.exit_code != 0)
    GTEST_SKIP() << "this kernel drops no packets by `tc` (CONFIG_NET_SCHED): " << tried.err;
  for (int round = 0; round < fault_rounds(1); ++round)
    expect_noticed(2, std::uniform_int_distribution<int>(15, 60)(random_), cut, restore);
}

}  // namespace
}  // namespace lockstep

#endif
