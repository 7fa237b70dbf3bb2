// The argument CHECKPOINT of `lockstep eval` and `lockstep inspect`. Used by the main thread only.
#pragma once

#include <string>

namespace lockstep::cli {

// Throws Error, with the name of the command, if `path` is a file and not a folder.
void check_checkpoint_argument(const std::string& command, const std::string& path);

}  // namespace lockstep::cli
