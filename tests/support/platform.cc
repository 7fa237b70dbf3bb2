// Tests compute on the CPU unless LOCKSTEP_PLATFORM says otherwise, and so does what they start: what they compare,
// bits and texts, is the CPU's. On a GPU they multiply whole floats, for their references do.
#include <cstdlib>

namespace {
[[maybe_unused]] const bool said = [] {
  ::setenv("LOCKSTEP_PLATFORM", "cpu", 0);
  ::setenv("LOCKSTEP_CUDA_MATH", "full", 0);
  return true;
}();
}  // namespace
