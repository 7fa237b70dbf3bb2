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

// A range of memory, to find dependencies. `space` numbers the inputs (with the outputs written to them), outputs and
// constants; the arena is one.
struct MemoryRange {
  int64_t space = 0, begin = 0, end = 0;  // bytes
  bool overlaps(const MemoryRange& other) const {
    return space == other.space && begin < other.end && other.begin < end;
  }
  bool operator==(const MemoryRange&) const = default;
};

// Gives every block an offset, a multiple of 64, so that blocks alive at the same time do not overlap. Returns the size
// of the arena.
int64_t assign_offsets(std::vector<ArenaBlock>&);

}  // namespace lockstep
