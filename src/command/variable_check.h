// Checks of environment variables before a command runs. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include "base/os/environment.h"

namespace lockstep::cli {

// Throws UsageError if the command reads a variable whose value is wrong. These are the variables of its flags that are
// not given, since a flag overrides its variable. REQUIRES: the command was parsed.
void check_variables(const CLI::App& command, detail::Environment environment);

}  // namespace lockstep::cli
