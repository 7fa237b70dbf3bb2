// Equations move up to where they free memory. Text in, text out.
#include "passes/free_early.h"

#include <gtest/gtest.h>

#include "ops/ops.h"

namespace lockstep {
namespace {

std::string moved(std::string_view text) { return print(free_early(parse(text, all_ops()))); }

// The update of a weight comes after the last use of the weight; what only leads to updates comes early as well.
TEST(FreeEarly, UpdatesComeRightAfterTheirGradients) {
  EXPECT_EQ(moved(R"(program(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64], %3:f32[]) {
  %4:f32[64,64] = tanh %2
  %5:f32[64,64] = einsum[spec="ij,jk->ik"] %4 %0
  %6:f32[64,64] = einsum[spec="ij,jk->ik"] %5 %1
  %7:f32[] = exp %3
  %8:f32[64,64] = broadcast[dims=[], shape=[64,64]] %7
  %9:f32[64,64] = einsum[spec="ij,ik->jk"] %4 %8
  %10:f32[64,64] = mul %0 %9
  %11:f32[64,64] = add %5 %1
  return %10 %11 %6
})"),
            R"(program(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64], %3:f32[]) {
  %4:f32[] = exp %3
  %5:f32[64,64] = tanh %2
  %6:f32[64,64] = einsum[spec="ij,jk->ik"] %5 %0
  %7:f32[64,64] = einsum[spec="ij,jk->ik"] %6 %1
  %8:f32[64,64] = add %6 %1
  %9:f32[64,64] = broadcast[dims=[], shape=[64,64]] %4
  %10:f32[64,64] = einsum[spec="ij,ik->jk"] %5 %9
  %11:f32[64,64] = mul %0 %10
  return %11 %8 %7
}
)");
}

TEST(FreeEarly, EquationsThatNeedMoreMemoryStay) {
  const std::string text = R"(program(%0:f32[64,64], %1:f32[64,64]) {
  %2:f32[64,64] = tanh %0
  %3:f32[64,64] = sin %0
  %4:f32[64,64] = mul %2 %1
  %5:f32[64,64] = add %3 %4
  %6:f32[64,64] = sub %5 %2
  return %6
}
)";
  EXPECT_EQ(moved(text), text);
}

}  // namespace
}  // namespace lockstep
