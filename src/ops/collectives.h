// Collectives along one mesh axis of per-device code. Each operates on values that vary over the axis; other operands
// are first made to vary. The type of the result records the axes over which it varies. Collectives have no kernels:
// batching over the axis replaces them by ordinary ops. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// The same value, marked as varying over `axis`. Costs nothing at run time.
Value pvary(Value x, const std::string& axis);

// The sum, maximum and minimum over the devices along the axis; the result is the same on all of them.
Value psum(Value x, const std::string& axis);
Value pmax(Value x, const std::string& axis);
Value pmin(Value x, const std::string& axis);

// The values of all devices, stacked along a new dimension `dim` in the order of the axis.
Value all_gather(Value x, const std::string& axis, int64_t size, int64_t dim);

// Sums over the devices; device i keeps element i of dimension `dim`, whose extent is the size of the axis.
Value psum_scatter(Value x, const std::string& axis, int64_t size, int64_t dim);

// Exchanges dimension `dim`, whose extent is the size of the axis, with the axis: element j of device i comes from
// element i of device j.
Value all_to_all(Value x, const std::string& axis, int64_t size, int64_t dim);

// Device permutation[2k + 1] receives the value of device permutation[2k]; devices that receive nothing have zeros.
Value ppermute(Value x, const std::string& axis, int64_t size, std::vector<int64_t> permutation);

// The device's index along the axis, an i32 scalar.
Value axis_index(Builder&, const std::string& axis, int64_t size);

}  // namespace lockstep
