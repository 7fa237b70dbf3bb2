#include "lockstep/devices.h"

#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/devices_flag.h"

namespace lockstep::cli {
namespace {

std::string names(const std::vector<Device>& list) {
  std::string out;
  for (const Device& device : list)
    out += fmt::format("{}{}(id={})", out.empty() ? "" : ", ", to_string(device.platform), device.id);
  return "[" + out + "]";
}

int print_devices(const std::string& count) {
  use_devices(count);
  fmt::print("# Local devices: [ {} ], {}\n", local_device_count(), names(local_devices()));
  fmt::print("# Global devices:[ {} ], {}\n", device_count(), names(devices()));
  return kDone;
}

}  // namespace

void add_devices_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("devices", "list the devices of this process and of all processes");
  auto count = std::make_shared<std::string>();
  add_devices_flag(*command, *count);
  command->callback([count, &action] { action = [count] { return print_devices(*count); }; });
}

}  // namespace lockstep::cli
