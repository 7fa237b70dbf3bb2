#include "cluster/cpu_binding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/names.h"
#include "base/runtime_settings.h"
#include "cluster/variables.h"
#include "lane/memory.h"

namespace lockstep {
namespace {

// How the user of a launcher gives each process `share` CPUs; empty for one that does not bind processes.
std::string binding_remedy(const CpuBinding& binding, int share) {
  const int cores = std::max(1, share / std::max(1, binding.threads_per_core));
  if (binding.launcher == "ompi")
    return fmt::format("start mpirun with --bind-to none, or with --map-by slot:PE={}", cores);
  if (binding.launcher == "pmi") return "start mpiexec with -bind-to none";
  if (binding.launcher == "slurm")
    return fmt::format("start srun with --cpus-per-task={}, or with --cpu-bind=none", share);
  return "";
}

// The largest number of CPUs of a core.
int threads_of_a_core(std::vector<CpuPlace> places) {
  std::ranges::sort(places);
  int most = 1, own = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const bool sibling = i > 0 && places[i - 1].node == places[i].node && places[i - 1].package == places[i].package &&
                         places[i - 1].core == places[i].core;
    own = sibling ? own + 1 : 1;
    most = std::max(most, own);
  }
  return most;
}

}  // namespace

LocalRank cpu_rank(const std::vector<ProcessFacts>& facts, int process) {
  const ProcessFacts& own = facts[static_cast<size_t>(process)];
  LocalRank place{0, 0};
  for (size_t p = 0; p < facts.size(); ++p) {
    if (facts[p].host != own.host || facts[p].cpus != own.cpus) continue;
    if (static_cast<int>(p) < process) ++place.id;
    ++place.count;
  }
  return place;
}

CpuShare own_cpu_share(const std::vector<ProcessFacts>& facts, int process) {
  if (detail::runtime_option(&RuntimeOptions::cpu_threads) > 0) return {};
  const LocalRank place = cpu_rank(facts, process);
  if (place.count == 1) return {};
  return share_cpus(cpu_places(affinity_cpus()), available_cpus(), place.id, place.count);
}

std::string narrow_binding(const CpuBinding& binding) {
  if (!binding.processes) return "";
  const int share = binding.usable / *binding.processes;
  const std::string remedy = binding_remedy(binding, share);
  if (remedy.empty() || binding.bound >= share) return "";
  return fmt::format("this process is bound to {}, but its share of the {} that {} of this host may use is {}; {}",
                     counted(binding.bound, "core"), counted(binding.usable, "core"),
                     *binding.processes == 1 ? "1 process" : fmt::format("{} processes", *binding.processes), share,
                     remedy);
}

std::string narrow_binding() {
  const detail::LaunchEnvironment here = detail::read_launch_environment();
  const detail::Detection detection = detail::run_detectors({}, here);
  return detection.chosen ? narrow_binding(*detection.chosen, here.environment) : "";
}

std::string narrow_binding(const detail::ClusterInfo& info, const detail::Environment& environment) {
  if (has_cpu_share()) return "";
  std::optional<int> processes = info.local_count;
  if (!processes && info.process_count == 1) processes = 1;
  int usable = unbound_cpus();
  // Slurm may bind a task by the cgroup as well, but says how many CPUs the step has on this host.
  if (info.method == "slurm")
    usable = detail::optional_number(environment, "SLURM_CPUS_ON_NODE", 1).value_or(available_cpus());
  return narrow_binding({.launcher = info.method,
                         .processes = processes,
                         .bound = available_cpus(),
                         .usable = usable,
                         .threads_per_core = threads_of_a_core(cpu_places(affinity_cpus()))});
}

}  // namespace lockstep
