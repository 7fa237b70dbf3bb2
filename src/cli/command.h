// How a subcommand joins the program: it adds its parser, whose flags are also its help, and on being chosen leaves
// behind what to do. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace lockstep::cli {

// What the chosen subcommand does once the whole command line has been understood; returns the exit code. Exceptions
// become `lockstep: message` and exit code 1.
using Action = std::function<int()>;

// Each adds its subcommand to the program. REQUIRES: action outlives the parse.
#define COMMAND(name) void add_##name##_command(CLI::App& program, Action& action);
#include "cli/commands.def"
#undef COMMAND

}  // namespace lockstep::cli
