// Gradients, batching and splitting of one small network. Text in, text out.
#include <gtest/gtest.h>

#include "ops/ops.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

Program read(std::string_view text) { return parse(text, all_ops()); }

// Operands: an example, the weights of a layer, the weights of the result.
const std::string_view kNetwork = R"(program(%0:f32[4], %1:f32[4,3], %2:f32[3]) {
  %3:f32[3] = einsum[spec="i,ij->j"] %0 %1
  %4:f32[3] = tanh %3
  %5:f32[] = einsum[spec="j,j->"] %4 %2
  return %5
})";

TEST(Joint, HasOutputsThenGradients) {
  EXPECT_EQ(print(joint(read(kNetwork), {false, true, true})), R"(program(%0:f32[4], %1:f32[4,3], %2:f32[3], %3:f32[]) {
  %4:f32[3] = einsum[spec="i,ij->j"] %0 %1
  %5:f32[3] = tanh %4
  %6:f32[] = einsum[spec="j,j->"] %5 %2
  %7:f32[3] = einsum[spec=",j->j"] %3 %2
  %8:f32[3] = einsum[spec="j,->j"] %5 %3
  %9:f32[3] = full[dtype=f32, shape=[3], value=1.0]
  %10:f32[3] = add %9 %5
  %11:f32[3] = full[dtype=f32, shape=[3], value=1.0]
  %12:f32[3] = sub %11 %5
  %13:f32[3] = mul %10 %12
  %14:f32[3] = mul %7 %13
  %15:f32[4,3] = einsum[spec="i,j->ij"] %0 %14
  return %6 %15 %8
}
)");
}

TEST(Joint, UnusedInputsGetZeros) {
  EXPECT_EQ(print(joint(read("program(%0:f32[2], %1:f32[3]) {\n  %2:f32[2] = sin %0\n  return %2\n}"), {false, true})),
            R"(program(%0:f32[2], %1:f32[3], %2:f32[2]) {
  %3:f32[2] = sin %0
  %4:f32[3] = full[dtype=f32, shape=[3], value=0.0]
  return %3 %4
}
)");
}

TEST(Joint, RematComputesItsBodyAgain) {
  EXPECT_EQ(print(joint(read(R"(program(%0:f32[4]) {
  %1:f32[4] = remat[body=program(%0:f32[4]) {
    %1:f32[4] = sin %0
    %2:f32[4] = tanh %1
    return %2
  }] %0
  return %1
})"),
                        {true})),
            R"(program(%0:f32[4], %1:f32[4]) {
  %2:f32[4] = remat[body=program(%0:f32[4]) {
      %1:f32[4] = sin %0
      %2:f32[4] = tanh %1
      return %2
    }] %0
  %3:f32[4] = remat[body=program(%0:f32[4], %1:f32[4]) {
      %2:f32[4] = sin %0
      %3:f32[4] = tanh %2
      %4:f32[4] = full[dtype=f32, shape=[4], value=1.0]
      %5:f32[4] = add %4 %3
      %6:f32[4] = full[dtype=f32, shape=[4], value=1.0]
      %7:f32[4] = sub %6 %3
      %8:f32[4] = mul %5 %7
      %9:f32[4] = mul %1 %8
      %10:f32[4] = cos %0
      %11:f32[4] = mul %9 %10
      return %11
    }] %0 %1
  return %2 %3
}
)");
}

TEST(Batch, AddsALeadingAxisToDependentValues) {
  const BatchedProgram b = batch(read(kNetwork), {true, false, false}, 8, {});
  EXPECT_EQ(b.batched, std::vector<bool>{true});
  EXPECT_EQ(print(b.program), R"(program(%0:f32[8,4], %1:f32[4,3], %2:f32[3]) {
  %3:f32[8,3] = einsum[spec="zi,ij->zj"] %0 %1
  %4:f32[8,3] = tanh %3
  %5:f32[8] = einsum[spec="zj,j->z"] %4 %2
  return %5
}
)");
}

TEST(Batch, LeavesOtherValuesUnlessForced) {
  const Program p =
      read("program(%0:f32[2], %1:f32[3]) {\n  %2:f32[2] = sin %0\n  %3:f32[3] = cos %1\n  return %2 %3\n}");
  EXPECT_EQ(batch(p, {true, false}, 4, {}).batched, (std::vector<bool>{true, false}));
  const BatchedProgram forced = batch(p, {true, false}, 4, {false, true});
  EXPECT_EQ(forced.batched, (std::vector<bool>{true, true}));
  EXPECT_EQ(print(forced.program), R"(program(%0:f32[4,2], %1:f32[3]) {
  %2:f32[4,2] = sin %0
  %3:f32[3] = cos %1
  %4:f32[4,3] = broadcast[dims=[1], shape=[4,3]] %3
  return %2 %4
}
)");
}

TEST(Split, SplitsAtTheCotangent) {
  const Split s = split(joint(read(kNetwork), {false, true, true}), 3, 1);
  EXPECT_EQ(s.outputs, 1u);
  EXPECT_EQ(s.residual_input, (std::vector<int>{2, -1, -1, 0}));
  EXPECT_EQ(print(s.known), R"(program(%0:f32[4], %1:f32[4,3], %2:f32[3]) {
  %3:f32[3] = einsum[spec="i,ij->j"] %0 %1
  %4:f32[3] = tanh %3
  %5:f32[] = einsum[spec="j,j->"] %4 %2
  %6:f32[3] = full[dtype=f32, shape=[3], value=1.0]
  %7:f32[3] = add %6 %4
  %8:f32[3] = sub %6 %4
  %9:f32[3] = mul %7 %8
  return %5 %2 %4 %9 %0
}
)");
  EXPECT_EQ(print(s.rest), R"(program(%0:f32[3], %1:f32[3], %2:f32[3], %3:f32[4], %4:f32[]) {
  %5:f32[3] = einsum[spec=",j->j"] %4 %0
  %6:f32[3] = einsum[spec="j,->j"] %1 %4
  %7:f32[3] = mul %5 %2
  %8:f32[4,3] = einsum[spec="i,j->ij"] %3 %7
  return %8 %6
}
)");
}

}  // namespace
}  // namespace lockstep
