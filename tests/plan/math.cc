// GPU plans use TF32 by default; the setting is read when the first plan is made. These tests use the default, and
// compare with references that allow for it.
#include <cstdlib>

namespace {
[[maybe_unused]] const bool by_tf32 = ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1) == 0;
}  // namespace
