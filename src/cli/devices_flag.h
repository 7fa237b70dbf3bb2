// --devices of the commands that have no other settings. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace lockstep::cli {

// Adds --devices auto|all|N.
void add_devices_flag(CLI::App& app, std::string& devices);

// Makes so many devices. REQUIRES: the flag was parsed, and no device was used before.
void use_devices(const std::string& devices);

}  // namespace lockstep::cli
