// Tasks that compute operands themselves: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "ops/cuda/cost_model.h"
#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

std::string with_producers(const std::string& text) { return rewritten(text, inline_producers); }
void expect_not_inlined(const std::string& text) { EXPECT_EQ(with_producers(text), text); }

// Rows of images in the forward and the backward pass.
TEST(InlineProducers, ProductsComputeTheirOperands) {
  EXPECT_EQ(with_producers(R"(kernel(%0:u8[60000,784], %1:i32[128], %2:f32[784,256], %3:f32[128,256]) {
  %4:u8[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %5:f32[128,784] = cast[dtype=f32] %4
  %6:f32[128,256] = einsum[spec="mk,kn->mn"] %5 %2
  %7:f32[256,784] = einsum[spec="km,kn->mn"] %3 %5
  return %6 %7
}
)"),
            R"(kernel(%2:f32[784,256], %0:u8[60000,784], %1:i32[128], %3:f32[128,256]) {
  %6:f32[128,256] = einsum[spec="mk,kn->mn"] %5 %2 (ready)
    computes {
      %5:f32[128,784] = cast[dtype=f32] %4
        computes {
          %4:u8[128,784] = gather[axis=0, batch_dims=0] %0 %1
        }
    }
  %7:f32[256,784] = einsum[spec="km,kn->mn"] %3 %5 (ready)
    computes {
      %5:f32[128,784] = cast[dtype=f32] %4
        computes {
          %4:u8[128,784] = gather[axis=0, batch_dims=0] %0 %1
        }
    }
  return %6 %7
}
)");
}

// Also products whose result is read in the kernel. The second product waits for the first, and is not ready.
TEST(InlineProducers, ProductsThatWaitForOthersComputeTheirOperands) {
  EXPECT_EQ(with_producers(R"(kernel(%0:u8[60000,784], %1:i32[128], %2:f32[784,256], %3:f32[256,256]) {
  %4:u8[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %5:f32[128,784] = cast[dtype=f32] %4
  %6:f32[128,256] = einsum[spec="mk,kn->mn"] %5 %2
  %7:f32[128,256] = einsum[spec="mk,kn->mn"] %6 %3
  %8:f32[256,784] = einsum[spec="km,kn->mn"] %7 %5
  return %8
}
)"),
            R"(kernel(%2:f32[784,256], %0:u8[60000,784], %1:i32[128], %3:f32[256,256]) {
  %6:f32[128,256] = einsum[spec="mk,kn->mn"] %5 %2 (ready)
    computes {
      %5:f32[128,784] = cast[dtype=f32] %4
        computes {
          %4:u8[128,784] = gather[axis=0, batch_dims=0] %0 %1
        }
    }
  %7:f32[128,256] = einsum[spec="mk,kn->mn"] %6 %3
  %8:f32[256,784] = einsum[spec="km,kn->mn"] %7 %5
    computes {
      %5:f32[128,784] = cast[dtype=f32] %4
        computes {
          %4:u8[128,784] = gather[axis=0, batch_dims=0] %0 %1
        }
    }
  return %8
}
)");
}

TEST(InlineProducers, ValuesWithOtherReadersAreWritten) {
  // After the kernel.
  expect_not_inlined(R"(kernel(%0:f32[1000,784], %1:i32[128], %2:f32[784,256]) {
  %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[128,256] = einsum[spec="mk,kn->mn"] %3 %2
  return %3 %4
}
)");
  // A task that cannot compute it.
  expect_not_inlined(R"(kernel(%0:f32[1000,784], %1:i32[128], %2:f32[128,256]) {
  %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[256,784] = einsum[spec="km,kn->mn"] %2 %3
  %5:f32[128] = reduce_max[axes=[1]] %3
  return %4 %5
}
)");
  // No product.
  expect_not_inlined(R"(kernel(%0:f32[1000,784], %1:i32[128]) {
  %2:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  return %2
}
)");
}

