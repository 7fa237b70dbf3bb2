#include "lane/gpu_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include "sharding/device_table.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "lane/cuda/probe.h"
#include "lane/gpu_lanes.h"
#endif

namespace lockstep {

bool nvidia_hardware_present() {
  // Linux; WSL, where Windows has the driver.
  for (const char* file : {"/dev/nvidiactl", "/dev/dxg"})
    if (::access(file, F_OK) == 0) return true;
  return false;
}

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

std::string cuda_version_text(int version) {
  return version > 0 ? fmt::format("{}.{}", version / 1000, version % 1000 / 10) : "";
}

#ifndef LOCKSTEP_WITH_CUDA
namespace {
constexpr const char* kBuiltWithoutCuda =
    "cuda: this lockstep was built without CUDA; rebuild it with CUDA 12.8 or newer, or use --platform cpu "
    "(LOCKSTEP_PLATFORM=cpu)";
}  // namespace

GpuReport report_gpus() {
  GpuReport out;
  out.seen = nvidia_hardware_present();
  out.why_not = kBuiltWithoutCuda;
  return out;
}
GpuReport report_first_gpu() { return report_gpus(); }

int visible_gpu_count() { return 0; }
int64_t gpu_lane_count() { return 1; }

namespace detail {
// `present` is false even if there is hardware: a build without CUDA prints no note about unused GPUs.
GpuStatus detect_gpus() { return {.usable = false, .why_not = kBuiltWithoutCuda, .present = false}; }
}  // namespace detail
#else
int visible_gpu_count() { return cuda_device_count(); }

int64_t gpu_lane_count() { return static_cast<int64_t>(lane_gpus().size()); }

namespace detail {
GpuStatus detect_gpus() {
  GpuStatus out;
  out.present = nvidia_hardware_present();
  out.why_not = cuda_why_not();
  out.usable = out.why_not.empty();
  if (out.usable) out.devices = default_gpu_device_count(gpus_to_use(), gpu_lanes_variable());
  return out;
}
}  // namespace detail
#endif

}  // namespace lockstep
