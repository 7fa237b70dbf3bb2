// Places for values that live for a while: the memory plan of an arena.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct Block {
  int64_t bytes = 0;
  int first = 0;       // instruction that writes it
  int last = 0;        // last instruction that reads it
  int64_t offset = 0;  // filled in
};

// Gives every block an offset, a multiple of 64, so that blocks alive at the same time do not overlap. Returns the
// bytes needed.
int64_t place_blocks(std::vector<Block>&);

}  // namespace lockstep
