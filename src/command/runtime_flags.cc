#include "command/runtime_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/os/environment.h"

namespace lockstep::cli {
namespace {

std::string title_of(SettingGroup group) {
  switch (group) {
    case SettingGroup::devices:
      return "Devices";
    case SettingGroup::process:
      return "Processes";
    case SettingGroup::communication:
      return "Communication";
    case SettingGroup::run:
      return "Logging";
    default:
      return "Options";
  }
}

CLI::Option* add_runtime_flag(CLI::App& app, RuntimeFlags& flags, const detail::RuntimeSetting& setting) {
  const std::string name(setting.flag);
  const auto store = [&flags, &setting](const std::string& text) {
    if (const std::string error = setting_error(setting, text); !error.empty())
      throw CLI::ValidationError(std::string(setting.flag), error);
    flags[std::string(setting.variable)] = text;
  };
  if (setting.metavar.empty()) {
    const std::string value = setting.variable_value("");
    return app
        .add_flag_callback(
            name, [store, value] { store(value); }, fmt::format("{} (or {}={})", setting.help, setting.variable, value))
        ->take_last();
  }
  const std::string help = fmt::format("{} (default: ${}, else {})", setting.help, setting.variable, setting.initial);
  return app.add_option_function<std::string>(name, store, help)->type_name(std::string(setting.metavar))->take_last();
}

}  // namespace

void add_runtime_flags(CLI::App& app, RuntimeFlags& flags, const std::vector<SettingGroup>& groups,
                       const std::vector<std::string_view>& except) {
  for (const detail::RuntimeSetting& setting : detail::runtime_settings())
    if (std::ranges::find(groups, setting.group) != groups.end() &&
        std::ranges::find(except, setting.flag) == except.end())
      add_runtime_flag(app, flags, setting)->group(title_of(setting.group));
}

void export_flags(const RuntimeFlags& flags) {
  for (const auto& [variable, value] : flags) set_environment_variable(variable.c_str(), value);
}

}  // namespace lockstep::cli
