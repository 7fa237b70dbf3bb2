// Shape and Type: what is known of an array before it has data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/dtype.h"

namespace lockstep {

// Extent of each dimension, outermost first. Empty for a scalar.
using Shape = std::vector<int64_t>;

// How many elements an array of this shape has. Throws Error when that does not fit 62 bits or an extent is negative.
int64_t count(const Shape&);

// "[128, 784]".
std::string to_string(const Shape&);

struct Type {
  DType dtype = DType::f32;
  Shape shape = {};
  // In per-device code (shard_map): the mesh axes along which devices may hold different values, sorted. Empty elsewhere.
  std::vector<std::string> varying = {};

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t bytes() const { return count(shape) * size_of(dtype); }
  bool operator==(const Type&) const = default;
};
using Types = std::span<const Type>;

// "f32[128,784]", as in programs; with what it varies over: "f32[16,784]{data}".
std::string to_string(const Type&);

}  // namespace lockstep
