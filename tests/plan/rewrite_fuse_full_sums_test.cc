// Products that add up results themselves: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

std::string with_full_sums(const std::string& text) { return rewritten(text, fuse_full_sums); }
void expect_no_full_sums(const std::string& text) { EXPECT_EQ(with_full_sums(text), text); }

// The new weights, and the squares of their gradient.
const std::string kSquares = R"(einsum_fused[body=program(%0:f32[64,64], %1:f32[64,64]) {
      %2:f32[64,64] = sub %1 %0
      %3:f32[64,64] = mul %0 %0
      return %2 %3
    }, spec="km,kn->mn"] %0 %1 %2)";
const std::string kBegin = R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  %3:f32[64,64], %4:f32[64,64] = )" +
                           kSquares;

TEST(FuseFullSums, ResultsThatAreOnlySummedAreNotWritten) {
  EXPECT_EQ(with_full_sums(kBegin + R"(
  %5:f32[] = reduce_sum[axes=[0,1]] %4
  return %3 %5
}
)"),
            R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  %3:f32[64,64], %6:f32[512] = )" +
                kSquares + R"( (summed=1)
  %5:f32[] = reduce_sum[axes=[0]] %6
  return %3 %5
}
)");
}

// Another task may run between the product and the sum. The sum may read the value as an array of another shape, and
// have a result of one element.
TEST(FuseFullSums, SumsMayComeLaterAndOfAnotherShape) {
  EXPECT_EQ(with_full_sums(kBegin + R"(
  %5:f32[64,64] = tanh %3
  %6:f32[1] = reduce_sum[axes=[1]] %4:f32[1,4096]
  %7:f32[1] = sqrt %6
  return %3 %5 %7
}
)"),
            R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  %3:f32[64,64], %8:f32[512] = )" +
                kSquares + R"( (summed=1)
  %5:f32[64,64] = tanh %3
  %6:f32[] = reduce_sum[axes=[0]] %8
  %7:f32[1] = sqrt %6:f32[1]
  return %3 %5 %7
}
)");
}

TEST(FuseFullSums, SumsOfSeveralProducts) {
  const std::string again = R"(einsum_fused[body=program(%0:f32[64,64], %1:f32[64,64]) {
      %2:f32[64,64] = sub %1 %0
      %3:f32[64,64] = mul %0 %0
      return %2 %3
    }, spec="km,kn->mn"] %1 %0 %3)";
  EXPECT_EQ(with_full_sums(kBegin + R"(
  %5:f32[64,64], %6:f32[64,64] = )" +
                           again + R"(
  %7:f32[] = reduce_sum[axes=[0,1]] %4
  %8:f32[] = reduce_sum[axes=[0,1]] %6
  return %5 %7 %8
}
)"),
            R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  %3:f32[64,64], %9:f32[512] = )" +
                kSquares + R"( (summed=1)
  %5:f32[64,64], %10:f32[512] = )" +
                again + R"( (summed=1)
  %7:f32[] = reduce_sum[axes=[0]] %9
  %8:f32[] = reduce_sum[axes=[0]] %10
  return %5 %7 %8
}
)");
}

TEST(FuseFullSums, ResultsWithOtherReadersAreWritten) {
  expect_no_full_sums(kBegin + R"(
  %5:f32[] = reduce_sum[axes=[0,1]] %4
  return %3 %4 %5
}
)");
  // Before the sum, and after it.
  expect_no_full_sums(kBegin + R"(
  %5:f32[64,64] = tanh %4
  %6:f32[] = reduce_sum[axes=[0,1]] %4
  return %3 %5 %6
}
)");
  expect_no_full_sums(kBegin + R"(
  %5:f32[] = reduce_sum[axes=[0,1]] %4
  %6:f32[64,64] = tanh %4
  return %3 %5 %6
}
)");
  // The reader overwrites it.
  expect_no_full_sums(kBegin + R"(
  %5:f32[] = reduce_sum[axes=[0,1]] %4
  %6:f32[64,64] over %4 = tanh %4
  return %3 %5 %6
}
)");
  // It is summed twice.
  expect_no_full_sums(kBegin + R"(
  %5:f32[] = reduce_sum[axes=[0,1]] %4
  %6:f32[] = reduce_sum[axes=[0,1]] %4
  return %3 %5 %6
}
)");
}

// Not sums of some axes, or other reductions.
TEST(FuseFullSums, OnlySumsOfAllElementsAreFused) {
  expect_no_full_sums(kBegin + R"(
  %5:f32[64] = reduce_sum[axes=[0]] %4
  return %3 %5
}
)");
  expect_no_full_sums(kBegin + R"(
  %5:f32[] = reduce_max[axes=[0,1]] %4
  return %3 %5
}
)");
}

TEST(FuseFullSums, TasksThatCannotAddUpWrite) {
  // A product with only one result.
  expect_no_full_sums(R"(kernel(%0:f32[64,64], %1:f32[64,64]) {
  %2:f32[64,64] = einsum[spec="km,kn->mn"] %0 %1
  %3:f32[] = reduce_sum[axes=[0,1]] %2
  return %3
}
)");
  // In place of an operand.
  expect_no_full_sums(R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  %3:f32[64,64], %4:f32[64,64] over %2 = )" +
                      kSquares + R"(
  %5:f32[] = reduce_sum[axes=[0,1]] %4
  return %3 %5
}
)");
  // Not a product.
  expect_no_full_sums(R"(kernel(%0:f32[64,64], %1:f32[64,64]) {
  %2:f32[64,64], %3:f32[64,64] = fused[body=program(%0:f32[64,64], %1:f32[64,64]) {
      %2:f32[64,64] = sub %1 %0
      %3:f32[64,64] = mul %0 %0
      return %2 %3
    }] %0 %1
  %4:f32[] = reduce_sum[axes=[0,1]] %3
  return %2 %4
}
)");
  // An input of the kernel.
  expect_no_full_sums(R"(kernel(%0:f32[64,64]) {
  %1:f32[] = reduce_sum[axes=[0,1]] %0
  return %1
}
)");
  // Fewer elements than sums.
  expect_no_full_sums(R"(kernel(%0:f32[16,16], %1:f32[16,16], %2:f32[16,16]) {
  %3:f32[16,16], %4:f32[16,16] = einsum_fused[body=program(%0:f32[16,16], %1:f32[16,16]) {
      %2:f32[16,16] = sub %1 %0
      %3:f32[16,16] = mul %0 %0
      return %2 %3
    }, spec="km,kn->mn"] %0 %1 %2
  %5:f32[] = reduce_sum[axes=[0,1]] %4
  return %3 %5
}
)");
}

}  // namespace
}  // namespace lockstep::detail
#endif
