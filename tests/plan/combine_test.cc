// Which equations of a program are computed by one kernel (plan/cuda/combine.h), and where small ones are moved. Text in,
// text out.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/combine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"
#include "ops/cuda/combined.h"
#include "ops/ops.h"
#include "plan/cuda/gather_small.h"

namespace lockstep {
namespace {

Program parsed(const std::string& text) { return parse(text, all_ops()); }

// The kernel names of a program's combined equations, each followed by a space.
std::string combined_names(const std::string& text) {
  std::string out;
  const Program program = combine(parsed(text));
  for (const Eqn& eqn : program.eqns)
    if (const Attr* name = eqn.attrs.find("kernel")) out += std::get<std::string>(*name) + " ";
  return out;
}

// A loss and its gradient, with `dloss` as its cotangent. Operands: logits %0, labels %1, cotangent %2.
std::string loss_program(const std::string& dloss) {
  return fmt::format(R"(program(%0:f32[8,100], %1:i32[8], %2:f32[8]) {{
  %3:f32[8], %4:f32[8] = cross_entropy[smoothing=0.0] %0 %1
  %5:f32[8] = mul {0} {0}
  %6:f32[8,100] = cross_entropy_grad[smoothing=0.0] %0 %1 %4 %5
  %7:f32[] = reduce_sum[axes=[0]] %3
  return %7 %6
}})",
                     dloss);
}

TEST(Combine, TakesTheEquationsAsOneAndKeepsTheOthersInOrder) {
  EXPECT_EQ(print(combine(parsed(loss_program("%2")))), R"(program(%0:f32[8,100], %1:i32[8], %2:f32[8]) {
  %3:f32[8] = mul %2 %2
  %4:f32[8], %5:f32[8,100] = combined[body=program(%0:f32[8,100], %1:i32[8], %2:f32[8]) {
      %3:f32[8], %4:f32[8] = cross_entropy[smoothing=0.0] %0 %1
      %5:f32[8,100] = cross_entropy_grad[smoothing=0.0] %0 %1 %4 %2
      return %3 %5
    }, kernel="cross_entropy_and_grad"] %0 %1 %3
  %6:f32[] = reduce_sum[axes=[0]] %4
  return %6 %5
}
)");
}

TEST(Combine, ProgramsPrintAndParse) {
  const Program program = combine(parsed(loss_program("%2")));
  EXPECT_EQ(print(parse(print(program), gpu_ops())), print(program));
}

TEST(Combine, RejectsUnknownKernelsAndOtherOperands) {
  const auto parse_with = [](const char* kernel, const char* operand) {
    parse(fmt::format(R"(program(%0:f32[2], %1:i32[2]) {{
  %2:f32[2] = combined[body=program(%0:f32[2]) {{
      %1:f32[2] = neg %0
      return %1
    }}, kernel="{}"] {}
  return %2
}})",
                      kernel, operand),
          gpu_ops());
  };
  EXPECT_THROWS(parse_with("fast", "%0"), Error,
                "combined: no kernel is named \"fast\"; choose one of cross_entropy_and_grad, norm_grad_and_sums, "
                "product_and_column_sums, packed_attention");
  EXPECT_THROWS(parse_with("packed_attention", "%1"), Error,
                "combined: operand 0 is i32[2] and the body's input is f32[2]");
  EXPECT_THROWS(parse_with("packed_attention", "%0 %0"), Error,
                "combined: got 2 operands for the 1 inputs of the body");
}

TEST(Combine, KeepsEquationsOfWhichOneDependsOnTheOtherThroughAThird) {
  const Program program = parsed(loss_program("%3"));
  EXPECT_EQ(combine(program), program);
}

TEST(Combine, TakesAGradientOfANormWithItsResidualAndSums) {
  const auto program = [](const char* sum, const char* more = "") {
    return fmt::format(R"(program(%0:bf16[4,5,64], %1:f32[64], %2:f32[4,5], %3:bf16[4,5,64], %4:bf16[4,5,64]) {{
  %5:bf16[4,5,64], %6:f32[64] = rms_norm_grad[batch_dims=0] %0 %1 %2 %3
  %7:bf16[4,5,64] = add %4 %5
  %8:bf16[64] = reduce_sum[axes={}] %7
  return %7 %6 %8{}
}})",
                       sum, more);
  };
  EXPECT_EQ(combined_names(program("[0,1]")), "norm_grad_and_sums ");
  const Program whole = combine(parsed(program("[0,1]")));
  EXPECT_EQ(whole.eqns.size(), 1u) << print(whole);
  const Program without_residual = combine(parsed(program("[0,1]", " %5")));  // dx is used by itself
  EXPECT_EQ(without_residual.eqns.size(), 3u) << print(without_residual);
}

