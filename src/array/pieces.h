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
  std::vector<BufferPtr> buffers;  // one for each lane, dense row-major; null on lanes of other processes
  bool spread = false;             // the lanes are those of all processes
  bool gpu = false;                // in the memory of the lanes' GPUs

  bool cut() const;
  // Whether this process can put it together: it has all the pieces, or each is the whole.
  bool complete() const;
};
using LanePiecesPtr = std::shared_ptr<const LanePieces>;

// The lanes that carry a mesh.
struct MeshLanes {
  LaneGrid grid;                // without axes: nothing of the mesh crosses lanes
  bool spread = false;          // over all processes, as many of each; else they are lanes of this one
  int64_t first = 0, here = 1;  // those of this process, by their place in the grid
};
// Throws Error for a mesh that leaves out some processes and not others, or lists them out of order.
MeshLanes lanes_of(const Mesh& mesh);

// A lane of this process, by its place in the grid, among those of this process.
int64_t lane_here(const LanePieces& pieces, int64_t lane);

// What it holds, in host memory: a copy, which waits for what computes it, where it lies on a GPU.
BufferPtr piece_of(const LanePieces& pieces, int64_t lane);

// The whole array; of one that every lane holds whole, the buffer of a lane here. REQUIRES: complete().
BufferPtr put_together(const LanePieces& pieces, const Type& type);

// Where a box begins, in elements, when it is one stretch of a dense row-major array; -1 when it is not.
int64_t stretch(const Shape& shape, const IndexBox& box);

// Copies a box of a whole array to a dense piece, and back. `size` is that of an element.
void copy_out(const std::byte* whole, const Shape& shape, const IndexBox& box, int64_t size, std::byte* piece);
void copy_in(const std::byte* piece, const Shape& shape, const IndexBox& box, int64_t size, std::byte* whole);

}  // namespace lockstep::detail
