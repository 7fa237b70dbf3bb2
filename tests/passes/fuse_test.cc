// Fusion: groups and epilogues. Text in, text out.
#include "ops/ops.h"
#include "passes/passes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string fused(std::string_view text) { return print(fuse(simplify(parse(text, all_ops())))); }

// Bias and activation are the epilogue of the product.
TEST(Fuse, DenseLayerIsOneProduct) {
  EXPECT_EQ(fused(R"(program(%0:f32[8,4], %1:f32[4,6], %2:f32[6]) {
  %3:f32[8,6] = einsum[spec="bi,ij->bj"] %0 %1
  %4:f32[8,6] = broadcast[dims=[1], shape=[8,6]] %2
  %5:f32[8,6] = add %3 %4
  %6:f32[8,6] = tanh %5
  return %6
})"),
            R"(program(%0:f32[8,4], %1:f32[4,6], %2:f32[6]) {
  %3:f32[8,6] = einsum_fused[body=program(%0:f32[8,6], %1:f32[6]) {
      %2:f32[8,6] = broadcast[dims=[1], shape=[8,6]] %1
      %3:f32[8,6] = add %0 %2
      %4:f32[8,6] = tanh %3
      return %4
    }, spec="bi,ij->bj"] %0 %1 %2
  return %3
}
)");
}

// Epilogues have neither complex numbers nor 8-bit floats, as operands or in between.
TEST(Fuse, ComplexNumbersAndFloat8AreNotInEpilogues) {
  for (const char* rest : {R"(, %2:c64[8,6]) {
  %3:f32[8,6] = einsum[spec="bi,ij->bj"] %0 %1
  %4:c64[8,6] = complex %3 %3
  %5:c64[8,6] = mul %4 %2
  %6:f32[8,6] = real %5)",
                           R"(, %2:f32[8,6]) {
  %3:f32[8,6] = einsum[spec="bi,ij->bj"] %0 %1
  %4:c64[8,6] = complex %3 %2
  %5:c64[8,6] = exp %4
  %6:f32[8,6] = imag %5)",
                           R"(, %2:f8_e4m3[8,6]) {
  %3:f32[8,6] = einsum[spec="bi,ij->bj"] %0 %1
  %4:f32[8,6] = cast[dtype=f32] %2
  %5:f32[8,6] = mul %3 %4
  %6:f32[8,6] = tanh %5)"}) {
    const std::string text = fused(fmt::format("program(%0:f32[8,4], %1:f32[4,6]{}\n  return %6\n}}", rest));
    EXPECT_NE(text.find("= einsum[spec"), std::string::npos) << text;
    EXPECT_NE(text.find("= fused["), std::string::npos) << text;
  }
}

// A product whose result is also needed elsewhere, for `rows` rows of 4 KiB.
std::string product_and_gelu(int64_t rows) {
  return fmt::format(R"(program(%0:f32[{0},8], %1:f32[8,1024], %2:f32[1024,8]) {{
  %3:f32[{0},1024] = einsum[spec="bi,ij->bj"] %0 %1
  %4:f32[{0},1024] = gelu %3
  %5:f32[{0},8] = einsum[spec="bj,jk->bk"] %4 %2
  %6:f32[{0},8] = einsum[spec="bj,jk->bk"] %3 %2
  return %5 %6
}}
)",
                     rows);
}

TEST(Fuse, LargeResultsAreReadByTheKernelThatMakesThem) {
  EXPECT_EQ(fused(product_and_gelu(2048)), R"(program(%0:f32[2048,8], %1:f32[8,1024], %2:f32[1024,8]) {
  %3:f32[2048,1024], %4:f32[2048,1024] = einsum_fused[body=program(%0:f32[2048,1024]) {
      %1:f32[2048,1024] = gelu %0
      return %0 %1
    }, spec="bi,ij->bj"] %0 %1
  %5:f32[2048,8] = einsum[spec="bj,jk->bk"] %4 %2
  %6:f32[2048,8] = einsum[spec="bj,jk->bk"] %3 %2
  return %5 %6
}
)");
}

TEST(Fuse, SmallResultsThatAreNeededElsewhereStayAlone) {
  EXPECT_EQ(fused(product_and_gelu(2047)), product_and_gelu(2047));
}

TEST(Fuse, SgdUpdateIsTheEpilogueOfTheWeightGradient) {
  EXPECT_EQ(fused(R"(program(%0:f32[8,4], %1:f32[8,6], %2:f32[4,6]) {
  %3:f32[4,6] = einsum[spec="bi,bj->ij"] %0 %1
  %4:f32[4,6] = full[dtype=f32, shape=[4,6], value=0.1]
  %5:f32[4,6] = mul %3 %4
  %6:f32[4,6] = sub %2 %5
  return %6
})"),
            R"(program(%0:f32[8,4], %1:f32[8,6], %2:f32[4,6]) {
  %3:f32[4,6] = einsum_fused[body=program(%0:f32[4,6], %1:f32[4,6]) {
      %2:f32[4,6] = full[dtype=f32, shape=[4,6], value=0.1]
      %3:f32[4,6] = mul %0 %2
      %4:f32[4,6] = sub %1 %3
      return %4
    }, spec="bi,bj->ij"] %0 %1 %2
  return %3
}
)");
}

