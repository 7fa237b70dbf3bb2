// The settings of a training run as flags: one flag per row of train/config.def, and CONFIG for a file of them.
// Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "train/config.h"

namespace lockstep::cli {

// What the command line says.
struct ConfigFlags {
  std::string file;           // CONFIG, or --config
  bool print_config = false;  // --print-config: show the settings instead of using them
  ConfigMap given;            // the flags that were given, by key
};

// Adds the flags, in groups with their defaults, and the meaning of the exit codes as a footer. REQUIRES: flags
// outlives the parse.
void add_config_flags(CLI::App& app, ConfigFlags& flags);

// The file's settings with those of the flags laid over them, checked. Throws UsageError when something is wrong with
// either, IoError when the file cannot be read.
TrainConfig resolve_config(const ConfigFlags& flags);

}  // namespace lockstep::cli
