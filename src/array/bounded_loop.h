// A loop that ends early, for algorithms of rejection and the like. Safe to call from any thread.
#pragma once

#include <vector>

#include "lockstep/control.h"
#include "lockstep/reduce.h"

namespace lockstep::detail {

// Repeats state = body(state) while any element of running(state) is true, at most `rounds` times. Rounds after the end
// cost almost nothing. It has gradients, unlike a loop without a bound.
template <class Running, class BodyOfLoop>
Arrays bounded_while(int64_t rounds, const Running& running, const BodyOfLoop& body, const Arrays& state) {
  return fori_loop(
      0, rounds,
      [&](const Array&, const Arrays& now) {
        return cond(
            any(running(now)), [&](const Arrays& s) -> Arrays { return body(s); }, [](const Arrays& s) { return s; },
            now);
      },
      state);
}

}  // namespace lockstep::detail
