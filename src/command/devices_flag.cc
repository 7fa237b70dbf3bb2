#include "command/devices_flag.h"

#include <fmt/format.h>

#include <charconv>

#include "command/help.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "sharding/device_table.h"

namespace lockstep::cli {
namespace {

// The number of devices; 0 for "auto" and "all", -1 for other text.
int parse_device_count(const std::string& text) {
  if (text == "auto" || text == "all") return 0;
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool valid = error == std::errc() && end == text.data() + text.size();
  return valid && count > 0 && count <= detail::kMaxCpuDevices ? count : -1;
}

}  // namespace

void add_platform_flag(CLI::App& app, std::string& platform, const std::string& help) {
  const auto check = [](const std::string& text) -> std::string {
    return text == "auto" || text == "cpu" || text == "cuda" ? "" : "\"" + text + "\" is not auto, cpu or cuda";
  };
  app.add_option("--platform", platform, help)->type_name("auto|cpu|cuda")->check(check, "");
}

void add_devices_flags(CLI::App& app, DevicesFlags& flags) {
  const auto check = [](const std::string& text) -> std::string {
    if (parse_device_count(text) >= 0) return "";
    return fmt::format("\"{}\" is not auto, all or a number from 1 to {}", text, detail::kMaxCpuDevices);
  };
  app.add_option("--devices", flags.devices,
                 "devices of this process: N virtual CPU devices, or auto or all: as the environment specifies "
                 "(default: auto)")
      ->type_name("auto|all|N")
      ->check(check, "");
  add_platform_flag(app, flags.platform,
                    "device type; auto: a GPU if one is usable, else the CPU (default: $LOCKSTEP_PLATFORM, else auto)");
  group_flags(app, "Devices", {"--devices", "--platform"});
  add_runtime_flags(app, flags.runtime,
                    {SettingGroup::devices, SettingGroup::cache, SettingGroup::process, SettingGroup::communication});
}

void use_devices(const DevicesFlags& flags) {
  export_flags(flags.runtime);
  if (const int count = parse_device_count(flags.devices); count > 0) set_cpu_devices(count);
  if (!flags.platform.empty()) set_platform(flags.platform);
  distributed::initialize();
}

}  // namespace lockstep::cli
