// Tasks in phases, chains and tasks of the same elements: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

std::string with_phases(const std::string& text) { return rewritten(text, assign_phases); }

TEST(AssignPhases, OperandsAreComputedInAnEarlierPhase) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[320,320]) {
  %1:f32[320,320] = tanh %0
  %2:f32[320,320] = transpose[permutation=[1,0]] %1
  %3:f32[320,320] = exp %0
  return %2 %3
}
)"),
            R"(kernel(%0:f32[320,320]) {
  phase {
    %1:f32[320,320] = tanh %0
    %3:f32[320,320] = exp %0
  }
  phase {
    %2:f32[320,320] = transpose[permutation=[1,0]] %1
  }
  return %2 %3
}
)");
}

TEST(AssignPhases, MemoryIsOverwrittenAfterItIsRead) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[320,320], %1:f32[320,320]) {
  %2:f32[320,320] = transpose[permutation=[1,0]] %0
  %3:f32[320,320] over %0 = transpose[permutation=[1,0]] %1
  return %2 %3
}
)"),
            R"(kernel(%0:f32[320,320], %1:f32[320,320]) {
  phase {
    %2:f32[320,320] = transpose[permutation=[1,0]] %0
  }
  phase {
    %3:f32[320,320] over %0 = transpose[permutation=[1,0]] %1
  }
  return %2 %3
}
)");
}

// The exponentials depend on nothing and come first; they do not join the chain.
TEST(AssignPhases, DependentSmallTasksFormAChain) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[320,320], %1:f32[1,8]) {
  %2:f32[320,320] = tanh %0
  %3:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %2
  %4:f32[1,8] = tanh %3
  %5:f32[1,8] = exp %1
  %6:f32[1,8] = add %4 %5
  %7:f32[9999,1,8] = broadcast[dims=[1,2], shape=[9999,1,8]] %6
  return %7
}
)"),
            R"(kernel(%0:f32[320,320], %1:f32[1,8]) {
  phase {
    %2:f32[320,320] = tanh %0
    %5:f32[1,8] = exp %1
  }
  phase {
    chain {
      %3:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %2
      %4:f32[1,8] = tanh %3
      %6:f32[1,8] = add %4 %5
    }
  }
  phase {
    %7:f32[9999,1,8] = broadcast[dims=[1,2], shape=[9999,1,8]] %6
  }
  return %7
}
)");
}

TEST(AssignPhases, ChainsWithACommonUserAreMerged) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[8]) {
  %1:f32[8] = tanh %0
  %2:f32[8] = exp %1
  %3:f32[8] = exp %0
  %4:f32[8] = tanh %3
  %5:f32[8] = add %2 %4
  return %5
}
)"),
            R"(kernel(%0:f32[8]) {
  phase {
    chain {
      %1:f32[8] = tanh %0
      %2:f32[8] = exp %1
      %3:f32[8] = exp %0
      %4:f32[8] = tanh %3
      %5:f32[8] = add %2 %4
    }
  }
  return %5
}
)");
}

// The two thread blocks of the product exchange partial sums: one alone would wait forever.
TEST(AssignPhases, CooperativeTaskIsNotInAChain) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[8,72], %1:f32[72,8]) {
  %2:f32[8,72] = tanh %0
  %3:f32[8,8] = einsum[spec="mk,kn->mn"] %2 %1 (tile=16x16x64, warps=1x2x8, split_k=2, stages=2)
  %4:f32[8,8] = tanh %3
  return %4
}
)"),
            R"(kernel(%0:f32[8,72], %1:f32[72,8]) {
  phase {
    %2:f32[8,72] = tanh %0
  }
  phase {
    %3:f32[8,8] = einsum[spec="mk,kn->mn"] %2 %1 (tile=16x16x64, warps=1x2x8, split_k=2, stages=2)
  }
  phase {
    %4:f32[8,8] = tanh %3
  }
  return %4
}
)");
  // Without split-K, all three are a chain.
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[8,72], %1:f32[72,8]) {
  %2:f32[8,72] = tanh %0
  %3:f32[8,8] = einsum[spec="mk,kn->mn"] %2 %1 (tile=16x16x64, warps=1x2x8, stages=2)
  %4:f32[8,8] = tanh %3
  return %4
}
)"),
            R"(kernel(%0:f32[8,72], %1:f32[72,8]) {
  phase {
    chain {
      %2:f32[8,72] = tanh %0
      %3:f32[8,8] = einsum[spec="mk,kn->mn"] %2 %1 (tile=16x16x64, warps=1x2x8, stages=2)
      %4:f32[8,8] = tanh %3
    }
  }
  return %4
}
)");
}

// A thread reads only what it has written.
TEST(AssignPhases, TasksOfTheSameElementsShareATask) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[320,320], %1:f32[320,320]) {
  %2:f32[320,320] = tanh %0
  %3:f32[320,320] = add %2 %1
  return %2 %3
}
)"),
            R"(kernel(%0:f32[320,320], %1:f32[320,320]) {
  phase {
    elements {
      %2:f32[320,320] = tanh %0
      %3:f32[320,320] = add %2 %1
    }
  }
  return %2 %3
}
)");
}

