#include "lockstep/version.h"

#include <cstdio>

#include "cli/command.h"

namespace lockstep::cli {

void add_version_command(CLI::App& program, Action& action) {
  program.add_subcommand("version", "print the version")->callback([&action] {
    action = [] {
      std::puts("lockstep " LOCKSTEP_VERSION);
      return 0;
    };
  });
}

}  // namespace lockstep::cli
