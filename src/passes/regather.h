// Frees gathered weights after their use and gathers them again for a later use. With sharded weights (ZeRO 3) a
// layer's full weights exist during its products in the forward pass and again in the backward pass, but not in
// between, so a lane never holds the full weights of more than a few layers. Runs after partition(), as the first part
// of a schedule: the regathers are chosen from the program of lane 0 and applied to the program of each lane by
// equation index. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace lockstep {

struct RegatherOptions {
  // Keeps a gathered array if no more than this many expensive equations are between two uses.
  size_t keep_within = 2;
  // Keeps smaller arrays: gathering them again would cost more than their memory is worth.
  int64_t min_bytes = 16 << 10;
};

// The gather of equation `gather` is repeated before equation `use`, for that use and later ones.
struct Regather {
  size_t gather = 0;
  size_t use = 0;
  bool operator==(const Regather&) const = default;
};

// Chooses among gathers whose operands are computed from inputs by elementwise equations and views alone: these pieces
// are available anyway. In the order of the uses.
std::vector<Regather> choose_regathers(const Program& lane0, const RegatherOptions& options = {});

// Rewrites the program of a lane. Does not change results.
Program apply_regathers(const Program& lane, const std::vector<Regather>& regathers);

}  // namespace lockstep
