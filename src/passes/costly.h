// What equations cost, as far as a schedule must know. Pure functions, safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "program/op.h"

namespace lockstep {

// Views and constants cost nothing wherever they stand.
inline bool is_free(const Eqn& eqn) { return eqn.op->view || (eqn.in.empty() && !eqn.op->meets); }

// Results of up to this size may be held on to until they are needed.
inline constexpr int64_t kSmallBytes = 4096;

// Where in a program the costly equations stand (products, not elementwise ones or those that change an operand where
// it lies), those worth talking behind.
class Costly {
 public:
  explicit Costly(const Program& p) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      const Eqn& eqn = p.eqns[i];
      if (eqn.op->meets || eqn.op->loop || eqn.op->alias || is_free(eqn)) continue;
      if (std::any_of(eqn.in.begin(), eqn.in.end(), [&](ValueId id) { return p.types[id].bytes() > kSmallBytes; }))
        places_.push_back(i);
    }
  }

  // How many stand before `place`.
  size_t count(size_t place) const {
    return static_cast<size_t>(std::lower_bound(places_.begin(), places_.end(), place) - places_.begin());
  }
  // The place from which `n` of them stand before `place`; 0 where there are not so many.
  size_t before(size_t place, size_t n) const {
    const size_t there = count(place);
    return there >= n ? places_[there - n] : 0;
  }
  // The place up to which `n` of them stand from `place` on; `end` where there are not so many.
  size_t after(size_t place, size_t n, size_t end) const {
    const size_t there = count(place) + n - 1;
    return there < places_.size() ? places_[there] + 1 : end;
  }

 private:
  std::vector<size_t> places_;
};

}  // namespace lockstep
