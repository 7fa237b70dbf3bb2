// The command line of `lockstep`: every subcommand with its flags. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace lockstep::cli {

class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Returns what the words ask for, not yet done: the chosen subcommand, or printing help or the version. Throws
  // UsageError, naming the word and the nearest right one, for words that make no sense. REQUIRES: it is called once,
  // and the object outlives the action.
  Action parse(int argc, char** argv);

 private:
  CLI::App program_;
  Action action_;
};

}  // namespace lockstep::cli
