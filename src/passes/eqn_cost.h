// Which equations are expensive, as far as a schedule needs to know. Pure functions and immutable values, safe from any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "program/effects.h"

namespace lockstep {

// Views and constants cost nothing wherever they are placed.
inline bool is_free(const Eqn& eqn) { return eqn.op->view || (eqn.in.empty() && !is_ordered(eqn)); }

// Results of up to this size may be kept until they are needed.
inline constexpr int64_t kSmallBytes = 4096;

// The equations of a program that are expensive enough to hide communication: products and the like, but neither
// elementwise equations nor those that update an operand in place.
class ExpensiveEqns {
 public:
  explicit ExpensiveEqns(const Program& p) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      const Eqn& eqn = p.eqns[i];
      if (eqn.op->is_collective() || eqn.op->loop || eqn.op->alias || is_free(eqn)) continue;
      if (std::any_of(eqn.in.begin(), eqn.in.end(), [&](ValueId id) { return p.types[id].bytes() > kSmallBytes; }))
        indices_.push_back(i);
    }
  }

  // The number of expensive equations before equation `index`.
  size_t count_before(size_t index) const {
    return static_cast<size_t>(std::lower_bound(indices_.begin(), indices_.end(), index) - indices_.begin());
  }
  // The index of the n-th expensive equation before `index`, counted backwards; 0 if there are fewer than n.
  size_t n_before(size_t index, size_t n) const {
    const size_t count = count_before(index);
    return count >= n ? indices_[count - n] : 0;
  }
  // The index after the n-th expensive equation from `index` on; `end` if there are fewer than n.
  size_t n_after(size_t index, size_t n, size_t end) const {
    const size_t last = count_before(index) + n - 1;
    return last < indices_.size() ? indices_[last] + 1 : end;
  }

 private:
  std::vector<size_t> indices_;
};

}  // namespace lockstep
