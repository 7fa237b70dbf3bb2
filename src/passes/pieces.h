// Large weights that are never whole. Where weights are cut (ZeRO 3), a lane that put a layer's together would hold n
// times its part, and as much again of the gradient before it is scattered. So large ones go in pieces: a piece is
// gathered and multiplied with while the next is on its way, and a piece of a gradient is scattered while the next is
// computed. Comes after regather, before the rest of a schedule: decided from the program of lane 0, carried out on
// each by the places of equations. Pure functions, safe from any thread.
//
// Worked example. The weights of a layer, 1024 x 1024, are cut by rows on 2 lanes. Forwards,
//
//   W = lane_all_gather w            f32[512,1024] -> f32[1024,1024]
//   y = einsum "bi,io->bo" x W
//
// becomes, in two pieces along o (W has another dimension, i, that lanes have cut already),
//
//   W0 = lane_all_gather w[:, 0:512]         W1 = lane_all_gather w[:, 512:1024]
//   y0 = einsum "bi,io->bo" x W0             y1 = einsum "bi,io->bo" x W1          y = y0 and y1 side by side
//
// Backwards, in dx = einsum "bo,io->bi" dy W, o is summed over: the pieces of W are multiplied with pieces of dy and
// the products added up, the first to the second and so on. The gradient einsum "bi,bo->io" x dy is computed in pieces
// along o too; each is scattered, and its part put into its place among the rows of this lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace lockstep {

struct PiecesOptions {
  // A piece is about a so-many-th of what a lane holds of the whole: two or three are there at a time.
  int64_t per_lane = 4;
  // But no smaller than this: each is a meeting of the lanes, and a product of its own. What makes no two of them goes
  // as a whole.
  int64_t least_bytes = 128 << 10;
  // Nor so small that a lane's share of it is less: many lanes pass shares on one after another.
  int64_t least_share = 16 << 10;
  // Nor with fewer steps along the dimension that is cut: narrow products are slow.
  int64_t least_extent = 64;
};

// The gather or scatter of an equation is done in pieces along a dimension of its operand.
struct InPieces {
  size_t meeting = 0;
  size_t dim = 0;
  int64_t pieces = 1;
  bool operator==(const InPieces&) const = default;
};

// Gathers of which all uses are products, and scatters of products; where what has to be cut and put together besides
// is no larger than what is gathered or scattered. In the order of equations.
std::vector<InPieces> decide_pieces(const Program& lane0, const PiecesOptions& options = {});

// Changes no result but for the rounding of sums that are taken in another order.
Program in_pieces(const Program& lane, const std::vector<InPieces>& decided);

}  // namespace lockstep
