// Shape and Type: what is known of an array before it has data. Plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/dtype.h"

namespace lockstep {

// The extent of each dimension, outermost first. Empty for a scalar.
using Shape = std::vector<int64_t>;

// The number of elements of an array of this shape. Throws Error for a negative extent and for more than 2^58
// elements.
int64_t count(const Shape&);

// "[128, 784]".
std::string to_string(const Shape&);

struct Type {
  DType dtype = DType::f32;
  Shape shape = {};
  // In per-device code (shard_map): the mesh axes over which the value varies, sorted. Empty elsewhere.
  std::vector<std::string> varying = {};

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t bytes() const { return count(shape) * size_of(dtype); }
  bool operator==(const Type&) const = default;
};
using Types = std::span<const Type>;

// "f32[128,784]", as in programs. In per-device code with the axes it varies over: "f32[16,784]{data}".
std::string to_string(const Type&);

}  // namespace lockstep
