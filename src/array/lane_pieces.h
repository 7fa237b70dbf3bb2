// LanePieces: an array divided over lanes, one piece per lane. Immutable once an Array refers to it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "sharding/lanes.h"

namespace lockstep::detail {

struct LanePieces {
  LaneGrid grid;
  LaneSpec lane_spec;
  std::vector<BufferPtr> buffers;  // one per lane, dense row-major; null for lanes of other processes
  bool across_processes = false;   // over the lanes of all processes; else of this one

  // Whether some dimension is divided; else every lane holds the complete array.
  bool is_sharded() const;
  // Whether this process holds the complete array: all pieces, or a replica.
  bool complete() const;
};
using LanePiecesPtr = std::shared_ptr<const LanePieces>;

// The lanes that execute the devices of a mesh.
struct MeshLanes {
  LaneGrid grid;                             // without axes: no mesh axis crosses lanes
  bool across_processes = false;             // equally many lanes of every process; else lanes of this process
  int64_t first_local = 0, local_count = 1;  // the lanes of this process, by grid position
};
// Throws Error unless the devices of the mesh belong to one process, or equally many to every process, in process
// order.
MeshLanes lanes_of(const Mesh& mesh);

// Converts a lane's grid position to its index among the lanes of this process.
int64_t local_lane(const LanePieces& pieces, int64_t lane);

// A lane's piece in host memory. If it is in other memory: a copy, which waits until the piece is computed.
BufferPtr piece_on_host(const LanePieces& pieces, int64_t lane);

// The complete array in host memory. For a replicated array: the buffer of a local lane. REQUIRES:
// complete().
BufferPtr assemble(const LanePieces& pieces, const Type& type);

// The offset of a box, in elements, if it is contiguous in a dense row-major array; else -1.
int64_t contiguous_offset(const Shape& shape, const IndexBox& box);

// Copy a box of an array to a dense piece, and a dense piece into a box of an array. `size` is the size of an
// element.
void extract_box(const std::byte* whole, const Shape& shape, const IndexBox& box, int64_t size, std::byte* piece);
void insert_box(const std::byte* piece, const Shape& shape, const IndexBox& box, int64_t size, std::byte* whole);

}  // namespace lockstep::detail
