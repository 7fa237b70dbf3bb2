// Memory of this process. Safe from any thread.
#pragma once

#include <cstdint>

namespace lockstep::detail {

// Bytes of the largest resident set so far.
int64_t largest_resident_set();

}  // namespace lockstep::detail
