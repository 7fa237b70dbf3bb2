// Names for objects that nothing else has: RFC 4122, version 4. Safe from any thread.
#pragma once

#include <string>

namespace lockstep {

// Throws IoError when the system has no random bytes.
std::string make_uid();

}  // namespace lockstep
