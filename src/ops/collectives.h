// Collectives along one mesh axis of per-device code. Each acts on values that vary over the axis (others are made to
// first); what the result varies over is part of its type. They have no kernels: batching over the axis turns them into
// ordinary ops.
#pragma once

#include "program/builder.h"

namespace lockstep {

// The same value, allowed to vary over `axis`. Free.
Value pvary(Value x, const std::string& axis);

// The sum, greatest and least over the devices along the axis; the same on all of them.
Value psum(Value x, const std::string& axis);
Value pmax(Value x, const std::string& axis);
Value pmin(Value x, const std::string& axis);

// The values of all devices along a new dimension `dim`, in the order of the axis.
Value all_gather(Value x, const std::string& axis, int64_t size, int64_t dim);

// Dimension `dim`, of the extent of the axis, summed over the devices; device i keeps element i.
Value psum_scatter(Value x, const std::string& axis, int64_t size, int64_t dim);

// Dimension `dim`, of the extent of the axis, changes places with the axis: element j of device i comes from element i
// of device j.
Value all_to_all(Value x, const std::string& axis, int64_t size, int64_t dim);

// Device permutation[2k + 1] gets the value of device permutation[2k]; those that get none have zeros.
Value ppermute(Value x, const std::string& axis, int64_t size, std::vector<int64_t> permutation);

// The device's place along the axis, an i32 scalar.
Value axis_index(Builder&, const std::string& axis, int64_t size);

}  // namespace lockstep