TEST(Combine, TakesAttentionWithSlicesOfHeadsAndTheConcatenationOfItsGradients) {
  const auto program = [](int features, int axis) {
    return fmt::format(
        R"(program(%0:bf16[2,6,9,{0}], %1:bf16[2,6,3,{0}]) {{
  %2:bf16[2,6,3,{0}] = slice[limits=[2,6,3,{0}], starts=[0,0,0,0], strides=[1,1,1,1]] %0
  %3:bf16[2,6,3,{0}] = slice[limits=[2,6,6,{0}], starts=[0,0,3,0], strides=[1,1,1,1]] %0
  %4:bf16[2,6,3,{0}] = slice[limits=[2,6,9,{0}], starts=[0,0,6,0], strides=[1,1,1,1]] %0
  %5:bf16[2,6,3,{0}], %6:f32[2,3,6] = attention[causal=true, dropout=0.0, extras="", first=[0,0,0], scale=0.2, softcap=0.0, window=0] %2 %3 %4
  %7:bf16[2,6,3,{0}], %8:bf16[2,6,3,{0}], %9:bf16[2,6,3,{0}] = attention_grad[causal=true, dropout=0.0, extras="", first=[0,0,0], scale=0.2, softcap=0.0, window=0] %2 %3 %4 %5 %6 %1
  %10:bf16[{1},{2},{3},{0}] = concatenate[axis={4}] %7 %8 %9
  return %5 %10
}})",
        features, axis == 0 ? 6 : 2, axis == 1 ? 18 : 6, axis == 2 ? 9 : 3, axis);
  };
  const Program whole = combine(parsed(program(16, 2)));
  EXPECT_EQ(whole.eqns.size(), 2u) << print(whole);
  const Program other_axis = combine(parsed(program(16, 1)));
  EXPECT_EQ(other_axis.eqns.size(), 3u) << print(other_axis);
  EXPECT_EQ(combined_names(program(12, 2)), "");  // heads are not aligned to 16 bytes
}

// Of large products only: a cache holds the results of small ones. Memory of inputs and outputs may not be aligned.
TEST(Combine, TakesTheSumsOfColumnsOfALargeProductWithAnEpilogue) {
  const auto program = [](int rows, const char* epilogue, const char* other = "%3", const char* results = "%6 %5") {
    return fmt::format(R"(program(%0:bf16[{0},64], %1:bf16[64,2048], %2:bf16[{0},2048]) {{
  %3:bf16[{0},2048] = tanh %2
  %4:bf16[{0},2048] = einsum_fused[body=program(%0:bf16[{0},2048], %1:bf16[{0},2048]) {{
      %2:bf16[{0},2048] = {1} %0 %1
      return %2
    }}, spec="mk,kn->mn"] %0 %1 {2}
  %5:bf16[2048] = reduce_sum[axes=[0]] %4
  %6:bf16[{0},64] = einsum[spec="mn,kn->mk"] %4 %1
  return {3}
}})",
                       rows, epilogue, other, results);
  };
  EXPECT_EQ(combined_names(program(16384, "mul")), "product_and_column_sums ");
  EXPECT_EQ(combined_names(program(8192, "mul")), "");
  EXPECT_EQ(combined_names(program(16384, "add")), "");  // cuBLASLt adds a residual
  EXPECT_EQ(combined_names(program(16384, "mul", "%2")), "");
  EXPECT_EQ(combined_names(program(16384, "mul", "%3", "%6 %5 %4")), "");
}

TEST(GatherSmall, MovesSmallEquationsToTheFrontOrTheEnd) {
  EXPECT_EQ(print(gather_small(parsed(R"(program(%0:f32[64,300], %1:f32[300,300], %2:f32[300], %3:f32[300]) {
  %4:f32[64,300] = einsum[spec="mk,kn->mn"] %0 %1
  %12:f32[300,300] = neg %1
  %5:f32[300] = neg %2
  %6:f32[300] = reduce_sum[axes=[0]] %4
  %7:f32[300] = add %6 %5
  %8:f32[300] = sub %3 %6
  %9:f32[300,300] = einsum[spec="mk,kn->mn"] %12 %1
  %10:f32[300] = exp %7
  %11:f32[300] = einsum[spec="mn,n->m"] %9 %10
  return %8 %9 %11
})"))),
            R"(program(%0:f32[64,300], %1:f32[300,300], %2:f32[300], %3:f32[300]) {
  %4:f32[300] = neg %2
  %5:f32[64,300] = einsum[spec="mk,kn->mn"] %0 %1
  %6:f32[300,300] = neg %1
  %7:f32[300] = reduce_sum[axes=[0]] %5
  %8:f32[300] = add %7 %4
  %9:f32[300,300] = einsum[spec="mk,kn->mn"] %6 %1
  %10:f32[300] = exp %8
  %11:f32[300] = einsum[spec="mn,n->m"] %9 %10
  %12:f32[300] = sub %3 %7
  return %12 %9 %11
}
)");
}

}  // namespace
}  // namespace lockstep
#endif
