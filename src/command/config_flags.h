// The settings of a training run as flags: one flag per row of train/config.def, and CONFIG for a file of them.
// Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "command/runtime_flags.h"
#include "train/config.h"

namespace lockstep::cli {

// Values of the flags of the command line.
struct ConfigFlags {
  std::string file;             // CONFIG, or --config
  bool print_config = false;    // --print-config: print the settings instead of using them
  bool print_schedule = false;  // --print-schedule: print the compiled step instead of training
  ConfigMap given;              // the flags that were given, by key
  RuntimeFlags runtime;         // flags that are not settings of the run, such as --gpu-timeout
};

// Adds the flags, in groups with their defaults, and a footer with exit codes and examples. REQUIRES: flags outlives
// the parse.
void add_config_flags(CLI::App& app, ConfigFlags& flags);

// Adds the flag of one key, which stores its text in `given`. REQUIRES: given outlives the parse.
void add_config_flag(CLI::App& app, ConfigMap& given, const ConfigKey& key);

// Returns the checked settings: flags override the file, the file overrides defaults. Throws UsageError when a setting
// is wrong or the file cannot be read. Sets `lines`, if not null, to file and line of the settings that come from the
// file.
TrainConfig resolve_config(const ConfigFlags& flags, KeyLines* lines = nullptr);

// Returns the error with the file and line of its setting added, if the setting comes from the file.
SettingsError with_file_and_line(const SettingsError& error, const KeyLines& lines);

}  // namespace lockstep::cli
