// Tests that do the same many times do it a few times where LOCKSTEP_BRIEF_TESTS is set: under a tool that makes a
// kernel a thousand times as slow, the first times show what it can find.
#pragma once

#include <cstdlib>

namespace lockstep {

template <class T>
T brief(T usually, T briefly) {
  return std::getenv("LOCKSTEP_BRIEF_TESTS") ? briefly : usually;
}

}  // namespace lockstep