// Parameter, m and v in one pass over memory.
TEST(Fuse, AdamIsOnePass) {
  EXPECT_EQ(fused(R"(program(%0:f32[4], %1:f32[4], %2:f32[4], %3:f32[4]) {
  %4:f32[4] = full[dtype=f32, shape=[4], value=0.9]
  %5:f32[4] = full[dtype=f32, shape=[4], value=0.1]
  %6:f32[4] = mul %1 %4
  %7:f32[4] = mul %3 %5
  %8:f32[4] = add %6 %7
  %9:f32[4] = mul %3 %3
  %10:f32[4] = mul %2 %4
  %11:f32[4] = mul %9 %5
  %12:f32[4] = add %10 %11
  %13:f32[4] = sqrt %12
  %14:f32[4] = div %8 %13
  %15:f32[4] = sub %0 %14
  return %15 %8 %12
})"),
            R"(program(%0:f32[4], %1:f32[4], %2:f32[4], %3:f32[4]) {
  %4:f32[4], %5:f32[4], %6:f32[4] = fused[body=program(%0:f32[4], %1:f32[4], %2:f32[4], %3:f32[4]) {
      %4:f32[4] = full[dtype=f32, shape=[4], value=0.9]
      %5:f32[4] = mul %0 %4
      %6:f32[4] = full[dtype=f32, shape=[4], value=0.1]
      %7:f32[4] = mul %1 %6
      %8:f32[4] = add %5 %7
      %9:f32[4] = mul %1 %1
      %10:f32[4] = mul %2 %4
      %11:f32[4] = mul %9 %6
      %12:f32[4] = add %10 %11
      %13:f32[4] = sqrt %12
      %14:f32[4] = div %8 %13
      %15:f32[4] = sub %3 %14
      return %8 %12 %15
    }] %1 %3 %2 %0
  return %6 %4 %5
}
)");
}

TEST(Fuse, DiamondIsOneGroup) {
  EXPECT_EQ(fused(R"(program(%0:f32[4]) {
  %1:f32[4] = exp %0
  %2:f32[4] = sin %1
  %3:f32[4] = cos %1
  %4:f32[4] = mul %2 %3
  return %4
})"),
            R"(program(%0:f32[4]) {
  %1:f32[4] = fused[body=program(%0:f32[4]) {
      %1:f32[4] = exp %0
      %2:f32[4] = sin %1
      %3:f32[4] = cos %1
      %4:f32[4] = mul %2 %3
      return %4
    }] %0
  return %1
}
)");
}

// exp and add could be one group only if cumsum were in it.
TEST(Fuse, GroupsFormNoCycle) {
  EXPECT_EQ(fused(R"(program(%0:f32[4]) {
  %1:f32[4] = exp %0
  %2:f32[4] = cumsum[axis=0, reverse=false] %1
  %3:f32[4] = add %1 %2
  return %3
})"),
            R"(program(%0:f32[4]) {
  %1:f32[4] = exp %0
  %2:f32[4] = cumsum[axis=0, reverse=false] %1
  %3:f32[4] = add %1 %2
  return %3
}
)");
}

// tanh is read by the epilogue and, through neg, by the product itself.
TEST(Fuse, OperandsOfAProductAreComputedBeforeIt) {
  EXPECT_EQ(fused(R"(program(%0:f32[4,4]) {
  %1:f32[4,4] = tanh %0
  %2:f32[4,4] = neg %1
  %3:f32[4,4] = einsum[spec="ik,kj->ij"] %2 %0
  %4:f32[4,4] = mul %3 %1
  return %4
})"),
            R"(program(%0:f32[4,4]) {
  %1:f32[4,4] = tanh %0
  %2:f32[4,4] = neg %1
  %3:f32[4,4] = einsum_fused[body=program(%0:f32[4,4], %1:f32[4,4]) {
      %2:f32[4,4] = mul %0 %1
      return %2
    }, spec="ik,kj->ij"] %2 %0 %1
  return %3
}
)");
}

TEST(Fuse, ViewsAreReadInPlace) {
  EXPECT_EQ(fused(R"(program(%0:f32[4,3], %1:f32[3,8]) {
  %2:f32[3,4] = transpose[permutation=[1,0]] %0
  %3:f32[3,4] = slice[limits=[3,8], starts=[0,4], strides=[1,1]] %1
  %4:f32[3,4] = add %2 %3
  return %4
})"),
            R"(program(%0:f32[4,3], %1:f32[3,8]) {
  %2:f32[3,4] = fused[body=program(%0:f32[4,3], %1:f32[3,8]) {
      %2:f32[3,4] = transpose[permutation=[1,0]] %0
      %3:f32[3,4] = slice[limits=[3,8], starts=[0,4], strides=[1,1]] %1
      %4:f32[3,4] = add %2 %3
      return %4
    }] %0 %1
  return %2
}
)");
}

