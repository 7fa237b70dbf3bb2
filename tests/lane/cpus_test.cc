#include "lane/cpus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "base/file.h"
#include "lane/memory.h"
#include "lane/pool.h"
#include "lockstep/runtime.h"
#include "support/program.h"

namespace lockstep {
namespace {

using Parts = std::vector<std::vector<int>>;

// CPUs that are cores of their own.
std::vector<CpuPlace> cores(const std::vector<int>& cpus) {
  std::vector<CpuPlace> out;
  for (const int cpu : cpus) out.push_back({.core = cpu, .cpu = cpu});
  return out;
}

// Two sockets of two cores with two hardware threads each, numbered as Linux does: siblings are 4 apart.
std::vector<CpuPlace> two_sockets() {
  std::vector<CpuPlace> out;
  for (int cpu = 0; cpu < 8; ++cpu) out.push_back({cpu / 2 % 2, cpu / 2 % 2, cpu % 2, cpu});
  return out;
}

TEST(Cpus, AreSplitIntoEqualParts) {
  EXPECT_EQ(split_cpus(cores({0, 1, 4, 5}), 2), (Parts{{0, 1}, {4, 5}}));
  EXPECT_EQ(split_cpus(cores({0, 1, 2, 3, 4}), 2), (Parts{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(split_cpus(cores({3}), 1), (Parts{{3}}));
  EXPECT_EQ(split_cpus(cores({0, 1}), 3), (Parts{{}, {}, {}}));
}

TEST(Cpus, PartsAreWholeNodesAndCores) {
  EXPECT_EQ(split_cpus(two_sockets(), 1), (Parts{{0, 4, 1, 5, 2, 6, 3, 7}}));
  EXPECT_EQ(split_cpus(two_sockets(), 2), (Parts{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(split_cpus(two_sockets(), 3), (Parts{{0, 4, 1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(split_cpus(two_sockets(), 4), (Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // Fewer cores than parts: siblings part.
  EXPECT_EQ(split_cpus(two_sockets(), 8), (Parts{{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}}));
}

TEST(Cpus, PlacesComeFromSysfs) {
  const TempDir dir;
  const auto write = [&](int cpu, int package, int core, const char* node) {
    const std::string folder = dir.path() + "/cpu" + std::to_string(cpu);
    std::filesystem::create_directories(folder + "/topology");
    std::filesystem::create_directories(folder + "/" + node);
    std::ofstream(folder + "/topology/physical_package_id") << package << "\n";
    std::ofstream(folder + "/topology/core_id") << core << "\n";
  };
  write(0, 0, 5, "node1");
  write(3, 2, 7, "power");
  EXPECT_EQ(cpu_places({0, 3, 9}, dir.path()),
            (std::vector<CpuPlace>{{1, 0, 5, 0}, {0, 2, 7, 3}, {.core = 9, .cpu = 9}}));
  EXPECT_EQ(cpu_places(affinity_cpus()).size(), affinity_cpus().size());
}

TEST(Cpus, ListsHaveRanges) {
  EXPECT_EQ(cpu_list({}), "");
  EXPECT_EQ(cpu_list({2}), "2");
  EXPECT_EQ(cpu_list({0, 1, 2, 5, 8, 9}), "0-2,5,8-9");
}

TEST(Cpus, AShareIsAPartOfThem) {
  EXPECT_EQ(share_cpus(cores({0, 1, 2, 3}), 4, 0, 1), CpuShare());
  EXPECT_EQ(share_cpus(cores({0, 1, 2, 3}), 4, 1, 2), (CpuShare{{2, 3}, 2}));
  EXPECT_EQ(share_cpus(cores({0, 1, 2}), 3, 0, 2), (CpuShare{{0, 1}, 2}));
  EXPECT_EQ(share_cpus(cores({0, 1, 2}), 3, 1, 2), (CpuShare{{2}, 1}));
}

TEST(Cpus, MoreProcessesThanCpusHaveOneThreadAnywhere) {
  for (const int index : {0, 2}) EXPECT_EQ(share_cpus(cores({0, 1}), 2, index, 3), (CpuShare{{}, 1}));
}

TEST(Cpus, AQuotaIsDividedWithoutBinding) {
  EXPECT_EQ(share_cpus(cores({0, 1, 2, 3, 4, 5, 6, 7}), 5, 0, 2), (CpuShare{{}, 3}));
  EXPECT_EQ(share_cpus(cores({0, 1, 2, 3, 4, 5, 6, 7}), 5, 1, 2), (CpuShare{{}, 2}));
  EXPECT_EQ(share_cpus(cores({0, 1, 2, 3, 4, 5, 6, 7}), 1, 1, 2), (CpuShare{{}, 1}));
}

TEST(Cpus, AShareBindsThreadsUntilItEnds) {
  const std::vector<int> all = affinity_cpus();
  ASSERT_FALSE(all.empty());
  EXPECT_FALSE(has_cpu_share());
  {
    const ScopedCpuShare share({{all.back()}, 1});
    EXPECT_TRUE(has_cpu_share());
    EXPECT_EQ(affinity_cpus(), std::vector{all.back()});
    EXPECT_EQ(compute_threads(), 1);
    EXPECT_EQ(Pool().threads(), 1);
    Pool pool({.threads = 3});
    std::mutex mutex;
    std::set<std::vector<int>> bound;
    pool.parallel_for(30, [&](int64_t, int) {
      const std::lock_guard lock(mutex);
      bound.insert(affinity_cpus());
    });
    EXPECT_EQ(bound, (std::set<std::vector<int>>{{all.back()}}));
    EXPECT_GE(unbound_cpus(), available_cpus());
    EXPECT_EQ(affinity_cpus(), std::vector{all.back()});
  }
  EXPECT_FALSE(has_cpu_share());
  EXPECT_EQ(affinity_cpus(), all);
  EXPECT_EQ(compute_threads(), available_cpus());
}

TEST(Cpus, AShareEndsForItsThreadFromAnyThread) {
  const std::vector<int> all = affinity_cpus();
  auto share = std::make_unique<ScopedCpuShare>(CpuShare{{all.front()}, 1});
  std::thread([&] { share.reset(); }).join();
  EXPECT_EQ(affinity_cpus(), all);
}

TEST(Cpus, AShareWithoutCpusLimitsThreadsOnly) {
  const std::vector<int> all = affinity_cpus();
  const ScopedCpuShare share({{}, 1});
  EXPECT_EQ(compute_threads(), 1);
  EXPECT_EQ(affinity_cpus(), all);
}

TEST(Cpus, TheNumberOfThreadsThatTheUserSetsWins) {
  Runtime runtime({.cpu_threads = 5});
  const RuntimeScope scope(runtime);
  EXPECT_EQ(compute_threads(), 5);
  const ScopedCpuShare share({{}, 1});
  EXPECT_EQ(compute_threads(), 5);
  EXPECT_EQ(Pool().threads(), 5);
}

}  // namespace
}  // namespace lockstep
