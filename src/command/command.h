// Interface between a program and its subcommands. A subcommand adds its parser, which also defines its help. When the
// command line selects it, its callback stores the action to run. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <stdexcept>
#include <string>

#include "lockstep/error.h"

namespace lockstep::cli {

// Exit codes of the program; `lockstep train --help` lists them for users.
inline constexpr int kDone = 0, kFailed = 1, kWrongUsage = 2, kNotAsExpected = 3;

// The command line, a file that it names or an environment variable is wrong: exit code 2. Thrown by the parser and by
// actions.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns read(), which reads the command line or a file that it names. Rethrows Error and IoError as UsageError.
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

// Runs the selected subcommand and returns the exit code. The program prints an exception as `lockstep: message`.
using Action = std::function<int()>;

}  // namespace lockstep::cli
