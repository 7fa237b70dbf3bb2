// What the rows of cumulative results combine. A plain value.
#pragma once

#include <cstdint>

namespace lockstep {

enum class CumulativeKind : uint8_t { sum, prod, max, min, logsumexp };

}  // namespace lockstep
