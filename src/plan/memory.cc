#include "plan/memory.h"

#include <algorithm>
#include <numeric>

namespace lockstep {

int64_t assign_offsets(std::vector<ArenaBlock>& blocks) {
  // Largest first, each into the lowest gap among the blocks already placed that live at the same time.
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  constexpr int64_t kAlign = 64;
  int64_t total = 0;
  std::vector<size_t> placed;  // by offset
  for (size_t i : order) {
    ArenaBlock& block = blocks[i];
    const int64_t bytes = (block.bytes + kAlign - 1) / kAlign * kAlign;
    int64_t offset = 0;
    for (size_t j : placed) {
      const ArenaBlock& other = blocks[j];
      if (other.last < block.first || block.last < other.first) continue;
      if (offset + bytes <= other.offset) break;
      offset = std::max(offset, (other.offset + other.bytes + kAlign - 1) / kAlign * kAlign);
    }
    block.offset = offset;
    total = std::max(total, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return blocks[a].offset < blocks[b].offset; }),
                  i);
  }
  return total;
}

}  // namespace lockstep