// A product with other users is stored once and read by them.
TEST(Fuse, ProductThatIsAlsoAnOutputIsKept) {
  EXPECT_EQ(fused(R"(program(%0:f32[2,3], %1:f32[3,4]) {
  %2:f32[2,4] = einsum[spec="ik,kj->ij"] %0 %1
  %3:f32[2,4] = tanh %2
  return %3 %2
})"),
            R"(program(%0:f32[2,3], %1:f32[3,4]) {
  %2:f32[2,4], %3:f32[2,4] = einsum_fused[body=program(%0:f32[2,4]) {
      %1:f32[2,4] = tanh %0
      return %0 %1
    }, spec="ik,kj->ij"] %0 %1
  return %3 %2
}
)");
}

// Two products cannot both be the head of one group.
TEST(Fuse, SumOfTwoProductsIsTheEpilogueOfOne) {
  EXPECT_EQ(fused(R"(program(%0:f32[2,3], %1:f32[3,4]) {
  %2:f32[2,4] = einsum[spec="ik,kj->ij"] %0 %1
  %3:f32[2,3] = tanh %0
  %4:f32[2,4] = einsum[spec="ik,kj->ij"] %3 %1
  %5:f32[2,4] = add %2 %4
  return %5
})"),
            R"(program(%0:f32[2,3], %1:f32[3,4]) {
  %2:f32[2,4] = einsum[spec="ik,kj->ij"] %0 %1
  %3:f32[2,3] = tanh %0
  %4:f32[2,4] = einsum_fused[body=program(%0:f32[2,4], %1:f32[2,4]) {
      %2:f32[2,4] = add %1 %0
      return %2
    }, spec="ik,kj->ij"] %3 %1 %2
  return %4
}
)");
}

// Each term is the epilogue of its own product, so that at most one is waiting to be added.
TEST(Fuse, TermsOfASumAreEpiloguesOfTheirProducts) {
  EXPECT_EQ(fused(R"(program(%0:f32[2,3], %1:f32[3,4], %2:f32[2,4]) {
  %3:f32[2,4] = einsum[spec="ik,kj->ij"] %0 %1
  %4:f32[2,4] = add %2 %3
  %5:f32[2,3] = tanh %0
  %6:f32[2,4] = einsum[spec="ik,kj->ij"] %5 %1
  %7:f32[2,4] = add %4 %6
  return %7
})"),
            R"(program(%0:f32[2,3], %1:f32[3,4], %2:f32[2,4]) {
  %3:f32[2,4] = einsum_fused[body=program(%0:f32[2,4], %1:f32[2,4]) {
      %2:f32[2,4] = add %1 %0
      return %2
    }, spec="ik,kj->ij"] %0 %1 %2
  %4:f32[2,3] = tanh %0
  %5:f32[2,4] = einsum_fused[body=program(%0:f32[2,4], %1:f32[2,4]) {
      %2:f32[2,4] = add %1 %0
      return %2
    }, spec="ik,kj->ij"] %4 %1 %3
  return %5
}
)");
}

// The square of a gradient is written for its norm by the update, not earlier.
TEST(Fuse, ReducedValuesAreComputedWithTheirOtherUses) {
  EXPECT_EQ(fused(R"(program(%0:f32[64], %1:f32[64]) {
  %2:f32[64] = mul %0 %0
  %3:f32[] = reduce_sum[axes=[0]] %2
  %4:f32[64] = add %1 %2
  return %3 %4
})"),
            R"(program(%0:f32[64], %1:f32[64]) {
  %2:f32[64], %3:f32[64] = fused[body=program(%0:f32[64], %1:f32[64]) {
      %2:f32[64] = mul %0 %0
      %3:f32[64] = add %1 %2
      return %2 %3
    }] %0 %1
  %4:f32[] = reduce_sum[axes=[0]] %2
  return %4 %3
}
)");
  // Unless the other use depends on the sum.
  EXPECT_EQ(fused(R"(program(%0:f32[64]) {
  %1:f32[64] = mul %0 %0
  %2:f32[] = reduce_sum[axes=[0]] %1
  %3:f32[64] = broadcast[dims=[], shape=[64]] %2
  %4:f32[64] = div %1 %3
  return %4
})"),
            R"(program(%0:f32[64]) {
  %1:f32[64] = mul %0 %0
  %2:f32[] = reduce_sum[axes=[0]] %1
  %3:f32[64] = fused[body=program(%0:f32[64], %1:f32[]) {
      %2:f32[64] = broadcast[dims=[], shape=[64]] %1
      %3:f32[64] = div %0 %2
      return %3
    }] %1 %2
  return %3
}
)");
}

}  // namespace
}  // namespace lockstep
