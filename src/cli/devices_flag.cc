#include "cli/devices_flag.h"

#include <charconv>

#include "lockstep/devices.h"
#include "lockstep/distributed.h"

namespace lockstep::cli {
namespace {

// 0 for auto and all, -1 for what is neither that nor a number.
int count_of(const std::string& text) {
  if (text == "auto" || text == "all") return 0;
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count > 0 ? count : -1;
}

}  // namespace

void add_devices_flag(CLI::App& app, std::string& devices) {
  devices = "auto";
  const auto check = [](const std::string& text) -> std::string {
    return count_of(text) < 0 ? "\"" + text + "\" is not auto, all or a number of at least 1" : "";
  };
  app.add_option("--devices", devices,
                 "devices of this process: N virtual CPU devices, or all that the environment gives (default: auto)")
      ->type_name("auto|all|N")
      ->check(check, "");
}

void use_devices(const std::string& devices) {
  if (const int count = count_of(devices); count > 0) set_cpu_devices(count);
  distributed::initialize();
}

}  // namespace lockstep::cli
