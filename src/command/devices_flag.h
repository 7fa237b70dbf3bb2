// The flags for devices and processes of commands other than train. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "command/runtime_flags.h"

namespace lockstep::cli {

struct DevicesFlags {
  std::string devices = "auto";
  std::string platform;  // empty: not given
  RuntimeFlags runtime;
};

// Adds --devices auto|all|N, --platform auto|cpu|cuda, and the runtime settings of devices and processes. REQUIRES: flags
// outlives the parse.
void add_devices_flags(CLI::App& app, DevicesFlags& flags);

// Adds --platform alone.
void add_platform_flag(CLI::App& app, std::string& platform, const std::string& help);

// Configures the devices as the flags request, and joins the job. REQUIRES: the flags were parsed, and no device was
// used before.
void use_devices(const DevicesFlags& flags);

}  // namespace lockstep::cli
