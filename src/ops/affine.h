// Affine views: which element of an input's dense buffer each element of an iteration space reads. Plain values.
#pragma once

#include <optional>

#include "program/op.h"

namespace lockstep {

// The whole of a dense array, in order.
View dense_view(const Shape& shape);

// `inner` reads a buffer for every index of `middle`; `outer` reads the dense array of shape `middle` for every index
// of `shape`. Together: the view that reads the buffer for every index of `shape`, or nothing when that is not affine
// (a reshape of a transposed array, say).
std::optional<View> compose(const View& outer, const Shape& shape, const View& inner, const Shape& middle);

// A loop of a nest: how many steps, and how far apart.
struct AffineDim {
  int64_t extent;
  int64_t stride;
  bool operator==(const AffineDim&) const = default;
};

// The fewest loops, outermost first, that visit a view's elements in row-major order: extents of 1 are left out and
// neighbours that go on in step are merged. Empty for one element.
std::vector<AffineDim> collapse(const View& view, const Shape& shape);

// Does element i of the space read element `view.offset + i`?
bool is_contiguous(const View& view, const Shape& shape);

// Do all elements read the same one?
bool is_uniform(const View& view, const Shape& shape);

}  // namespace lockstep
