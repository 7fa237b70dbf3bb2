#include "command/variable_check.h"

#include <string>

#include "base/runtime_settings.h"
#include "cluster/detectors.h"
#include "command/command.h"
#include "sharding/device_table.h"

namespace lockstep::cli {
namespace {

// Throws UsageError for a wrong variable of the table. Replaces the variables of given flags by their values.
void check_runtime_settings(const CLI::App& command, detail::Environment& environment) {
  for (const detail::RuntimeSetting& setting : detail::runtime_settings()) {
    const CLI::Option* const flag = command.get_option_no_throw(std::string(setting.flag));
    if (!flag) continue;
    std::string& value = environment[std::string(setting.variable)];
    if (flag->count() > 0)
      value = setting.variable_value(flag->results().back());
    else if (const std::string error = variable_error(setting, value); !error.empty())
      throw UsageError(error);
  }
}

bool reads_platform(const CLI::App& command) {
  const CLI::Option* const flag = command.get_option_no_throw("--platform");
  return flag && flag->count() == 0;
}

// `--devices auto` and `--devices all` read the environment too.
bool reads_device_count(const CLI::App& command) {
  const CLI::Option* const flag = command.get_option_no_throw("--devices");
  return flag && (flag->count() == 0 || flag->results().back() == "auto" || flag->results().back() == "all");
}

}  // namespace

void check_variables(const CLI::App& command, detail::Environment environment) {
  check_runtime_settings(command, environment);
  or_usage_error([&] {
    if (reads_platform(command)) detail::platform_from(environment);
    if (reads_device_count(command)) detail::cpu_devices_from(environment);
    if (command.get_option_no_throw("--coordinator")) detail::read_explicit_settings({}, environment);
  });
}

}  // namespace lockstep::cli
