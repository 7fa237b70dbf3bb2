// Affine views: which element of an input's dense buffer each element of an iteration space reads. Plain values.
#pragma once

#include <optional>

#include "program/op.h"

namespace lockstep {

// The view that reads all of a dense array in order.
View dense_view(const Shape& shape);

// `inner` reads a buffer for every index of `middle`; `outer` reads the dense array of shape `middle` for every index
// of `shape`. Returns the view that reads the buffer for every index of `shape`, or nullopt if that is not affine (for
// example, a reshape of a transposed array).
std::optional<View> compose(const View& outer, const Shape& shape, const View& inner, const Shape& middle);

// One loop of a loop nest: the number of iterations and the stride between them, in elements.
struct AffineDim {
  int64_t extent;
  int64_t stride;
  bool operator==(const AffineDim&) const = default;
};

// The fewest loops, outermost first, that visit a view's elements in row-major order. Extents of 1 are dropped, and
// adjacent dimensions that one stride can traverse are merged. Empty for one element.
std::vector<AffineDim> collapse(const View& view, const Shape& shape);

// Whether element i of the space reads element `view.offset + i`.
bool is_contiguous(const View& view, const Shape& shape);

// Whether all elements of the space read the same one.
bool is_uniform(const View& view, const Shape& shape);

}  // namespace lockstep
