// Sharding of the dimensions that windows slide over. A shard of y needs a shard of x and its halo: the elements of the
// neighbors' shards that its windows reach. Pure functions, safe from any thread.
//
// Worked example. Windows of 3 with stride 1 and padding {1, 1} over x [8], on 2 lanes. y[0:4] needs x[-1:5]: padding
// before x[0:4] and a halo of 1 after it. y[4:8] needs x[3:9]: a halo of 1 before x[4:8] and padding after it. The
// gradient of x[0:4] needs dy[-1:5], so dy has halos, too.
#pragma once

#include <algorithm>
#include <utility>

#include "program/op.h"

namespace lockstep {

// A dimension of x that windows slide over, each `span` elements long, and the dimension of y.
struct SlidingWindow {
  int64_t in = 0, out = 0, span = 1, stride = 1, low = 0, high = 0, base_dilation = 1;

  // Whether shards of y need shards of x with the same boundaries, in steps of `stride` elements.
  bool is_shardable() const {
    return base_dilation == 1 && in == out * stride && low >= 0 && low < span && high >= 0 && out > 0;
  }
  // What a shard of y needs of x around the same shard of x; and a shard of x of y.
  Halo of_x() const { return {low, std::max<int64_t>(span - stride - low, 0)}; }
  Halo of_y() const { return {(span - 1 - low) / stride, (low + stride - 1) / stride}; }
  bool needs_position() const { return low > 0 || high > 0 || span > stride; }
};

// Makes the dimension of x with factor `from` and that of y with factor `to` one factor `from` that may be sharded.
// Operands with x's dimension have a halo if `x_has_halo`, those with y's if `y_has_halo`; an empty halo still says
// that no shard may be empty.
inline void share_factor(Rule& rule, char from, char to, const SlidingWindow& w, bool x_has_halo, bool y_has_halo) {
  if (w.stride > 1) {  // otherwise there may be no steps at all
    rule.in_step.resize(rule.in.size());
    rule.out_step.resize(rule.out.size());
  }
  rule.in_halo.resize(rule.in.size());
  const auto learn = [&](std::vector<std::string>& terms, Steps& steps, Halos* halos) {
    for (size_t t = 0; t < terms.size(); ++t) {
      const bool is_x = terms[t].find(from) != std::string::npos, is_y = terms[t].find(to) != std::string::npos;
      if (is_x && w.stride > 1) steps[t][from] = w.stride;
      if (halos && is_x && x_has_halo) (*halos)[t][from] = w.of_x();
      if (halos && is_y && y_has_halo) (*halos)[t][from] = w.of_y();
      std::replace(terms[t].begin(), terms[t].end(), to, from);
    }
  };
  learn(rule.in, rule.in_step, &rule.in_halo);
  learn(rule.out, rule.out_step, nullptr);
  std::erase(rule.unsharded, from);
  std::erase(rule.unsharded, to);
  if (w.needs_position()) rule.position_dependent += from;
}

// The padding {low, high} of a shard whose x has halos: only the shards at the ends have padding.
inline std::pair<int64_t, int64_t> padding_of_shard(const SlidingWindow& w, Range shard) {
  return {shard.begin == 0 ? w.low : 0, shard.end == w.out ? w.high : 0};
}

// The padding of a shard whose y has halos: such that the windows of y [local_y] slide over x [local_x].
inline std::pair<int64_t, int64_t> padding_of_gradient(const SlidingWindow& w, Range shard, int64_t local_x,
                                                       int64_t local_y) {
  const int64_t low = w.low + (shard.begin == 0 ? 0 : w.of_y().before * w.stride);
  return {low, std::max<int64_t>((local_y - 1) * w.stride + w.span - local_x - low, 0)};
}

}  // namespace lockstep
