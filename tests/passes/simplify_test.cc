// Simplification: dead code, common subexpressions, folds. Text in, text out.
#include <gtest/gtest.h>

#include "ops/ops.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

std::string simplified(std::string_view text) { return print(simplify(parse(text, all_ops()))); }

TEST(Simplify, RemovesDuplicatesAndDeadCode) {
  EXPECT_EQ(simplified(R"(program(%0:f32[4], %1:f32[4]) {
  %2:f32[4] = tanh %0
  %3:f32[4] = tanh %0
  %4:f32[4] = sin %1
  %5:f32[4] = mul %2 %3
  return %5
})"),
            R"(program(%0:f32[4], %1:f32[4]) {
  %2:f32[4] = tanh %0
  %3:f32[4] = mul %2 %2
  return %3
}
)");
}

TEST(Simplify, FoldsConstantsAndInverseViews) {
  EXPECT_EQ(simplified(R"(program(%0:f32[2,3]) {
  %1:f32[] = full[dtype=f32, shape=[], value=2.0]
  %2:f32[] = full[dtype=f32, shape=[], value=3.0]
  %3:f32[] = mul %1 %2
  %4:f32[2,3] = broadcast[dims=[], shape=[2,3]] %3
  %5:f32[3,2] = transpose[permutation=[1,0]] %0
  %6:f32[2,3] = transpose[permutation=[1,0]] %5
  %7:f32[2,3] = add %6 %4
  %8:f32[6] = reshape[shape=[6]] %7
  %9:f32[2,3] = reshape[shape=[2,3]] %8
  %10:f32[2,3] = neg %9
  %11:f32[2,3] = neg %10
  return %11
})"),
            R"(program(%0:f32[2,3]) {
  %1:f32[2,3] = full[dtype=f32, shape=[2,3], value=6.0]
  %2:f32[2,3] = add %0 %1
  return %2
}
)");
}

TEST(Simplify, ReadsOperandsOfProductsThroughTransposesAndMergesSums) {
  EXPECT_EQ(simplified(R"(program(%0:f32[2,3], %1:f32[4,3]) {
  %2:f32[3,4] = transpose[permutation=[1,0]] %1
  %3:f32[2,4] = einsum[spec="ik,kj->ij"] %0 %2
  %4:f32[2] = reduce_sum[axes=[1]] %3
  %5:f32[] = reduce_sum[axes=[0]] %4
  return %5
})"),
            R"(program(%0:f32[2,3], %1:f32[4,3]) {
  %2:f32[2,4] = einsum[spec="ik,jk->ij"] %0 %1
  %3:f32[] = reduce_sum[axes=[0,1]] %2
  return %3
}
)");
}

TEST(Simplify, KeepsEquationsThatDifferInAnAttribute) {
  const std::string text = R"(program(%0:f32[2,2]) {
  %1:f32[2] = reduce_sum[axes=[0]] %0
  %2:f32[2] = reduce_sum[axes=[1]] %0
  %3:f32[2] = add %1 %2
  return %3
}
)";
  EXPECT_EQ(simplified(text), text);
}

// x + 0.0 is 0.0, not x, for x = -0.0.
TEST(Simplify, PreservesTheSignOfZero) {
  const std::string kept = R"(program(%0:f32[2]) {
  %1:f32[2] = full[dtype=f32, shape=[2], value=0.0]
  %2:f32[2] = add %0 %1
  return %2
}
)";
  EXPECT_EQ(simplified(kept), kept);
  EXPECT_EQ(simplified(R"(program(%0:f32[2]) {
  %1:f32[2] = full[dtype=f32, shape=[2], value=0.0]
  %2:f32[2] = sub %0 %1
  return %2
})"),
            "program(%0:f32[2]) {\n  return %0\n}\n");
}

TEST(Simplify, KeepsUnusedInputsAndRepeatedOutputs) {
  EXPECT_EQ(simplified("program(%0:f32[], %1:f32[]) {\n  return %1 %1\n}"),
            "program(%0:f32[], %1:f32[]) {\n  return %1 %1\n}\n");
}

// The recomputation of a remat must not be replaced by the first computation.
TEST(Lower, KeepsRematerialisedWorkApart) {
  const Program both = joint(parse(R"(program(%0:f32[4]) {
  %1:f32[4] = remat[body=program(%0:f32[4]) {
    %1:f32[4] = sin %0
    %2:f32[4] = tanh %1
    return %2
  }] %0
  return %1
})",
                                   all_ops()),
                             {true});
  const std::string text = print(lower(both));
  size_t times = 0;
  for (size_t at = text.find(" sin "); at != std::string::npos; at = text.find(" sin ", at + 1)) ++times;
  EXPECT_EQ(times, 2u) << text;
}

TEST(Lower, InlinesCustomGradientsEarly) {
  const std::string body = "program(%0:f32[2]) {\n  %1:f32[2] = sin %0\n  return %1\n}";
  const std::string backward = "program(%0:f32[2], %1:f32[2]) {\n  return %0\n}";
  const std::string text =
      "program(%0:f32[2]) {\n  %1:f32[2] = sin %0\n  %2:f32[2] = custom_vjp[arguments=1, backward=" + backward +
      ", body=" + body + ", forward=" + body + "] %0\n  return %1 %2\n}";
  EXPECT_EQ(print(lower(parse(text, all_ops()))), "program(%0:f32[2]) {\n  %1:f32[2] = sin %0\n  return %1 %1\n}\n");
}

}  // namespace
}  // namespace lockstep
