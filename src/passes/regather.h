// What was put together from the pieces of lanes, given up after its use and put together again for a later one. Where
// weights are cut (ZeRO 3), a layer's are whole while it multiplies in the forward pass and again in the backward pass,
// not from the one to the other, so that a lane never holds more than a few layers whole. Comes after partition(), as
// the first part of a schedule: decided from the program of lane 0, carried out on each by the places of equations.
// Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace lockstep {

struct RegatherOptions {
  // What the next so many costly equations do not need is given up.
  size_t keep = 2;
  // Smaller ones are kept: meeting again would cost more than their memory is worth.
  int64_t least_bytes = 16 << 10;
};

// Before the equation `use`, the gather of the equation `gather` is done again, for that one and those after it.
struct Again {
  size_t gather = 0;
  size_t use = 0;
  bool operator==(const Again&) const = default;
};

// Gathers of what is made of inputs by elementwise equations and views alone: their pieces are there anyway. In the
// order of their uses.
std::vector<Again> decide_again(const Program& lane0, const RegatherOptions& options = {});

// Changes no result.
Program gather_again(const Program& lane, const std::vector<Again>& again);

}  // namespace lockstep
