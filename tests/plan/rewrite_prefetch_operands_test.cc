// Operands that are prefetched before a phase begins: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

// The previous phase writes one operand of the second product; the weights can be prefetched.
TEST(PrefetchOperands, UnwrittenOperandsArePrefetched) {
  EXPECT_EQ(rewritten(R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  phase {
    %3:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  }
  phase {
    %4:f32[64,64] = einsum[spec="mk,kn->mn"] %3 %2
  }
  return %4
}
)",
                      prefetch_operands),
            R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  phase {
    %3:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  }
  phase {
    %4:f32[64,64] = einsum[spec="mk,kn->mn"] %3 %2 (prefetch=[%2])
  }
  return %4
}
)");
}

// What phases before the previous one wrote is complete.
TEST(PrefetchOperands, ResultsOfEarlierPhasesArePrefetched) {
  EXPECT_EQ(rewritten(R"(kernel(%0:f32[64,64], %1:f32[64,64]) {
  phase {
    %2:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  }
  phase {
    %3:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %1
  }
  phase {
    %4:f32[64,64] = einsum[spec="mk,kn->mn"] %3 %2
    %5:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %1
  }
  return %4 %5
}
)",
                      prefetch_operands),
            R"(kernel(%0:f32[64,64], %1:f32[64,64]) {
  phase {
    %2:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  }
  phase {
    %3:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %1 (prefetch=[%1])
  }
  phase {
    %4:f32[64,64] = einsum[spec="mk,kn->mn"] %3 %2 (prefetch=[%2])
    %5:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %1 (prefetch=[%2,%1])
  }
  return %4 %5
}
)");
}

// The previous phase overwrites the memory of the weights.
TEST(PrefetchOperands, OverwrittenMemoryIsNotPrefetched) {
  const std::string text = R"(kernel(%0:f32[64,64], %1:f32[64,64]) {
  phase {
    %2:f32[64,64] over %0 = tanh %0
    %3:f32[64,64] over %1 = tanh %1
  }
  phase {
    %4:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %3
  }
  return %4
}
)";
  EXPECT_EQ(rewritten(text, prefetch_operands), text);
}

// The members of a chain share its shared memory.
TEST(PrefetchOperands, ChainsPrefetchNothing) {
  const std::string text = R"(kernel(%0:f32[8,8], %1:f32[8,8], %2:f32[8,8]) {
  phase {
    %3:f32[8,8] = tanh %0
  }
  phase {
    chain {
      %4:f32[8,8] = einsum[spec="mk,kn->mn"] %3 %1
      %5:f32[8,8] = einsum[spec="mk,kn->mn"] %4 %2
    }
  }
  return %5
}
)";
  EXPECT_EQ(rewritten(text, prefetch_operands), text);
}

}  // namespace
}  // namespace lockstep::detail
#endif
