// How a subcommand joins the program: it adds its parser, whose flags are also its help, and on being chosen leaves
// behind what to do. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::cli {

// Exit codes of the program; `lockstep train --help` lists them for users.
inline constexpr int kDone = 0, kFailed = 1, kWrongUsage = 2, kNotAsExpected = 3;

// What the command line or a configuration file says makes no sense: exit code 2. Thrown by actions; whatever else
// they throw is exit code 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Runs what reads the command line or a file that it names: what is wrong there is a UsageError.
template <class F>
auto or_usage_error(F&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw UsageError(error.what());
  } catch (const IoError& error) {
    throw UsageError(error.what());
  }
}

// What the chosen subcommand does once the whole command line has been understood; returns the exit code. Exceptions
// become `lockstep: message`.
using Action = std::function<int()>;

// Takes what follows "--" from the words of `lockstep launch`, for launch to start, and gives how many words are left.
// Nothing is done to those of other commands. Throws UsageError when there is no "--".
int take_launched_command(int argc, char** argv);

// Parses the words of a command line, without the name of the program, and runs nothing. Throws UsageError as the
// program would print it.
void check_command_line(const std::vector<std::string>& words);

// Each adds its subcommand to the program. REQUIRES: action outlives the parse.
#define COMMAND(name, title) void add_##name##_command(CLI::App& program, Action& action);
#include "cli/commands.def"
#undef COMMAND

}  // namespace lockstep::cli
