// The argument RUN of commands that read a run or a checkpoint. Used by the main thread only.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep::cli {

// Adds the required argument; find_run() finds what it names.
void add_run_argument(CLI::App& command, std::string& run);

// Throws Error, with the name of the command, if `path` is a file and not a folder.
void check_checkpoint_argument(const std::string& command, const std::string& path);

}  // namespace lockstep::cli
