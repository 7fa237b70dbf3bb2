// The subcommands of `lockstep`. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "base/os/environment.h"
#include "command/command.h"

namespace lockstep::cli {

// Stores the words after "--" of a `lockstep launch` or `lockstep submit` command line, and returns the number of words
// before it. Returns argc for other commands. Throws UsageError when "--" or the command after it is missing.
int take_launched_command(int argc, char** argv);

// Parses a command line, without the name of the program, and runs nothing. Throws the UsageError that the program would
// print in this environment.
void check_command_line(const std::vector<std::string>& words, const detail::Environment& environment = {});

// Each function adds its subcommand to the program. REQUIRES: action outlives the parse.
#define COMMAND(name, title) void add_##name##_command(CLI::App& program, Action& action);
#include "cli/commands.def"
#undef COMMAND

}  // namespace lockstep::cli
