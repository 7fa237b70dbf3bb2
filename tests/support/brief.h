// LOCKSTEP_BRIEF_TESTS reduces the repetitions of tests that do the same many times: under a tool that makes a
// kernel a thousand times slower, the first repetitions find what it can find.
#pragma once

#include <cstdlib>

namespace lockstep {

template <class T>
T brief(T usually, T briefly) {
  return std::getenv("LOCKSTEP_BRIEF_TESTS") ? briefly : usually;
}

}  // namespace lockstep
