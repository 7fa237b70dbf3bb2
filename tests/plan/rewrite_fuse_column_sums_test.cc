// Products that also add up columns: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

std::string with_column_sums(const std::string& text) { return rewritten(text, fuse_column_sums); }
void expect_no_column_sums(const std::string& text) { EXPECT_EQ(with_column_sums(text), text); }

// The gradient of weights, and a bias updated in place.
TEST(FuseColumnSums, ProductAddsUpColumns) {
  EXPECT_EQ(with_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] over %2 = sub %2 %4
  return %3 %5
}
)"),
            R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
    sums columns {
      %4:f32[1024] = reduce_sum[axes=[0]] %1
      %5:f32[1024] over %2 = sub %2 %4
    }
  return %3 %5
}
)");
}

// The sums come first, with other tasks in between.
TEST(FuseColumnSums, ProductMayComeLater) {
  EXPECT_EQ(with_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[64], %2:f32[1024], %3:f32[128,1024]) {
  %4:f32[1024] = reduce_sum[axes=[0]] %0
  %5:f32[64] = tanh %1
  %6:f32[1024] = sub %4 %2
  %7:f32[64] = exp %5
  %8:f32[1024,1024] = einsum[spec="km,kn->mn"] %3 %0
  %9:f32[1024,1024] = tanh %8
  return %6 %7 %9
}
)"),
            R"(kernel(%1:f32[64], %3:f32[128,1024], %0:f32[128,1024], %2:f32[1024]) {
  %5:f32[64] = tanh %1
  %7:f32[64] = exp %5
  %8:f32[1024,1024] = einsum[spec="km,kn->mn"] %3 %0
    sums columns {
      %4:f32[1024] = reduce_sum[axes=[0]] %0
      %6:f32[1024] = sub %4 %2
    }
  %9:f32[1024,1024] = tanh %8
  return %6 %7 %9
}
)");
}

TEST(FuseColumnSums, SeveralProductsAddUpColumns) {
  EXPECT_EQ(
      with_column_sums(
          R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024], %3:f32[128,1024], %4:f32[128,1024], %5:f32[1024]) {
  %6:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %7:f32[1024] = reduce_sum[axes=[0]] %1
  %8:f32[1024] over %2 = sub %7 %2
  %9:f32[1024,1024] = einsum[spec="km,kn->mn"] %3 %4
  %10:f32[1024] = reduce_sum[axes=[0]] %4
  %11:f32[1024] over %5 = sub %10 %5
  return %6 %8 %9 %11
}
)"),
      R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024], %3:f32[128,1024], %4:f32[128,1024], %5:f32[1024]) {
  %6:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
    sums columns {
      %7:f32[1024] = reduce_sum[axes=[0]] %1
      %8:f32[1024] over %2 = sub %7 %2
    }
  %9:f32[1024,1024] = einsum[spec="km,kn->mn"] %3 %4
    sums columns {
      %10:f32[1024] = reduce_sum[axes=[0]] %4
      %11:f32[1024] over %5 = sub %10 %5
    }
  return %6 %8 %9 %11
}
)");
}

// The new bias, and the squares of its gradient, which read the sums twice.
TEST(FuseColumnSums, SumsMayHaveSeveralReaders) {
  EXPECT_EQ(with_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024], %3:f32[64]) {
  %4:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %5:f32[1024] = reduce_sum[axes=[0]] %1
  %6:f32[1024] over %2 = sub %2 %5
  %7:f32[64] = tanh %3
  %8:f32[1024] = mul %5 %5
  return %4 %6 %7 %8
}
)"),
            R"(kernel(%3:f32[64], %0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %7:f32[64] = tanh %3
  %4:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
    sums columns {
      %5:f32[1024] = reduce_sum[axes=[0]] %1
      %6:f32[1024] over %2 = sub %2 %5
      %8:f32[1024] = mul %5 %5
    }
  return %4 %6 %7 %8
}
)");
}

// The memory of the sums is that of the last reader's result.
TEST(FuseColumnSums, LastReaderMayOverwriteTheSums) {
  EXPECT_EQ(with_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] over %2 = sub %2 %4
  %6:f32[1024] over %4 = mul %4 %4
  %7:f32[1024] = sqrt %6
  return %3 %5 %7
}
)"),
            R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
    sums columns {
      %4:f32[1024] = reduce_sum[axes=[0]] %1
      %5:f32[1024] over %2 = sub %2 %4
      %6:f32[1024] over %4 = mul %4 %4
    }
  %7:f32[1024] = sqrt %6
  return %3 %5 %7
}
)");
  // What reads the result after it is no reader of the sums.
  EXPECT_EQ(with_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] over %4 = sqrt %4
  %6:f32[1024] over %2 = sub %2 %5
  return %3 %6
}
)"),
            R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
    sums columns {
      %4:f32[1024] = reduce_sum[axes=[0]] %1
      %5:f32[1024] over %4 = sqrt %4
    }
  %6:f32[1024] over %2 = sub %2 %5
  return %3 %6
}
)");
}

