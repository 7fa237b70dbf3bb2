#include "lane/gpu_lanes.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "base/check.h"

namespace lockstep {
namespace {

constexpr size_t kMostGpuLanes = 64;

struct OwnOfProcess {
  std::mutex mutex;
  std::optional<OwnGpus> gpus;
};
OwnOfProcess& own_of_process() {
  static auto* const own = new OwnOfProcess;
  return *own;
}

size_t parse_gpu_lanes(const std::string& text) {
  size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kMostGpuLanes)
    throw_error("lanes: LOCKSTEP_CUDA_LANES is \"{}\"; give a number from 1 to {}, or unset it", text, kMostGpuLanes);
  return n;
}

}  // namespace

std::vector<int> gpus_of_lanes(const std::vector<int>& own, int devices, const std::optional<std::string>& said) {
  size_t lanes = own.size();
  if (said)
    lanes = parse_gpu_lanes(*said);
  else
    while (static_cast<size_t>(devices) % lanes != 0) --lanes;
  std::vector<int> out;
  for (size_t lane = 0; lane < lanes; ++lane) out.push_back(own[lanes > own.size() ? lane * own.size() / lanes : lane]);
  return out;
}

int devices_of_gpus(const std::vector<int>& own, const std::optional<std::string>& said) {
  return static_cast<int>(said ? parse_gpu_lanes(*said) : own.size());
}

std::optional<std::string> said_gpu_lanes() {
  const char* const text = std::getenv("LOCKSTEP_CUDA_LANES");
  return text && *text ? std::optional<std::string>(text) : std::nullopt;
}

void set_own_gpus(std::vector<int> gpus, std::string why_none) {
  OwnOfProcess& own = own_of_process();
  const std::lock_guard lock(own.mutex);
  own.gpus = {std::move(gpus), std::move(why_none)};
}

std::optional<OwnGpus> own_gpus() {
  OwnOfProcess& own = own_of_process();
  const std::lock_guard lock(own.mutex);
  return own.gpus;
}

}  // namespace lockstep
