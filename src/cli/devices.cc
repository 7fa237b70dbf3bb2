#include "lockstep/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "lane/gpu_report.h"

namespace lockstep::cli {
namespace {

std::string names(const std::vector<Device>& list) {
  std::string out;
  for (const Device& device : list)
    out += fmt::format("{}{}(id={})", out.empty() ? "" : ", ", to_string(device.platform), device.id);
  return "[" + out + "]";
}

void print_gpus() {
  const GpuReport report = report_gpus();
  for (size_t i = 0; i < report.gpus.size(); ++i) {
    const bool used = std::find(report.used.begin(), report.used.end(), static_cast<int>(i)) != report.used.end();
    fmt::print("# GPU {}: {}{}\n", i, to_string(report.gpus[i]), used ? "" : "; not used");
    if (used && !report.gpus[i].why_not.empty()) fmt::print("# {}\n", report.gpus[i].why_not);
  }
  fmt::print("# CUDA: driver {}, runtime {}\n", report.driver, report.runtime);
}

int print_devices(const DevicesFlags& flags) {
  use_devices(flags);
  fmt::print("# Local devices: [ {} ], {}\n", local_device_count(), names(local_devices()));
  fmt::print("# Global devices:[ {} ], {}\n", device_count(), names(devices()));
  if (platform() == Platform::cuda) print_gpus();
  return kDone;
}

}  // namespace

void add_devices_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("devices", "list the devices of this process and of all processes");
  auto flags = std::make_shared<DevicesFlags>();
  add_devices_flags(*command, *flags);
  add_examples(*command, {"lockstep devices --devices 8", "lockstep launch -n 2 -- devices"});
  command->callback([flags, &action] { action = [flags] { return print_devices(*flags); }; });
}

}  // namespace lockstep::cli