// Tasks that read what is computed from the sums come after the product, and those that read these.
TEST(FuseColumnSums, TasksInBetweenAreMoved) {
  EXPECT_EQ(with_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[64], %2:f32[128,1024]) {
  %3:f32[1024] = reduce_sum[axes=[0]] %0
  %4:f32[1024] = sqrt %3
  %5:f32[1024] = tanh %4
  %6:f32[64] = exp %1
  %7:f32[1024] = exp %5
  %8:f32[1024,1024] = einsum[spec="km,kn->mn"] %2 %0
  return %6 %7 %8
}
)"),
            R"(kernel(%1:f32[64], %2:f32[128,1024], %0:f32[128,1024]) {
  %6:f32[64] = exp %1
  %8:f32[1024,1024] = einsum[spec="km,kn->mn"] %2 %0
    sums columns {
      %3:f32[1024] = reduce_sum[axes=[0]] %0
      %4:f32[1024] = sqrt %3
    }
  %5:f32[1024] = tanh %4
  %7:f32[1024] = exp %5
  return %6 %7 %8
}
)");
  // A task that overwrites an operand of the product stays after it.
  EXPECT_EQ(with_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024], %3:f32[128,1024]) {
  %4:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %5:f32[128,1024] over %0 = exp %3
  %6:f32[1024] = reduce_sum[axes=[0]] %1
  %7:f32[1024] over %2 = sub %6 %2
  return %4 %5 %7
}
)"),
            R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024], %3:f32[128,1024]) {
  %4:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
    sums columns {
      %6:f32[1024] = reduce_sum[axes=[0]] %1
      %7:f32[1024] over %2 = sub %6 %2
    }
  %5:f32[128,1024] over %0 = exp %3
  return %4 %5 %7
}
)");
}

TEST(FuseColumnSums, DependentTasksAreNotFused) {
  // The product needs what is computed from the sums.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024]) {
  %1:f32[1024] = reduce_sum[axes=[0]] %0
  %2:f32[1024] = sqrt %1
  %3:f32[128,1024] = broadcast[dims=[1], shape=[128,1024]] %2
  %4:f32[1024,1024] = einsum[spec="km,kn->mn"] %3 %0
  return %4
}
)");
  // A reader of the sums needs what is computed from the product.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024]) {
  %2:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %3:f32[1024] = reduce_max[axes=[0]] %2
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] = sub %4 %3
  return %2 %5
}
)");
  // The second reader needs what the first has written.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] over %2 = sub %2 %4
  %6:f32[1024] = sub %4 %5
  return %3 %5 %6
}
)");
  // The second reader overwrites what the first reads.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] = sub %2 %4
  %6:f32[1024] over %2 = sqrt %4
  return %3 %5 %6
}
)");
}

TEST(FuseColumnSums, SumsThatOthersNeedAreNotFused) {
  // After the kernel.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] = sub %4 %2
  return %3 %4 %5
}
)");
  // A task that needs all of them.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %1
  %5:f32[1024] = sub %4 %2
  %6:f32[] = reduce_max[axes=[0]] %4
  return %3 %5 %6
}
)");
}

TEST(FuseColumnSums, ProductsThatCannotAddUpColumns) {
  // Of another matrix.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[1024]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[1024] = reduce_sum[axes=[0]] %0
  %5:f32[1024] = sub %4 %2
  return %3 %5
}
)");
  // Of the same elements as a matrix of another shape.
  expect_no_column_sums(R"(kernel(%0:f32[128,1024], %1:f32[128,1024], %2:f32[2048]) {
  %3:f32[1024,1024] = einsum[spec="km,kn->mn"] %0 %1
  %4:f32[2048] = reduce_sum[axes=[0]] %1:f32[64,2048]
  %5:f32[2048] = sub %4 %2
  return %3 %5
}
)");
  // Of a transposed matrix.
  expect_no_column_sums(R"(kernel(%0:f32[1024,128], %1:f32[1024,128], %2:f32[128]) {
  %3:f32[1024,1024] = einsum[spec="mk,nk->mn"] %0 %1
  %4:f32[128] = reduce_sum[axes=[0]] %1
  %5:f32[128] = sub %4 %2
  return %3 %5
}
)");
}

}  // namespace
}  // namespace lockstep::detail
#endif
