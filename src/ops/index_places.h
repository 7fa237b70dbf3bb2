// What the rows that gather and scatter share. They treat their arrays as
//   x [batch, pre, n, post], indices [batch, places], slices [batch, pre, places, post].
// Pure functions; those of Values belong to the thread of their Builder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "program/op.h"

namespace lockstep {

// The type of slices of `x` at `indices`. Throws Error, which begins with `op`, if the operands do not fit the
// attributes `axis` and `batch_dims`.
Type slices_type(std::string_view op, const Type& x, const Type& indices, const Attrs& attrs);

// Terms of x, the indices and the slices; the indexed dimension is not sharded.
struct PlaceTerms {
  std::string x, indices, slices, places;
  char axis;
};
PlaceTerms place_terms(const Type& x, const Type& indices, const Attrs& attrs);

struct PlaceSizes {
  int64_t batch, pre, n, places, post;

  PlaceSizes(const Type& x, const Type& indices, const Attrs& attrs);
};

// What becomes of an element and an update. `set` takes the update; updates are combined in row-major order of the
// indices, so the last one stays.
enum class ScatterHow : uint8_t { add, set, multiply, min, max };

// The attribute `how`; of scatter_add, which has none, `add`. Throws Error for another text.
ScatterHow scatter_how(const Attrs& attrs);

// The gradient of the row `scatter`.
Grads scatter_vjp(const Vjp& v);

// 1 for indices inside [0, n), else 0, broadcast over the slices of type `like`.
Value indices_inside(Value indices, Value like, int64_t n, int64_t axis, int64_t batch_dims);

// An array of the shape of the indices, broadcast over the slices of type `like`.
Value over_slices(Value of_indices, Value like, int64_t axis, int64_t batch_dims);

// The indices clamped to [0, n), as gather reads them.
Value clamp_indices(Value indices, int64_t n);

}  // namespace lockstep
