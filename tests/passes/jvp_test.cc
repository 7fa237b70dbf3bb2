// Tangents of small programs. Text in, text out.
#include <gtest/gtest.h>

#include "base/throws.h"
#include "ops/ops.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

std::string tangent_text(std::string_view text, const std::vector<bool>& wanted) {
  return print(simplify(jvp(parse(text, all_ops()), wanted)));
}

TEST(Tangents, FollowTheOutputs) {
  EXPECT_EQ(tangent_text(R"(program(%0:f32[4], %1:f32[4,3], %2:i32[]) {
  %3:f32[3] = einsum[spec="i,ij->j"] %0 %1
  %4:f32[3] = sin %3
  return %4 %2
})",
                         {true, true, false}),
            R"(program(%0:f32[4], %1:f32[4,3], %2:i32[], %3:f32[4], %4:f32[4,3]) {
  %5:f32[3] = einsum[spec="i,ij->j"] %0 %1
  %6:f32[3] = einsum[spec="i,ij->j"] %3 %1
  %7:f32[3] = einsum[spec="i,ij->j"] %0 %4
  %8:f32[3] = add %6 %7
  %9:f32[3] = sin %5
  %10:f32[3] = cos %5
  %11:f32[3] = mul %8 %10
  return %9 %2 %11
}
)");
}

// Operands without a derivative stay.
TEST(Tangents, OfLinearOpsAreTheSameOps) {
  EXPECT_EQ(tangent_text(R"(program(%0:f32[2], %1:f32[2]) {
  %2:f32[4] = concatenate[axis=0] %0 %1
  %3:f32[2,2] = reshape[shape=[2,2]] %2
  %4:f32[2,2] = transpose[permutation=[1,0]] %3
  %5:f32[2] = reduce_sum[axes=[0]] %4
  return %5
})",
                         {true, false}),
            R"(program(%0:f32[2], %1:f32[2], %2:f32[2]) {
  %3:f32[4] = concatenate[axis=0] %0 %1
  %4:f32[2] = full[dtype=f32, shape=[2], value=0.0]
  %5:f32[4] = concatenate[axis=0] %2 %4
  %6:f32[2,2] = reshape[shape=[2,2]] %3
  %7:f32[2,2] = reshape[shape=[2,2]] %5
  %8:f32[2,2] = transpose[permutation=[1,0]] %6
  %9:f32[2,2] = transpose[permutation=[1,0]] %7
  %10:f32[2] = reduce_sum[axes=[0]] %8
  %11:f32[2] = reduce_sum[axes=[0]] %9
  return %10 %11
}
)");
}

TEST(Tangents, OfOtherRowsAreTheTransposedGradient) {
  EXPECT_EQ(tangent_text("program(%0:f32[2]) {\n  %1:bf16[2] = cast[dtype=bf16] %0\n  return %1\n}", {true}),
            R"(program(%0:f32[2], %1:f32[2]) {
  %2:bf16[2] = cast[dtype=bf16] %0
  %3:bf16[2] = cast[dtype=bf16] %1
  return %2 %3
}
)");
}

TEST(Tangents, OfIndexedElementsHaveTheSameIndices) {
  EXPECT_EQ(tangent_text(R"(program(%0:f32[3,2], %1:i32[2]) {
  %2:f32[2,2] = gather[axis=0, batch_dims=0] %0 %1
  return %2
})",
                         {true, false}),
            R"(program(%0:f32[3,2], %1:i32[2], %2:f32[3,2]) {
  %3:f32[2,2] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[2,2] = gather[axis=0, batch_dims=0] %2 %1
  return %3 %4
}
)");
}

TEST(Tangents, ThatAreZeroAreConstants) {
  EXPECT_EQ(tangent_text(R"(program(%0:f32[2], %1:f32[2]) {
  %2:f32[2] = stop_gradient %0
  %3:f32[2] = mul %2 %1
  return %3
})",
                         {true, false}),
            R"(program(%0:f32[2], %1:f32[2], %2:f32[2]) {
  %3:f32[2] = stop_gradient %0
  %4:f32[2] = mul %3 %1
  %5:f32[2] = full[dtype=f32, shape=[2], value=0.0]
  return %4 %5
}
)");
}

// One loop computes both. A carry has a tangent only if the tangents of the operands reach it.
TEST(Tangents, OfALoopAreCarriedBeside) {
  EXPECT_EQ(tangent_text(R"(program(%0:f32[], %1:f32[], %2:f32[3]) {
  %3:f32[], %4:f32[], %5:f32[3] = scan[body=program(%0:f32[], %1:f32[], %2:f32[]) {
      %3:f32[] = mul %0 %2
      %4:f32[] = sin %1
      return %3 %4 %4
    }, carry=2, length=3, reverse=false, xs=1] %0 %1 %2
  return %3 %5
})",
                         {false, false, true}),
            R"(program(%0:f32[], %1:f32[], %2:f32[3], %3:f32[3]) {
  %4:f32[] = full[dtype=f32, shape=[], value=0.0]
  %5:f32[], %6:f32[], %7:f32[], %8:f32[3] = scan[body=program(%0:f32[], %1:f32[], %2:f32[], %3:f32[], %4:f32[]) {
      %5:f32[] = mul %0 %3
      %6:f32[] = mul %2 %3
      %7:f32[] = mul %4 %0
      %8:f32[] = add %6 %7
      %9:f32[] = sin %1
      %10:f32[] = full[dtype=f32, shape=[], value=0.0]
      %11:f32[] = full[dtype=f32, shape=[], value=0.0]
      return %5 %9 %8 %9
    }, carry=3, length=3, reverse=false, xs=2] %0 %1 %4 %2 %3
  %9:f32[3] = full[dtype=f32, shape=[3], value=0.0]
  return %5 %8 %7 %9
}
)");
}

}  // namespace
}  // namespace lockstep
