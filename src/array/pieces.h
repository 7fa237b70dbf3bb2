// LanePieces: an array whose parts lie on lanes. Plain data, never changed once an Array has it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "sharding/lanes.h"

namespace lockstep::detail {

struct LanePieces {
  LaneGrid grid;
  LaneCuts cuts;
  std::vector<BufferPtr> buffers;  // one for each lane, dense row-major
};
using LanePiecesPtr = std::shared_ptr<const LanePieces>;

// The whole array; of one that every lane holds whole, the first lane's own buffer.
BufferPtr put_together(const LanePieces& pieces, const Type& type);

// Where a box begins, in elements, when it is one stretch of a dense row-major array; -1 when it is not.
int64_t stretch(const Shape& shape, const IndexBox& box);

// Copies a box of a whole array to a dense piece, and back. `size` is that of an element.
void copy_out(const std::byte* whole, const Shape& shape, const IndexBox& box, int64_t size, std::byte* piece);
void copy_in(const std::byte* piece, const Shape& shape, const IndexBox& box, int64_t size, std::byte* whole);

}  // namespace lockstep::detail
