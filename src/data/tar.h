// Reading of tar archives (POSIX ustar), as npm packages are. Archives are not trusted: names are compared with a list,
// and sizes with a limit. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/bytes.h"

namespace lockstep::detail {

// Calls `found` for each regular file of the archive with a name in `names`; others are skipped. Throws Error, naming
// `where`, when the archive is truncated or corrupt, or when such a file has more than `most` bytes.
void read_tar(ByteStream& archive, const std::string& where, const std::vector<std::string>& names, int64_t most,
              const std::function<void(const std::string& name, std::vector<uint8_t> contents)>& found);

}  // namespace lockstep::detail
