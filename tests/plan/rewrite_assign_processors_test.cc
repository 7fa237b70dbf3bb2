// Multiprocessors divided among the tasks of a phase: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

std::string with_processors_assigned(const std::string& text) {
  KernelSchedule kernel = parse_kernel(text, {});
  assign_phases(kernel, {});
  assign_processors(kernel, {});
  check(kernel);
  return print(kernel);
}

// In proportion to their work. A small one gets what is left, or an eighth if that is too little.
TEST(AssignProcessors, ProductsOfAPhaseShareTheGpu) {
  EXPECT_EQ(with_processors_assigned(R"(kernel(%0:f32[128,1024], %1:f32[1024,1024], %2:f32[1024,512], %3:f32[256,64]) {
  %4:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
  %5:f32[128,512] = einsum[spec="mk,kn->mn"] %0 %2
  %6:f32[256,256] = einsum[spec="mk,nk->mn"] %3 %3
  %7:f32[64,64] = einsum[spec="km,kn->mn"] %3 %3
  return %4 %5 %6 %7
}
)"),
            R"(kernel(%0:f32[128,1024], %1:f32[1024,1024], %2:f32[1024,512], %3:f32[256,64]) {
  phase {
    %4:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1 (processors=85)
    %5:f32[128,512] = einsum[spec="mk,kn->mn"] %0 %2 (processors=42)
    %6:f32[256,256] = einsum[spec="mk,nk->mn"] %3 %3 (processors=36)
    %7:f32[64,64] = einsum[spec="km,kn->mn"] %3 %3 (processors=16)
  }
  return %4 %5 %6 %7
}
)");
}

// One product stays as it is; tasks that are not products get the other multiprocessors, or a quarter if these are too
// few.
TEST(AssignProcessors, OtherTasksGetWhatAProductLeaves) {
  EXPECT_EQ(with_processors_assigned(R"(kernel(%0:f32[64,256], %1:f32[256,256], %2:f32[128,1024], %3:f32[8]) {
  %4:f32[64,256] = einsum[spec="mk,kn->mn"] %0 %1
  ranges 128 {
    %5:f32[128,1024] = tanh %2
    %6:f32[128] = reduce_max[axes=[1]] %5
  }
  ranges 128 {
    %7:f32[128,1024] = exp %2
    %8:f32[128] = reduce_max[axes=[1]] %7
  }
  %9:f32[8] = tanh %3
  %10:f32[8] = exp %9
  return %4 %6 %8 %10
}
)"),
            R"(kernel(%3:f32[8], %0:f32[64,256], %1:f32[256,256], %2:f32[128,1024]) {
  phase {
    chain {
      %9:f32[8] = tanh %3
      %10:f32[8] = exp %9
    }
    %4:f32[64,256] = einsum[spec="mk,kn->mn"] %0 %1
    ranges 64 {
      %5:f32[128,1024] = tanh %2
      %6:f32[128] = reduce_max[axes=[1]] %5
    }
    ranges 32 {
      %7:f32[128,1024] = exp %2
      %8:f32[128] = reduce_max[axes=[1]] %7
    }
  }
  return %4 %6 %8 %10
}
)");
}

// A row whose layout does not depend on the number stays.
TEST(AssignProcessors, ElementwiseRowsStay) {
  const std::string text = R"(kernel(%0:f32[128,1024], %1:f32[1024,1024], %2:f32[640,640]) {
  phase {
    %3:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
    %4:f32[640,640] = tanh %2
  }
  return %3 %4
}
)";
  EXPECT_EQ(rewritten(text, assign_processors), text);
}

TEST(AssignProcessors, PhasesWithoutProductsStay) {
  const std::string text = R"(kernel(%0:f32[640,640], %1:f32[640,640]) {
  phase {
    %2:f32[640,640] = tanh %0
    %3:f32[640,640] = exp %1
  }
  return %2 %3
}
)";
  EXPECT_EQ(rewritten(text, assign_processors), text);
}

// Partial results would have another type; all members of a task have the same elements.
TEST(AssignProcessors, StagesAndCompositeTasksStay) {
  const std::string text = R"(kernel(%0:f32[128,1024], %1:f32[1024,1024], %2:f32[1000000], %3:f32[640,640]) {
  phase {
    %4:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
    %5:f32[122,1] = reduce_sum[axes=[0]] %2 (stage=partial)
    elements {
      %6:f32[640,640] = tanh %3
      %7:f32[640,640] = exp %6
    }
  }
  return %4 %5 %7
}
)";
  EXPECT_EQ(rewritten(text, assign_processors), text);
}

}  // namespace
}  // namespace lockstep::detail
#endif
