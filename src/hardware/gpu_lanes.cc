#include "hardware/gpu_lanes.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/os/environment.h"
#include "base/runtime_parts.h"

namespace lockstep {
namespace {

constexpr const char* kGpuLanesVariable = "LOCKSTEP_CUDA_LANES";
constexpr int64_t kMaxGpuLanes = 64;

// A part of the runtime.
struct GpuAssignment {
  std::mutex mutex;
  std::optional<AssignedGpus> gpus;
};

size_t parse_gpu_lanes(const std::string& text) {
  return static_cast<size_t>(number_in_variable("lanes", kGpuLanesVariable, text, 1, kMaxGpuLanes));
}

}  // namespace

std::vector<int> assign_gpus_to_lanes(const std::vector<int>& gpus, int devices,
                                      const std::optional<std::string>& variable) {
  size_t lanes = gpus.size();
  if (variable)
    lanes = parse_gpu_lanes(*variable);
  else
    while (static_cast<size_t>(devices) % lanes != 0) --lanes;
  std::vector<int> out;
  for (size_t lane = 0; lane < lanes; ++lane)
    out.push_back(gpus[lanes > gpus.size() ? lane * gpus.size() / lanes : lane]);
  return out;
}

int default_gpu_device_count(const std::vector<int>& gpus, const std::optional<std::string>& variable) {
  return static_cast<int>(variable ? parse_gpu_lanes(*variable) : gpus.size());
}

std::optional<std::string> gpu_lanes_variable() { return environment_variable(kGpuLanesVariable); }

void set_assigned_gpus(std::vector<int> gpus, std::string why_none) {
  auto& assignment = detail::runtime_part<GpuAssignment>();
  const std::lock_guard lock(assignment.mutex);
  assignment.gpus = {std::move(gpus), std::move(why_none)};
}

std::optional<AssignedGpus> assigned_gpus() {
  auto& assignment = detail::runtime_part<GpuAssignment>();
  const std::lock_guard lock(assignment.mutex);
  return assignment.gpus;
}

}  // namespace lockstep
