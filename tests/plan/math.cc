// Plans of GPUs multiply as they do unless asked otherwise, by TF32, which is settled when the first of them is made:
// these tests are of such plans, and compare what they compute with references that allow for it.
#include <cstdlib>

namespace {
[[maybe_unused]] const bool by_tf32 = ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1) == 0;
}  // namespace
