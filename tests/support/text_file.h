// Reads a file that must exist.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace lockstep {

inline std::string read_text(const std::string& path) {
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path);
  return {bytes.begin(), bytes.end()};
}

}  // namespace lockstep
