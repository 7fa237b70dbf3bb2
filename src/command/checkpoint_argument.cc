#include "command/checkpoint_argument.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/check.h"

namespace lockstep::cli {

void add_run_argument(CLI::App& command, std::string& run) {
  command
      .add_option(
          "RUN", run,
          "a run in runs/ by its name, last or best, or the path of a run or checkpoint; of several checkpoints "
          "the newest complete one is used")
      ->required()
      ->type_name("RUN");
}

void check_checkpoint_argument(const std::string& command, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored))
    throw_error("{}: {} is a file; give the folder of a checkpoint, or a folder of checkpoints", command, path);
}

}  // namespace lockstep::cli
