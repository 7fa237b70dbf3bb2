// The table of runtime_settings.def: settings that a flag, a C++ option or an environment variable can set. The value in
// use is the C++ option if it is set, else the variable, else the default; commands pass their flags on as variables.
// Safe from any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "lockstep/runtime.h"

namespace lockstep::detail {

// The texts that a setting accepts.
struct SettingValues {
  enum class Kind { text, choice, integer, seconds, on_off, one };
  Kind kind = Kind::text;
  double low = 0, high = 0;           // of numbers
  std::string_view former_name = {};  // of a choice: accepted as well, but not listed
};

struct RuntimeSetting {
  enum class Group { devices, cache, process, communication, run, jobs, logs };
  Group group;
  std::string_view flag;      // "--gpu-timeout"
  std::string_view variable;  // "LOCKSTEP_GPU_TIMEOUT"; a C string
  SettingValues values;
  std::string_view metavar;  // "SECONDS", "tf32|full"; empty: the flag takes no value
  std::string_view initial;
  std::string_view option;  // "RuntimeOptions::gpu_timeout"; empty: no C++ option
  std::variant<std::monostate, std::optional<int64_t> RuntimeOptions::*, std::optional<bool> RuntimeOptions::*,
               std::optional<std::string> RuntimeOptions::*,
               std::optional<std::chrono::duration<double>> RuntimeOptions::*>
      member;
  std::string_view help;

  // The value of the variable that the flag sets: its text, or "off" or "1" for a flag without one.
  std::string variable_value(const std::string& text) const;
};

std::span<const RuntimeSetting> runtime_settings();

// Returns why the setting does not accept a text (`"x" is not a whole number from 1 to 1024`), or "".
std::string setting_error(const RuntimeSetting& setting, std::string_view text);

// Returns the message about the value of the setting's variable (`environment: LOCKSTEP_TLS is "x"; set it to on or off,
// or unset it`), or "" if it is valid or empty.
std::string variable_error(const RuntimeSetting& setting, std::string_view text);

// The value that the current runtime uses. From then on configure() cannot change it. Throws Error if it comes from the
// variable and is not valid. A text without a value is "".
int64_t runtime_option(std::optional<int64_t> RuntimeOptions::*member);
bool runtime_option(std::optional<bool> RuntimeOptions::*member);
std::string runtime_option(std::optional<std::string> RuntimeOptions::*member);
std::chrono::duration<double> runtime_option(std::optional<std::chrono::duration<double>> RuntimeOptions::*member);

// configure() of the current runtime; messages begin with the name of the function.
void set_runtime_options(std::string_view function, const RuntimeOptions& options);

// RuntimeOptions::cache_dir, or its default in the home folder; empty if there is no home folder.
std::string cache_root();

}  // namespace lockstep::detail
