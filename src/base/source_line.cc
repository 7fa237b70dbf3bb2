#include "lockstep/source_line.h"

#include <string_view>

namespace lockstep {

std::string to_string(const SourceLine& at) {
  std::string_view file = at.file;
  file.remove_prefix(file.find_last_of('/') + 1);
  return std::string(file) + ":" + std::to_string(at.line);
}

}  // namespace lockstep