// The first reader writes the rows if it is a product by them that waits for nothing: the other readers come later.
TEST(InlineProducers, FirstProductWritesWhatOthersRead) {
  EXPECT_EQ(with_producers(R"(kernel(%0:f32[1000,784], %1:i32[128], %2:f32[784,256]) {
  %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[128,256] = einsum[spec="mk,kn->mn"] %3 %2
  %5:f32[128] = reduce_max[axes=[1]] %3
  return %4 %5
}
)"),
            R"(kernel(%2:f32[784,256], %0:f32[1000,784], %1:i32[128]) {
  %4:f32[128,256] = einsum[spec="mk,kn->mn"] %3 %2 (ready)
    computes {
      %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1 (written)
    }
  %5:f32[128] = reduce_max[axes=[1]] %3
  return %4 %5
}
)");
  // The product waits for another task.
  expect_not_inlined(R"(kernel(%0:f32[1000,784], %1:i32[128], %2:f32[784,256,2]) {
  %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[784,256] = reduce_max[axes=[2]] %2
  %5:f32[128,256] = einsum[spec="mk,kn->mn"] %3 %4
  %6:f32[128] = reduce_max[axes=[1]] %3
  return %5 %6
}
)");
  // Another task reads the rows before the product.
  expect_not_inlined(R"(kernel(%0:f32[1000,784], %1:i32[128], %2:f32[784,256]) {
  %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[128] = reduce_max[axes=[1]] %3
  %5:f32[128,256] = einsum[spec="mk,kn->mn"] %3 %2
  return %4 %5
}
)");
}

// Such as the indices by which images and labels are gathered: the product does not wait for them.
TEST(InlineProducers, SmallValuesAreWrittenForSomeAndComputedByOthers) {
  EXPECT_EQ(with_producers(R"(kernel(%0:i32[128], %1:u8[60000,784], %2:i32[60000], %3:f32[784,256]) {
  %4:i32[128] = neg %0
  %5:u8[128,784] = gather[axis=0, batch_dims=0] %1 %4
  %6:f32[128,784] = cast[dtype=f32] %5
  %7:i32[128] = gather[axis=0, batch_dims=0] %2 %4
  %8:f32[128,256] = einsum[spec="mk,kn->mn"] %6 %3
  return %7 %8
}
)"),
            R"(kernel(%0:i32[128], %2:i32[60000], %3:f32[784,256], %1:u8[60000,784]) {
  %4:i32[128] = neg %0
  %7:i32[128] = gather[axis=0, batch_dims=0] %2 %4
  %8:f32[128,256] = einsum[spec="mk,kn->mn"] %6 %3 (ready)
    computes {
      %6:f32[128,784] = cast[dtype=f32] %5
        computes {
          %5:u8[128,784] = gather[axis=0, batch_dims=0] %1 %4
            computes {
              %4:i32[128] = neg %0
            }
        }
    }
  return %7 %8
}
)");
  // The second small value is written, and reads the first.
  EXPECT_EQ(with_producers(R"(kernel(%0:f32[16,64], %1:f32[64,1024]) {
  %2:f32[16,64] = neg %0
  %3:f32[16,64] = abs %2
  %4:f32[16] = reduce_max[axes=[1]] %3
  %5:f32[16,1024] = einsum[spec="mk,kn->mn"] %3 %1
  return %4 %5
}
)"),
            R"(kernel(%0:f32[16,64], %1:f32[64,1024]) {
  %2:f32[16,64] = neg %0
  %3:f32[16,64] = abs %2
  %4:f32[16] = reduce_max[axes=[1]] %3
  %5:f32[16,1024] = einsum[spec="mk,kn->mn"] %3 %1 (ready)
    computes {
      %3:f32[16,64] = abs %2
        computes {
          %2:f32[16,64] = neg %0
        }
    }
  return %4 %5
}
)");
}

