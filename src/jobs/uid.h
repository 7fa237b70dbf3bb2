// Unique ids of objects: random UUIDs (RFC 4122, version 4). Safe from any thread.
#pragma once

#include <string>

namespace lockstep {

// Throws IoError if the system provides no random bytes.
std::string make_uid();

}  // namespace lockstep
