// Which rows of a program become one persistent kernel. Needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "plan/schedule_interpreter.h"

namespace lockstep {
namespace {

// By kernel: "library", or the number of its tasks.
std::vector<std::string> kernels_of(Builder& b, const Values& out) {
  const ScheduledProgram scheduled = schedule_program(b.take(out), {false, false}, {});
  std::vector<std::string> kernels;
  for (const detail::KernelSchedule& kernel : scheduled.schedule.kernels)
    kernels.push_back(kernel.library ? "library" : std::to_string(kernel.tasks.size()));
  return kernels;
}

using Kernels = std::vector<std::string>;

TEST(SchedulePlanner, SmallRowsAreJoined) {
  Builder b;
  const Value x = b.input({DType::f32, {256, 256}}), y = b.input({DType::f32, {256, 256}});
  EXPECT_EQ(kernels_of(b, {einsum("mk,kn->mn", tanh(x), y)}), Kernels{"2"});
}

// A launch costs a large row little, and it would keep all multiprocessors.
TEST(SchedulePlanner, LargeRowsAreLaunchedByThemselves) {
  {
    Builder b;  // 1.7e10 operations
    const Value x = b.input({DType::f32, {2048, 2048}}), y = b.input({DType::f32, {2048, 2048}});
    EXPECT_EQ(kernels_of(b, {einsum("mk,kn->mn", x, y)}), Kernels{"library"});
  }
  Builder b;  // many thread blocks
  const Value x = b.input({DType::f32, {1 << 24}}), y = b.input({DType::f32, {1 << 24}});
  EXPECT_EQ(kernels_of(b, {tanh(x) * y}), (Kernels{"library", "library"}));
}

}  // namespace
}  // namespace lockstep
#endif
