#include "lockstep/version.h"

#include <cstdio>

#include "command/command.h"
#include "command/help.h"

namespace lockstep::cli {

void add_version_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("version", "print the version");
  add_examples(*command, {"lockstep version", "lockstep --version"});
  command->callback([&action] {
    action = [] {
      std::puts("lockstep " LOCKSTEP_VERSION);
      return kDone;
    };
  });
}

}  // namespace lockstep::cli
