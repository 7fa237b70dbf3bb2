// hold_out(): sets a part of a source aside, for validation or as a test set. Safe from any thread.
#pragma once

#include <cstdint>

#include "lockstep/source.h"

namespace lockstep {

struct SourceSplit {
  SourcePtr kept;      // trains
  SourcePtr held_out;  // does not
};

// Divides a source at random: held_out gets `share` of the examples, rounded, at least one. The choice is a function of
// the number of examples and the seed: examples 0 .. n-1 are put in the order Shuffle(n, seed, 0), and the last ones are
// held out. It is the same on every machine, in every process and when a run resumes. Throws Error unless
// 0 < share < 1 and both parts have an example.
SourceSplit hold_out(const SourcePtr& source, double share, uint64_t seed = 0);

}  // namespace lockstep
