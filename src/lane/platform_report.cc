#include "lane/platform_report.h"

#include <fmt/format.h>

#include "lane/gpu_report.h"
#include "lockstep/devices.h"
#include "sharding/device_table.h"

namespace lockstep {

std::string platform_in_use() {
  if (platform() != Platform::cuda) {
    const std::string why = detail::DeviceTable::current().why_no_gpu();
    return why.empty() ? "" : "the CPU: " + why;
  }
  const GpuReport report = report_first_gpu();
  if (report.gpus.empty()) return "a GPU";
  if (!report.gpus[0].why_not.empty()) return "";
  const size_t count = report.used.size();
  return (count > 1 ? fmt::format("{} GPUs; the first: ", count) : "") + to_string(report.gpus[0]);
}

}  // namespace lockstep
