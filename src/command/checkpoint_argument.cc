#include "command/checkpoint_argument.h"

#include <filesystem>

#include "base/check.h"

namespace lockstep::cli {

void check_checkpoint_argument(const std::string& command, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored))
    throw_error("{}: {} is a file; give the folder of a checkpoint, or a folder of checkpoints", command, path);
}

}  // namespace lockstep::cli
