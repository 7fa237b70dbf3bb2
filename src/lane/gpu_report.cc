#include "lane/gpu_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "sharding/device_table.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "hardware/cuda/probe.h"
#include "hardware/gpu_lanes.h"
#include "lockstep/error.h"
#endif

namespace lockstep {

std::string to_string(const Gpu& gpu) {
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); };
  return fmt::format("{}, {:.1f} GiB of memory, {}, compute capability {}.{}, {} multiprocessors", gpu.name,
                     gib(gpu.memory), gpu.free < 0 ? "not usable now" : fmt::format("{:.1f} GiB free", gib(gpu.free)),
                     gpu.major, gpu.minor, gpu.processors);
}

std::vector<std::pair<std::string, std::string>> report_lines(const GpuReport& report) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto version = [](const std::string& text) { return text.empty() ? "unknown" : "CUDA " + text; };
  if (report.built_in) out = {{"driver", "supports " + version(report.driver)}, {"libraries", version(report.runtime)}};
  for (const GpuLibrary& each : report.libraries) {
    const std::string missing = each.without.empty() ? each.remedy : fmt::format("missing: {}", each.without);
    out.emplace_back("  " + each.name, each.file.empty() ? missing : each.file);
  }
  for (size_t i = 0; i < report.gpus.size(); ++i) out.emplace_back(fmt::format("GPU {}", i), to_string(report.gpus[i]));
  if (report.gpus.empty()) out.emplace_back("GPUs", report.why_not.empty() ? "none" : report.why_not);
  return out;
}

#ifndef LOCKSTEP_WITH_CUDA
GpuReport report_gpus() {
  GpuReport out;
  out.seen = nvidia_hardware_present();
  out.why_not = detect_gpus().why_not;
  return out;
}
GpuReport report_first_gpu() { return report_gpus(); }

int64_t gpu_lane_count() { return 1; }
#else
int64_t gpu_lane_count() { return static_cast<int64_t>(lane_gpus().size()); }

std::vector<int> lane_gpus() {
  return assign_gpus_to_lanes(gpus_to_use(), detail::DeviceTable::current().local_count(), gpu_lanes_variable());
}

namespace {

// The GPUs that lanes use. Sets why_not if the settings are wrong.
std::vector<int> used_gpus(std::string& why_not) {
  try {
    std::vector<int> used = lane_gpus();
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    return used;
  } catch (const Error& error) {
    why_not = error.what();
    return {};
  }
}

GpuReport report(bool all) {
  const CudaFacts& facts = known_cuda_facts();
  GpuReport out;
  out.built_in = true;
  out.seen = facts.device_files;
  out.driver = cuda_version_text(facts.driver);
  out.runtime = cuda_version_text(facts.runtime);
  out.why_not = cuda_why_not();
  if (!facts.device_files) return out;
  if (all) out.libraries = cuda_libraries();
  if (out.why_not.empty()) out.used = used_gpus(out.why_not);
  std::optional<int> before;  // the GPU that was current
  const auto why_not_use = [&](int gpu) -> std::string {
    try {
      const int used = use_gpu(gpu);
      if (!before) before = used;
      return "";
    } catch (const std::exception& error) {  // another process may use it exclusively, or all its memory
      return error.what();
    }
  };
  for (int i = 0; i < facts.count; ++i) {
    if (!all && (out.used.empty() || i != out.used[0])) continue;
    cudaDeviceProp properties{};
    size_t free = 0, total = 0;
    const std::string why_not = why_not_use(i);
    if (cuda().cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      out.gpus.push_back({.name = "unknown GPU", .why_not = why_not});
      continue;
    }
    const bool memory_known = why_not.empty() && cuda().cudaMemGetInfo(&free, &total) == cudaSuccess;
    out.gpus.push_back({properties.name, static_cast<int64_t>(properties.totalGlobalMem),
                        memory_known ? static_cast<int64_t>(free) : -1, properties.major, properties.minor,
                        properties.multiProcessorCount, why_not});
  }
  if (before.value_or(-1) >= 0) why_not_use(*before);
  return out;
}

}  // namespace

GpuReport report_gpus() { return report(true); }
GpuReport report_first_gpu() { return report(false); }

#endif

}  // namespace lockstep
