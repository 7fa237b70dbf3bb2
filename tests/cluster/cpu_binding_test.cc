#include "cluster/cpu_binding.h"

#include <gtest/gtest.h>

#include "lane/memory.h"
#include "lockstep/runtime.h"

namespace lockstep {
namespace {

std::vector<ProcessFacts> facts_of(const std::vector<std::pair<std::string, std::string>>& hosts_and_cpus) {
  std::vector<ProcessFacts> out;
  for (const auto& [host, cpus] : hosts_and_cpus) out.push_back({.host = host, .address = "10.0.0.1", .cpus = cpus});
  return out;
}

void expect_rank(const std::vector<ProcessFacts>& facts, int process, int id, int count) {
  const LocalRank place = cpu_rank(facts, process);
  EXPECT_EQ(place.id, id) << "process " << process;
  EXPECT_EQ(place.count, count) << "process " << process;
}

TEST(CpuRank, ProcessesWithTheSameCpusShareThem) {
  const auto facts = facts_of({{"a", "0-7"}, {"b", "0-7"}, {"a", "0-7"}, {"a", "8-15"}});
  expect_rank(facts, 0, 0, 2);
  expect_rank(facts, 1, 0, 1);
  expect_rank(facts, 2, 1, 2);
  expect_rank(facts, 3, 0, 1);
}

TEST(CpuShare, IsForProcessesThatNothingBound) {
  const std::string own = cpu_list(affinity_cpus());
  EXPECT_EQ(own_cpu_share(facts_of({{"a", own}, {"b", own}}), 0), CpuShare());
  const CpuShare first = own_cpu_share(facts_of({{"a", own}, {"a", own}}), 0);
  EXPECT_EQ(first.threads, available_cpus() > 1 ? (available_cpus() + 1) / 2 : 1);
}

TEST(CpuShare, IsNotTakenIfTheUserSetsTheNumberOfThreads) {
  Runtime runtime({.cpu_threads = 3});
  const RuntimeScope scope(runtime);
  const std::string own = cpu_list(affinity_cpus());
  EXPECT_EQ(own_cpu_share(facts_of({{"a", own}, {"a", own}}), 1), CpuShare());
}

TEST(NarrowBinding, NamesNumbersAndTheRemedyOfTheLauncher) {
  EXPECT_EQ(
      narrow_binding({.launcher = "ompi", .processes = 2, .bound = 1, .usable = 16}),
      "this process is bound to 1 core, but its share of the 16 cores that 2 processes of this host may use is 8; "
      "start mpirun with --bind-to none, or with --map-by slot:PE=8");
  EXPECT_EQ(
      narrow_binding({.launcher = "ompi", .processes = 1, .bound = 2, .usable = 32, .threads_per_core = 2}),
      "this process is bound to 2 cores, but its share of the 32 cores that 1 process of this host may use is 32; "
      "start mpirun with --bind-to none, or with --map-by slot:PE=16");
  EXPECT_EQ(
      narrow_binding({.launcher = "pmi", .processes = 2, .bound = 4, .usable = 16}),
      "this process is bound to 4 cores, but its share of the 16 cores that 2 processes of this host may use is 8; "
      "start mpiexec with -bind-to none");
  EXPECT_EQ(
      narrow_binding({.launcher = "slurm", .processes = 4, .bound = 2, .usable = 16}),
      "this process is bound to 2 cores, but its share of the 16 cores that 4 processes of this host may use is 4; "
      "start srun with --cpus-per-task=4, or with --cpu-bind=none");
}

TEST(NarrowBinding, NothingIsSaidAboutAFullShare) {
  EXPECT_EQ(narrow_binding({.launcher = "ompi", .processes = 2, .bound = 8, .usable = 16}), "");
  EXPECT_EQ(narrow_binding({.launcher = "ompi", .processes = 3, .bound = 5, .usable = 16}), "");
  EXPECT_EQ(narrow_binding({.launcher = "ompi", .processes = 32, .bound = 1, .usable = 16}), "");
}

TEST(NarrowBinding, NothingIsSaidIfTheUserBoundTheProcess) {
  for (const char* launcher : {"none", "explicit", "torchrun", "kubernetes"})
    EXPECT_EQ(narrow_binding({.launcher = launcher, .processes = 1, .bound = 1, .usable = 16}), "") << launcher;
  EXPECT_EQ(narrow_binding({.launcher = "ompi", .processes = {}, .bound = 1, .usable = 16}), "");
}

TEST(NarrowBinding, SlurmSaysHowManyCpusAStepHas) {
  const int own = available_cpus();
  detail::ClusterInfo info;
  info.method = "slurm";
  info.process_count = info.local_count.emplace(2);
  EXPECT_EQ(narrow_binding(info, {{"SLURM_CPUS_ON_NODE", std::to_string(2 * own)}}), "");
  EXPECT_NE(narrow_binding(info, {{"SLURM_CPUS_ON_NODE", std::to_string(4 * own)}}), "");
  EXPECT_EQ(narrow_binding(info, {}), "");
}

}  // namespace
}  // namespace lockstep
