#include "cluster/gpus.h"

#include <gtest/gtest.h>

#include "cluster/data_plane.h"
#include "lockstep/error.h"

namespace lockstep::detail {
namespace {

using Ids = std::vector<int>;

template <class F>
std::string gpu_error_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Gpus, VisibleDevicesVariableLimitsTheCount) {
  const auto visible = [](const std::string& text) { return visible_gpus({{"CUDA_VISIBLE_DEVICES", text}}, 4); };
  EXPECT_EQ(visible_gpus({}, 4), 4);
  EXPECT_EQ(visible("0,1"), 2);
  EXPECT_EQ(visible("3"), 1);
  EXPECT_EQ(visible(""), 0);
  EXPECT_EQ(visible("-1"), 0);
  EXPECT_EQ(visible("NoDevFiles"), 0);
  EXPECT_EQ(visible("2,1,4,0"), 2);
  EXPECT_EQ(visible("1,1,0"), 1);
  EXPECT_EQ(visible("GPU-8f4a,GPU-11aa"), 2);
  EXPECT_EQ(visible("MIG-8f4a"), 1);
  EXPECT_EQ(visible_gpus({{"CUDA_VISIBLE_DEVICES", "GPU-8f4a"}}, 0), 0);
}

TEST(Gpus, SlurmVariablesDecideWhetherTheyAreShared) {
  EXPECT_TRUE(gpus_are_shared(Environment{}, 4));
  EXPECT_TRUE(gpus_are_shared(Environment{{"SLURM_GPUS_ON_NODE", "4"}}, 4));
  EXPECT_FALSE(gpus_are_shared(Environment{{"SLURM_GPUS_ON_NODE", "4"}}, 1));
  EXPECT_FALSE(gpus_are_shared(Environment{{"SLURM_GPUS_PER_TASK", "1"}}, 1));
  EXPECT_EQ(gpu_error_of([] {
              gpus_are_shared(Environment{{"SLURM_GPUS_ON_NODE", "x"}}, 1);
            }),
            "initialize: SLURM_GPUS_ON_NODE is \"x\"; set it to an integer of at least 0, or unset it");
}

TEST(Gpus, UuidsDecideWhetherTheyAreShared) {
  EXPECT_TRUE(gpus_are_shared({{"a", "b"}, {"a", "b"}}));
  EXPECT_TRUE(gpus_are_shared({{"a"}}));
  EXPECT_TRUE(gpus_are_shared(std::vector<std::vector<std::string>>{{}, {}}));
  EXPECT_FALSE(gpus_are_shared({{"a"}, {"b"}}));
  EXPECT_FALSE(gpus_are_shared({{"a", "b"}, {"c"}}));
  EXPECT_EQ(gpu_error_of([] {
              gpus_are_shared({{"a", "b"}, {"b", "c"}, {"c"}});
            }),
            "initialize: the processes of this host see 2, 2 and 1 GPUs (3 different ones), which partly overlap; "
            "let each process see all of them, or only its own (CUDA_VISIBLE_DEVICES), or give local_device_ids");
}

TEST(Gpus, SingleProcessOfAHostUsesAll) { EXPECT_EQ(choose_gpus({.visible = 4}), (Ids{0, 1, 2, 3})); }

TEST(Gpus, ProcessesThatSeeAllDivideThem) {
  EXPECT_EQ(choose_gpus({.visible = 4, .local_id = 0, .local_count = 4}), (Ids{0}));
  EXPECT_EQ(choose_gpus({.visible = 4, .local_id = 3, .local_count = 4}), (Ids{3}));
  EXPECT_EQ(choose_gpus({.visible = 4, .local_id = 1, .local_count = 2}), (Ids{2, 3}));
  Ids all;
  for (int id = 0; id < 3; ++id)
    for (const int gpu : choose_gpus({.visible = 8, .local_id = id, .local_count = 3})) all.push_back(gpu);
  EXPECT_EQ(all, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Gpus, ProcessThatSeesOnlyItsOwnUsesThem) {
  EXPECT_EQ(choose_gpus({.visible = 1, .local_id = 3, .local_count = 4, .shared = false}), (Ids{0}));
  EXPECT_EQ(choose_gpus({.visible = 2, .local_id = 1, .local_count = 2, .shared = false}), (Ids{0, 1}));
}

TEST(Gpus, NoVisibleGpusGiveNone) { EXPECT_EQ(choose_gpus({.local_id = 1, .local_count = 2}), Ids()); }

TEST(Gpus, RequestedOnesAreUsed) {
  EXPECT_EQ(choose_gpus({.visible = 4, .local_id = 1, .local_count = 2, .requested = {3, 0}}), (Ids{3, 0}));
  EXPECT_EQ(gpu_error_of([] {
              choose_gpus({.visible = 2, .requested = {0, 2}});
            }),
            "initialize: local_device_ids contains 2, but this process sees 2 GPUs; ids start at 0");
}

TEST(Gpus, MoreProcessesThanGpusAreRefused) {
  EXPECT_EQ(gpu_error_of([] { choose_gpus({.visible = 2, .local_id = 0, .local_count = 3}); }),
            "initialize: 3 processes on this host share 2 GPUs; start at most one process per GPU");
}

TEST(Gpus, MoreProcessesThanGpusShareThemInTests) {
  EXPECT_EQ(choose_shared_gpus({.visible = 2, .local_id = 0, .local_count = 3}), Ids{0});
  EXPECT_EQ(choose_shared_gpus({.visible = 2, .local_id = 2, .local_count = 3}), Ids{0});
  EXPECT_EQ(choose_shared_gpus({.visible = 1, .local_id = 1, .local_count = 2}), Ids{0});
  EXPECT_EQ(choose_shared_gpus({.visible = 4, .local_id = 1, .local_count = 2}), (Ids{2, 3}));
  EXPECT_EQ(choose_shared_gpus({.visible = 1, .local_id = 1, .local_count = 2, .shared = false}), Ids{0});
}

TEST(Gpus, LocalRankCountsProcessesOfTheHost) {
  std::vector<ProcessFacts> facts(4);
  for (size_t p = 0; p < facts.size(); ++p) facts[p].host = p == 1 ? "b" : "a";
  EXPECT_EQ(local_rank(facts, 0).id, 0);
  EXPECT_EQ(local_rank(facts, 0).count, 3);
  EXPECT_EQ(local_rank(facts, 3).id, 2);
  EXPECT_EQ(local_rank(facts, 1).id, 0);
  EXPECT_EQ(local_rank(facts, 1).count, 1);
}

TEST(Gpus, ProcessFactsRoundTrip) {
  const ProcessFacts facts{"a/b", "10.0.0.1", 4, 8, "cuda", "0-3,8", true};
  EXPECT_EQ(process_facts_from(to_text(facts)), facts);
}

}  // namespace
}  // namespace lockstep::detail
