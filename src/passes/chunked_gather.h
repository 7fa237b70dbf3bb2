// Gathers large sharded weights, and scatters large gradients, chunk by chunk. With sharded weights (ZeRO 3) a lane
// that gathers a layer's weights would hold n times its piece, and as much again of the gradient before it is
// scattered. Instead one chunk of the weights is gathered while the previous one is multiplied, and one chunk of a
// gradient is scattered while the next is computed. Runs after regather and before the rest of the schedule: the chunks
// are chosen from the program of lane 0 and applied to the program of each lane by equation index. Pure functions, safe
// from any thread.
//
// Worked example. The weights of a layer, 1024 x 1024, are sharded by rows on 2 lanes. The forward pass
//
//   W = lane_all_gather w            f32[512,1024] -> f32[1024,1024]
//   y = einsum "bi,io->bo" x W
//
// becomes, in two chunks along o (dimension i of W is already sharded by lanes),
//
//   W0 = lane_all_gather w[:, 0:512]         W1 = lane_all_gather w[:, 512:1024]
//   y0 = einsum "bi,io->bo" x W0             y1 = einsum "bi,io->bo" x W1          y = y0, y1 concatenated along o
//
// In the backward pass dx = einsum "bo,io->bi" dy W sums over o: each chunk of W is multiplied with a chunk of dy, and
// the products are added in order. The gradient einsum "bi,bo->io" x dy is also computed in chunks along o; each chunk
// is scattered, and this lane's part is written to its position in the piece of the gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace lockstep {

struct ChunkOptions {
  // A chunk has about 1/chunks_per_piece of the bytes of a lane's piece. Two or three chunks exist at a time.
  int64_t chunks_per_piece = 4;
  // A chunk has at least this size, because each costs a collective and a product. Arrays that would have fewer than
  // two chunks are not divided.
  int64_t min_bytes = 128 << 10;
  // A lane's part of a chunk has at least this size: in a ring the parts are passed on one after another.
  int64_t min_bytes_per_lane = 16 << 10;
  // A chunk has at least this extent along the divided dimension: narrow products are slow.
  int64_t min_extent = 64;
};

// The gather or scatter of equation `eqn` is done in `chunks` chunks along dimension `dim` of its operand.
struct ChunkedCollective {
  size_t eqn = 0;
  size_t dim = 0;
  int64_t chunks = 1;
  bool operator==(const ChunkedCollective&) const = default;
};

// Chooses gathers that are used only by products, and scatters of products, if no operand or result that must be sliced
// or concatenated is larger than the gathered or scattered array. In the order of equations.
std::vector<ChunkedCollective> choose_chunks(const Program& lane0, const ChunkOptions& options = {});

// Rewrites the program of a lane. Results are equal except for the rounding of sums in a different order.
Program apply_chunks(const Program& lane, const std::vector<ChunkedCollective>& chosen);

}  // namespace lockstep
