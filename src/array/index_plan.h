// IndexPlan: what the indices of x(...) select, by NumPy's rules. Plain values; one thread.
#pragma once

#include <span>
#include <vector>

#include "lockstep/index.h"

namespace lockstep::detail {

struct IndexPlan {
  // Along each dimension of x: the elements starts[d], starts[d] + steps[d], ..., of which there are sizes[d].
  std::vector<int64_t> starts, sizes, steps;
  std::vector<bool> dropped;  // by an integer: the dimension is not in the result

  // The dimensions that arrays select from, their arrays, and the shape to which these broadcast. A mask is
  // replaced by arrays of the places where it is true.
  std::vector<int64_t> point_dims;
  std::vector<Array> points;
  Shape points_shape;
  bool points_first = false;  // whether their dimensions come first in the result; else in place

  Shape result;  // the shape of x(...)
  Shape plain;   // the same without new axes

  // Whether arrays select, but each one element.
  bool has_scalar_points() const { return !points.empty() && points_shape.empty(); }
};

// Throws Error if the indices do not fit x.
IndexPlan plan_indices(const Array& x, std::span<const Index> indices);

// Positions along a dimension of this extent, as an array of the type that counts them.
Array index_vector(std::vector<int64_t> positions, int64_t extent);

// For each dimension of a mask, the indices of its true elements. Throws Error if the mask is traced.
std::vector<Array> places_of(const Array& mask);

// Whether the indices are one mask of the leading dimensions, and everything else is kept.
bool is_one_mask(std::span<const Index> indices);

// Throws Error unless the mask has the extents of x from dimension `dim` on.
void check_mask(const Array& x, const Array& mask, int64_t dim);

}  // namespace lockstep::detail