TEST(AssignPhases, TasksOfOtherElementsDoNot) {
  // It reads other elements; there are more of them; it overwrites what other threads read.
  for (const std::string second :
       {"%2:f32[320,320] = transpose[permutation=[1,0]] %1",
        "%2:f32[320,320,320] = broadcast[dims=[1,2], shape=[320,320,320]] %1", "%2:f32[320,320] over %0 = exp %1"}) {
    const std::string text =
        with_phases("kernel(%0:f32[320,320]) {\n  %1:f32[320,320] = tanh %0\n  " + second + "\n  return %1 %2\n}\n");
    EXPECT_EQ(text, "kernel(%0:f32[320,320]) {\n  phase {\n    %1:f32[320,320] = tanh %0\n  }\n  phase {\n    " +
                        second + "\n  }\n  return %1 %2\n}\n");
  }
}

// It needs another task of the same phase, too.
TEST(AssignPhases, TaskThatNeedsTwoTasksOfAPhaseDoesNotShareOne) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[320,320], %1:f32[320,320]) {
  %2:f32[320,320] = tanh %0
  %3:f32[320,320] = exp %1
  %4:f32[320,320] = add %2 %3
  return %4
}
)"),
            R"(kernel(%0:f32[320,320], %1:f32[320,320]) {
  phase {
    %2:f32[320,320] = tanh %0
    %3:f32[320,320] = exp %1
  }
  phase {
    %4:f32[320,320] = add %2 %3
  }
  return %4
}
)");
}

TEST(AssignPhases, LongestTaskComesFirst) {
  EXPECT_EQ(with_phases(R"(kernel(%0:f32[320,320], %1:f32[64,64], %2:f32[512,1024], %3:f32[1024,1024], %4:f32[8]) {
  %5:f32[320,320] = tanh %0
  %6:f32[64,64] = einsum[spec="mk,kn->mn"] %1 %1
  %7:f32[512,1024] = einsum[spec="mk,kn->mn"] %2 %3
  %8:f32[8] = tanh %4
  %9:f32[8] = exp %8
  return %5 %6 %7 %9
}
)"),
            R"(kernel(%4:f32[8], %2:f32[512,1024], %3:f32[1024,1024], %1:f32[64,64], %0:f32[320,320]) {
  phase {
    chain {
      %8:f32[8] = tanh %4
      %9:f32[8] = exp %8
    }
    %7:f32[512,1024] = einsum[spec="mk,kn->mn"] %2 %3
    %6:f32[64,64] = einsum[spec="mk,kn->mn"] %1 %1
    %5:f32[320,320] = tanh %0
  }
  return %5 %6 %7 %9
}
)");
}

TEST(AssignPhases, StagesOfAReductionAreOrdered) {
  EXPECT_EQ(with_phases(rewritten(R"(kernel(%0:f32[1000000]) {
  %1:f32[] = reduce_sum[axes=[0]] %0
  return %1
}
)",
                                  split_reductions)),
            R"(kernel(%0:f32[1000000]) {
  phase {
    %2:f32[122,1] = reduce_sum[axes=[0]] %0 (stage=partial)
  }
  phase {
    %1:f32[] = reduce_sum[axes=[0]] %2 (stage=combine)
  }
  return %1
}
)");
}

// Tasks that tie keep the order of the kernel, also if phases are assigned again.
TEST(AssignPhases, PhasesCanBeAssignedAgain) {
  KernelSchedule kernel = parse_kernel(R"(kernel(%0:f32[8], %1:f32[320,320], %2:f32[320,320]) {
  %3:f32[8] = tanh %0
  %4:f32[320,320] = tanh %1
  %5:f32[320,320] = transpose[permutation=[1,0]] %4
  %6:f32[8] = exp %3
  %7:f32[320,320] = exp %2
  %8:f32[320,320] = exp %4
  return %5 %6 %7 %8
}
)",
                                       {});
  assign_phases(kernel, {});
  const std::string once = print(kernel);
  EXPECT_EQ(once, R"(kernel(%0:f32[8], %1:f32[320,320], %2:f32[320,320]) {
  phase {
    chain {
      %3:f32[8] = tanh %0
      %6:f32[8] = exp %3
    }
    elements {
      %4:f32[320,320] = tanh %1
      %8:f32[320,320] = exp %4
    }
    %7:f32[320,320] = exp %2
  }
  phase {
    %5:f32[320,320] = transpose[permutation=[1,0]] %4
  }
  return %5 %6 %7 %8
}
)");
  assign_phases(kernel, {});
  EXPECT_EQ(print(kernel), once);
  EXPECT_EQ(with_phases(once), once) << "as parsed";
}

}  // namespace
}  // namespace lockstep::detail
#endif
