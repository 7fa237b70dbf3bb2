// Assigns memory in an arena to values by their lifetimes. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// The memory of a value.
struct ArenaBlock {
  int64_t bytes = 0;
  int first = 0;       // instruction that writes it
  int last = 0;        // last instruction that reads it
  int64_t offset = 0;  // set by assign_offsets()
};

// Gives every block an offset, a multiple of 64, so that blocks alive at the same time do not overlap. Returns the size
// of the arena.
int64_t assign_offsets(std::vector<ArenaBlock>&);

}  // namespace lockstep
