// The command line of `lockstep`: every subcommand with its flags. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include "base/os/environment.h"
#include "cli/command.h"

namespace lockstep::cli {

class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Returns the action that the words select: a subcommand, or printing help or the version. Throws UsageError with a
  // suggestion for unknown words, and for wrong variables of the environment that the subcommand reads. REQUIRES: called
  // once; the object outlives the action.
  Action parse(int argc, char** argv, const detail::Environment& environment = {});

 private:
  CLI::App program_;
  Action action_;
};

}  // namespace lockstep::cli