// A reader that computes rows reads the table later than the gather did.
TEST(InlineProducers, OverwrittenOperandsAreNotReadLater) {
  // The second reader overwrites the table.
  expect_not_inlined(R"(kernel(%0:f32[128,784], %1:i32[128], %2:f32[784,256], %3:f32[784,784]) {
  %4:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %5:f32[128,256] = einsum[spec="mk,kn->mn"] %4 %2
  %6:f32[128,784] over %0 = einsum[spec="mk,kn->mn"] %4 %3
  return %5 %6
}
)");
  // The reader overwrites the rows.
  expect_not_inlined(R"(kernel(%0:f32[1000,784], %1:i32[128], %2:f32[784,784]) {
  %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[128,784] over %3 = einsum[spec="mk,kn->mn"] %3 %2
  return %4
}
)");
  // The producer works in place.
  expect_not_inlined(R"(kernel(%0:f32[16,64], %1:f32[64,1024]) {
  %2:f32[16,64] over %0 = neg %0
  %3:f32[16,1024] = einsum[spec="mk,kn->mn"] %2 %1
  return %3
}
)");
}

TEST(InlineProducers, ExpensiveValuesAreComputedOnce) {
  static_assert(cost_model::kMostInlinedEquations < 9);
  const std::string nine = R"(fused[body=program(%0:f32[16,64]) {
      %1:f32[16,64] = neg %0
      %2:f32[16,64] = abs %1
      %3:f32[16,64] = neg %2
      %4:f32[16,64] = exp %3
      %5:f32[16,64] = neg %4
      %6:f32[16,64] = exp %5
      %7:f32[16,64] = neg %6
      %8:f32[16,64] = exp %7
      %9:f32[16,64] = neg %8
      return %9
    }] %0)";
  expect_not_inlined(R"(kernel(%0:f32[16,64], %1:f32[64,1024]) {
  %2:f32[16,64] = )" +
                     nine +
                     R"(
  %3:f32[16,1024] = einsum[spec="mk,kn->mn"] %2 %1
  return %3
}
)");
  // To read two large arrays costs more than to read their sum.
  expect_not_inlined(R"(kernel(%0:f32[128,784], %1:f32[128,784], %2:f32[784,256]) {
  %3:f32[128,784] = add %0 %1
  %4:f32[128,256] = einsum[spec="mk,kn->mn"] %3 %2
  return %4
}
)");
  // The sum reads the rows, which are therefore written.
  expect_not_inlined(R"(kernel(%0:f32[1000,784], %1:i32[128], %2:f32[128,784]) {
  %3:f32[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:f32[128,784] = add %3 %2
  %5:f32[784,784] = einsum[spec="km,kn->mn"] %4 %3
  return %5
}
)");
}

// In the forward and the backward pass. The bias is rounded by the epilogue.
TEST(InlineProducers, ProductsRoundWeights) {
  EXPECT_EQ(with_producers(R"(kernel(%0:f32[784,1024], %1:f32[1024], %2:bf16[128,784], %3:bf16[128,1024]) {
  %4:bf16[784,1024] = cast[dtype=bf16] %0
  %5:bf16[1024] = cast[dtype=bf16] %1
  %6:bf16[128,1024] = einsum_fused[body=program(%0:bf16[128,1024], %1:bf16[1024]) {
      %2:bf16[128,1024] = broadcast[dims=[1], shape=[128,1024]] %1
      %3:bf16[128,1024] = add %0 %2
      return %3
    }, spec="mk,kn->mn"] %2 %4 %5
  %7:bf16[128,784] = einsum[spec="mn,kn->mk"] %3 %4
  return %6 %7
}
)"),
            R"(kernel(%2:bf16[128,784], %0:f32[784,1024], %1:f32[1024], %3:bf16[128,1024]) {
  %6:bf16[128,1024] = einsum_fused[body=program(%0:bf16[128,1024], %1:bf16[1024]) {
      %2:bf16[128,1024] = broadcast[dims=[1], shape=[128,1024]] %1
      %3:bf16[128,1024] = add %0 %2
      return %3
    }, spec="mk,kn->mn"] %2 %4 %5 (ready)
    computes {
      %4:bf16[784,1024] = cast[dtype=bf16] %0
      %5:bf16[1024] = cast[dtype=bf16] %1
    }
  %7:bf16[128,784] = einsum[spec="mn,kn->mk"] %3 %4 (ready)
    computes {
      %4:bf16[784,1024] = cast[dtype=bf16] %0
    }
  return %6 %7
}
)");
}

