#include "cluster/gpus.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "cluster/variables.h"
#include "hardware/gpu_lanes.h"
#include "lane/gpu_report.h"
#include "lockstep/error.h"
#include "sharding/device_table.h"

namespace lockstep::detail {

int visible_gpus(const Environment& environment, int on_machine) {
  const auto found = environment.find("CUDA_VISIBLE_DEVICES");
  if (found == environment.end()) return on_machine;
  std::set<std::string_view> seen;
  for (std::string_view rest = found->second; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = rest.substr(0, comma);
    if (!entry.starts_with("GPU-") && !entry.starts_with("MIG-")) {
      int index = -1;
      const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
      if (error != std::errc() || end != entry.data() + entry.size() || index < 0 || index >= on_machine) break;
    }
    if (!seen.insert(entry).second) break;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return std::min(static_cast<int>(seen.size()), on_machine);
}

bool gpus_are_shared(const Environment& environment, int visible) {
  if (find_variable(environment, "SLURM_GPUS_PER_TASK")) return false;
  const std::optional<int> on_host = optional_number(environment, "SLURM_GPUS_ON_NODE", 0);
  return !on_host || *on_host <= visible;
}

bool gpus_are_shared(const std::vector<std::vector<std::string>>& visible_by_local_id) {
  std::set<std::string> all;
  size_t sum = 0;
  bool same = true;
  for (const std::vector<std::string>& each : visible_by_local_id) {
    all.insert(each.begin(), each.end());
    sum += each.size();
    same = same && each == visible_by_local_id.front();
  }
  if (same) return true;
  if (sum == all.size()) return false;
  std::vector<std::string> counts;
  for (const std::vector<std::string>& each : visible_by_local_id) counts.push_back(std::to_string(each.size()));
  throw_error(
      "initialize: the processes of this host see {} GPUs ({} different ones), which partly overlap; let each process "
      "see all of them, or only its own (CUDA_VISIBLE_DEVICES), or give local_device_ids",
      join_words(counts), all.size());
}

std::vector<int> choose_gpus(const GpuRequest& request) {
  for (const int id : request.requested)
    if (id < 0 || id >= request.visible)
      throw_error("initialize: local_device_ids contains {}, but this process sees {}; ids start at 0", id,
                  counted(request.visible, "GPU"));
  if (!request.requested.empty()) return request.requested;
  const int64_t n = request.visible, k = request.shared ? request.local_count : 1;
  const int64_t id = request.shared ? request.local_id : 0;
  if (n > 0 && k > n)
    throw_error("initialize: {} processes on this host share {}; start at most one process per GPU", k,
                counted(n, "GPU"));
  const auto begin = static_cast<int>(id * n / k), end = static_cast<int>((id + 1) * n / k);
  std::vector<int> out(static_cast<size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

std::vector<int> choose_shared_gpus(const GpuRequest& request) {
  if (request.requested.empty() && request.shared && request.visible > 0 && request.local_count > request.visible)
    return {request.local_id % request.visible};
  return choose_gpus(request);
}

void select_own_gpus(const ClusterInfo& info, int local_id, int local_count) {
  if (platform() != Platform::cuda) return;
  const int visible = visible_gpu_count();
  const GpuRequest request{.visible = visible,
                           .local_id = info.local_id && info.local_count ? *info.local_id : local_id,
                           .local_count = info.local_id && info.local_count ? *info.local_count : local_count,
                           .shared = gpus_are_shared(own_environment(), visible),
                           .requested = info.local_device_ids};
  try {
    set_assigned_gpus(gpu_lanes_variable() ? choose_shared_gpus(request) : choose_gpus(request));
  } catch (const Error& error) {
    set_assigned_gpus({}, std::string(error.what()) + ", or use --platform cpu (LOCKSTEP_PLATFORM=cpu)");
  }
  DeviceTable::current().redetect_gpus();
  platform();  // throws if a GPU was requested
}

}  // namespace lockstep::detail
