// Tests and the programs they start use the CPU unless LOCKSTEP_PLATFORM is set, because the bits and texts they
// compare are those of the CPU. On a GPU they multiply without TF32, as their references do.
#include <cstdlib>

namespace {
[[maybe_unused]] const bool initialized = [] {
  ::setenv("LOCKSTEP_PLATFORM", "cpu", 0);
  ::setenv("LOCKSTEP_CUDA_MATH", "full", 0);
  return true;
}();
}  // namespace