// A product that is too large to compute rows still rounds its weights.
TEST(InlineProducers, ProductsComputeAsManyOperandsAsTheyCan) {
  EXPECT_EQ(with_producers(R"(kernel(%0:bf16[5000,784], %1:i32[128], %2:f32[784,2048]) {
  %3:bf16[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %4:bf16[784,2048] = cast[dtype=bf16] %2
  %5:bf16[128,2048] = einsum[spec="mk,kn->mn"] %3 %4
  return %5
}
)"),
            R"(kernel(%0:bf16[5000,784], %1:i32[128], %2:f32[784,2048]) {
  %3:bf16[128,784] = gather[axis=0, batch_dims=0] %0 %1
  %5:bf16[128,2048] = einsum[spec="mk,kn->mn"] %3 %4
    computes {
      %4:bf16[784,2048] = cast[dtype=bf16] %2
    }
  return %5
}
)");
}

TEST(InlineProducers, RoundedValuesWithOtherReadersAreWritten) {
  expect_not_inlined(R"(kernel(%0:f32[784,1024], %1:bf16[128,784]) {
  %2:bf16[784,1024] = cast[dtype=bf16] %0
  %3:bf16[128,1024] = einsum[spec="mk,kn->mn"] %1 %2
  %4:bf16[784] = reduce_max[axes=[1]] %2
  return %3 %4
}
)");
}

// Such as weights that are updated in place.
TEST(InlineProducers, OperandsMayBeOverwrittenAfterAllReaders) {
  const std::string text = R"(kernel(%0:f32[784,1024], %1:bf16[128,784], %2:f32[784,1024]) {
  %3:bf16[784,1024] = cast[dtype=bf16] %0
  %4:bf16[128,1024] = einsum[spec="mk,kn->mn"] %1 %3
  %5:f32[784,1024] over %0 = sub %0 %2
  return %4 %5
}
)";
  EXPECT_EQ(with_producers(text), R"(kernel(%1:bf16[128,784], %0:f32[784,1024], %2:f32[784,1024]) {
  %4:bf16[128,1024] = einsum[spec="mk,kn->mn"] %1 %3 (ready)
    computes {
      %3:bf16[784,1024] = cast[dtype=bf16] %0
    }
  %5:f32[784,1024] over %0 = sub %0 %2
  return %4 %5
}
)");
  KernelSchedule kernel = parse_kernel(text, {});
  inline_producers(kernel, {});
  EXPECT_TRUE(conflict(kernel.tasks.at(0), kernel.tasks.at(1)));
  // Between two readers.
  expect_not_inlined(R"(kernel(%0:f32[784,1024], %1:bf16[128,784], %2:f32[784,1024], %3:bf16[128,1024]) {
  %4:bf16[784,1024] = cast[dtype=bf16] %0
  %5:bf16[128,1024] = einsum[spec="mk,kn->mn"] %1 %4
  %6:f32[784,1024] over %0 = sub %0 %2
  %7:bf16[128,784] = einsum[spec="mn,kn->mk"] %3 %4
  return %5 %6 %7
}
)");
  // A reader that would compute both values reads the first one, whose operand has been overwritten.
  EXPECT_EQ(with_producers(R"(kernel(%0:f32[16,64], %1:f32[16,64], %2:f32[64,1024]) {
  %3:f32[16,64] = neg %0
  %4:f32[16,64] = abs %3
  %5:f32[16,64] over %0 = exp %1
  %6:f32[16,1024] = einsum[spec="mk,kn->mn"] %4 %2
  return %5 %6
}
)"),
            R"(kernel(%0:f32[16,64], %1:f32[16,64], %2:f32[64,1024]) {
  %3:f32[16,64] = neg %0
  %5:f32[16,64] over %0 = exp %1
  %6:f32[16,1024] = einsum[spec="mk,kn->mn"] %4 %2 (ready)
    computes {
      %4:f32[16,64] = abs %3
    }
  return %5 %6
}
)");
}

