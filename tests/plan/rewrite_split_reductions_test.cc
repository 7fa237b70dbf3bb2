// Reductions that take two tasks: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

TEST(SplitReductions, ReductionToFewResultsBecomesTwoTasks) {
  EXPECT_EQ(rewritten(R"(kernel(%0:f32[1000000]) {
  %1:f32[] = reduce_sum[axes=[0]] %0
  %2:f32[] = sqrt %1
  return %2
}
)",
                      split_reductions),
            R"(kernel(%0:f32[1000000]) {
  %3:f32[122,1] = reduce_sum[axes=[0]] %0 (stage=partial)
  %1:f32[] = reduce_sum[axes=[0]] %3 (stage=combine)
  %2:f32[] = sqrt %1
  return %2
}
)");
}

// Partial results of 16-bit floats are f32.
TEST(SplitReductions, EveryReductionHasItsOwnPartialResults) {
  EXPECT_EQ(rewritten(R"(kernel(%0:bf16[100000,16], %1:i32[100000,16]) {
  %2:bf16[16] = reduce_max[axes=[0]] %0
  %3:i32[16] = reduce_sum[axes=[0]] %1
  return %2 %3
}
)",
                      split_reductions),
            R"(kernel(%0:bf16[100000,16], %1:i32[100000,16]) {
  %4:f32[128,16] = reduce_max[axes=[0]] %0 (stage=partial)
  %2:bf16[16] = reduce_max[axes=[0]] %4 (stage=combine)
  %5:i32[128,16] = reduce_sum[axes=[0]] %1 (stage=partial)
  %3:i32[16] = reduce_sum[axes=[0]] %5 (stage=combine)
  return %2 %3
}
)");
}

TEST(SplitReductions, ReductionsOfOneTaskStay) {
  const std::string text = R"(kernel(%0:f32[128,10]) {
  %1:f32[128] = reduce_sum[axes=[1]] %0
  %2:f32[] = reduce_max[axes=[0]] %1
  return %2
}
)";
  EXPECT_EQ(rewritten(text, split_reductions), text);
}

TEST(SplitReductions, TasksAreSplitOnce) {
  const std::string once = rewritten(R"(kernel(%0:f32[1000000]) {
  %1:f32[] = reduce_sum[axes=[0]] %0
  return %1
}
)",
                                     split_reductions);
  EXPECT_EQ(rewritten(once, split_reductions), once);
}

TEST(SplitReductions, PhasesAreRemovedOnlyIfATaskIsSplit) {
  EXPECT_EQ(rewritten(R"(kernel(%0:f32[1000000], %1:f32[8]) {
  phase {
    %2:f32[] = reduce_sum[axes=[0]] %0
    chain {
      %3:f32[8] = tanh %1
      %4:f32[8] = exp %3
    }
  }
  return %2 %4
}
)",
                      split_reductions),
            R"(kernel(%0:f32[1000000], %1:f32[8]) {
  %5:f32[122,1] = reduce_sum[axes=[0]] %0 (stage=partial)
  %2:f32[] = reduce_sum[axes=[0]] %5 (stage=combine)
  %3:f32[8] = tanh %1
  %4:f32[8] = exp %3
  return %2 %4
}
)");
  const std::string without = R"(kernel(%1:f32[8]) {
  phase {
    chain {
      %3:f32[8] = tanh %1
      %4:f32[8] = exp %3
    }
  }
  return %4
}
)";
  EXPECT_EQ(rewritten(without, split_reductions), without);
}

}  // namespace
}  // namespace lockstep::detail
#endif
