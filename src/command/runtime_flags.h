// The flags of base/runtime_settings.def. A flag has the effect of its environment variable, for this command and the
// processes that it starts, and overrides it. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime_settings.h"

namespace lockstep::cli {

using SettingGroup = detail::RuntimeSetting::Group;

// The given flags: values by variable.
using RuntimeFlags = std::map<std::string, std::string>;

// Adds the flags of some groups, except some of them. REQUIRES: flags outlives the parse.
void add_runtime_flags(CLI::App& app, RuntimeFlags& flags, const std::vector<SettingGroup>& groups,
                       const std::vector<std::string_view>& except = {});

// Sets the environment variables of the given flags. Call once, before anything reads them.
void export_flags(const RuntimeFlags& flags);

}  // namespace lockstep::cli