// The number of pointers of a kernel is limited. Each product has 4, and one more if it computes its rows.
TEST(InlineProducers, ValuesThatNeedTooManyPointersAreWritten) {
  for (const int products : {10, 119}) {
    std::string text =
        "kernel(%0:u8[60000,784], %1:i32[128], %2:f32[784,256], %3:f32[128,256]) {\n"
        "  %4:u8[128,784] = gather[axis=0, batch_dims=0] %0 %1\n  %5:f32[128,784] = cast[dtype=f32] %4\n";
    std::string returned;
    for (int i = 0; i < products; ++i) {
      text += fmt::format(
          "  %{}:f32[128,256] = einsum_fused[body=program(%0:f32[128,256], %1:f32[128,256]) {{\n"
          "      %2:f32[128,256] = add %0 %1\n      return %2\n    }}, spec=\"mk,kn->mn\"] %5 %2 %3\n",
          6 + i);
      returned += fmt::format(" %{}", 6 + i);
    }
    KernelSchedule kernel = parse_kernel(text + "  return" + returned + "\n}\n", {});
    optimize(kernel, {});
    const std::string optimized = print(kernel);
    EXPECT_EQ(optimized.find("computes") != std::string::npos, products == 10) << optimized;
  }
}

// Computed operands are held completely in shared memory. A product that waits for its other operand does not compute
// rows if that needs smaller tiles.
TEST(InlineProducers, TilesDoNotShrink) {
  std::mt19937 random(20261117);
  const auto below = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  const GpuTarget target;
  int some = 0, none = 0;
  for (int i = 0; i < 300; ++i) {
    const int64_t m = 4 * below(300), n = 4 * below(300), k = 4 * below(1000);
    const bool transposed = i % 3 == 0;
    const std::string text = fmt::format(
        R"(kernel(%0:{0}[2,{3},{4}], %1:{0}[70,{2}], %2:i32[{1}]) {{
  %3:{0}[{3},{4}] = reduce_max[axes=[0]] %0
  %4:{0}[{1},{2}] = gather[axis=0, batch_dims=0] %1 %2
  %5:{0}[{5},{4}] = einsum[spec="{6},kn->mn"] %4 %3
  return %5
}}
)",
        i % 2 == 0 ? "f32" : "bf16", transposed ? k : m, transposed ? m : k, k, n, m, transposed ? "km" : "mk");
    SCOPED_TRACE(text);
    KernelSchedule kernel = parse_kernel(text, target);
    const auto plain = kernel.tasks.at(2).step;
    inline_producers(kernel, target);
    ++(kernel.tasks.size() == 2 ? some : none);
    if (kernel.tasks.size() > 2) continue;
    EXPECT_FALSE(plain->register_bound);
    EXPECT_EQ(kernel.tasks[1].step->blocks, plain->blocks);
    EXPECT_LE(kernel.tasks[1].step->shared_bytes, target.shared_bytes - kReservedSharedBytes);
  }
  EXPECT_GT(some, 10);
  EXPECT_GT(none, 10);
}

}  // namespace
}  // namespace lockstep::detail
#endif
