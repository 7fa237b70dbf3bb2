#include "hardware/gpu_lanes.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "base/check.h"

namespace lockstep {
namespace {

constexpr size_t kMaxGpuLanes = 64;

struct Assignment {
  std::mutex mutex;
  std::optional<AssignedGpus> gpus;
};
Assignment& process_assignment() {
  static auto* const assignment = new Assignment;
  return *assignment;
}

size_t parse_gpu_lanes(const std::string& text) {
  size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kMaxGpuLanes)
    throw_error("lanes: LOCKSTEP_CUDA_LANES is \"{}\"; give a number from 1 to {}, or unset it", text, kMaxGpuLanes);
  return n;
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

std::optional<std::string> gpu_lanes_variable() {
  const char* const text = std::getenv("LOCKSTEP_CUDA_LANES");
  return text && *text ? std::optional<std::string>(text) : std::nullopt;
}

void set_assigned_gpus(std::vector<int> gpus, std::string why_none) {
  Assignment& assignment = process_assignment();
  const std::lock_guard lock(assignment.mutex);
  assignment.gpus = {std::move(gpus), std::move(why_none)};
}

std::optional<AssignedGpus> assigned_gpus() {
  Assignment& assignment = process_assignment();
  const std::lock_guard lock(assignment.mutex);
  return assignment.gpus;
}

}  // namespace lockstep
