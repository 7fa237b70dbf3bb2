// Tasks that every thread block runs one after another on its range: text in, text out; what stays in shared memory;
// kernel texts that compile.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"
#include "plan/cuda/kernel_text.h"
#include "plan/cuda/lower.h"
#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

std::string with_ranges(const std::string& text) { return rewritten(text, fuse_ranges); }
void expect_no_ranges(const std::string& text) { EXPECT_EQ(with_ranges(text), text); }

CudaStep only_step(const std::string& text) {
  const KernelSchedule kernel = parse_kernel(text, {});
  EXPECT_EQ(kernel.tasks.size(), 1u);
  return *kernel.tasks[0].step;
}

size_t times(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

// The operands and results of the fused task are those of its members, in order.
TEST(FuseRanges, TasksThatReadTheirOwnRangeAreFused) {
  EXPECT_EQ(with_ranges(R"(kernel(%0:f32[128,1024]) {
  %1:f32[128,1024] = tanh %0
  %2:f32[256,512] = exp %1:f32[256,512]
  %3:f32[128,1024] = add %2:f32[128,1024] %1
  %4:f32[128] = reduce_max[axes=[1]] %3
  return %4
}
)"),
            R"(kernel(%0:f32[128,1024]) {
  ranges 128 {
    %1:f32[128,1024] = tanh %0
    %2:f32[256,512] = exp %1:f32[256,512]
    %3:f32[128,1024] = add %2:f32[128,1024] %1
    %4:f32[128] = reduce_max[axes=[1]] %3
  }
  return %4
}
)");
  const KernelSchedule kernel = parse_kernel(R"(kernel(%0:f32[128,1024]) {
  ranges 128 {
    %1:f32[128,1024] = tanh %0
    %2:f32[128,1024] = add %0 %1
    %3:f32[128] = reduce_max[axes=[1]] %2
  }
  return %2 %3
}
)",
                                             {});
  std::vector<ValueId> read, written;
  for (const TaskValue& value : operands(kernel.tasks[0])) read.push_back(value.id);
  for (const TaskValue& value : results(kernel.tasks[0])) written.push_back(value.id);
  EXPECT_EQ(read, (std::vector<ValueId>{0, 0, 1, 2}));
  EXPECT_EQ(written, (std::vector<ValueId>{1, 2, 3}));
  EXPECT_EQ(kernel.tasks[0].step->blocks, 128);
  for (const GpuTask& member : kernel.tasks[0].members) {
    EXPECT_EQ(member.division, TaskDivision::ranges);
    EXPECT_EQ(member.count, 128);
  }
}

TEST(FuseRanges, TasksThatReadOtherRangesAreNotFused) {
  expect_no_ranges(R"(kernel(%0:f32[128,1024]) {
  %1:f32[128,1024] = tanh %0
  %2:f32[1024,128] = transpose[permutation=[1,0]] %1
  return %2
}
)");
  expect_no_ranges(R"(kernel(%0:f32[128,1024]) {
  %1:f32[128,1024] = tanh %0
  %2:f32[1024] = reduce_max[axes=[0]] %1
  return %2
}
)");
}

TEST(FuseRanges, RangeCountSuitsAllMembers) {
  expect_no_ranges(R"(kernel(%0:f32[128,800]) {
  %1:f32[128,800] = tanh %0
  %2:f32[100,1024] = exp %1:f32[100,1024]
  return %2
}
)");
  // Too few.
  expect_no_ranges(R"(kernel(%0:f32[7,20000]) {
  %1:f32[7,20000] = tanh %0
  %2:f32[7,20000] = exp %1
  return %2
}
)");
  // 125 is the largest divisor up to the number of multiprocessors.
  EXPECT_EQ(with_ranges(R"(kernel(%0:f32[1000,200]) {
  %1:f32[1000,200] = tanh %0
  %2:f32[1000,200] = exp %1
  return %2
}
)"),
            R"(kernel(%0:f32[1000,200]) {
  ranges 125 {
    %1:f32[1000,200] = tanh %0
    %2:f32[1000,200] = exp %1
  }
  return %2
}
)");
  // The second takes 512 ranges, for at most a few dozen elements per thread.
  expect_no_ranges(R"(kernel(%0:f32[128,1024]) {
  %1:f32[128] = reduce_max[axes=[1]] %0
  %2:f32[128,65536] = broadcast[dims=[0], shape=[128,65536]] %1
  return %2
}
)");
}

TEST(FuseRanges, OneThreadBlockRunsSmallTasks) {
  expect_no_ranges(R"(kernel(%0:f32[128,4]) {
  %1:f32[128,4] = tanh %0
  %2:f32[128] = reduce_max[axes=[1]] %1
  return %2
}
)");
}

// A range may overwrite what only the same range reads.
TEST(FuseRanges, OverwrittenValuesAreReadByTheSameRange) {
  EXPECT_EQ(with_ranges(R"(kernel(%0:f32[128,1024]) {
  %1:f32[128,1024] = tanh %0
  %2:f32[128,1024] over %0 = exp %1
  %3:f32[128,1024] over %1 = sqrt %2
  return %2 %3
}
)"),
            R"(kernel(%0:f32[128,1024]) {
  ranges 128 {
    %1:f32[128,1024] = tanh %0
    %2:f32[128,1024] over %0 = exp %1
    %3:f32[128,1024] over %1 = sqrt %2
  }
  return %2 %3
}
)");
  // Ranges of the first task read all of the operand.
  expect_no_ranges(R"(kernel(%0:f32[512,512]) {
  %1:f32[512,512] = transpose[permutation=[1,0]] %0
  %2:f32[512,512] over %0 = tanh %1
  return %2
}
)");
}

TEST(FuseRanges, FusionDoesNotDelayTasks) {
  EXPECT_EQ(with_ranges(R"(kernel(%0:f32[128,1024], %6:f32[1024,1024]) {
  %1:f32[128,1024] = tanh %0
  %2:f32[128,1024] = einsum[spec="mk,kn->mn"] %1 %6
  %3:f32[128,1024] = exp %1
  %4:f32[128,1024] = add %3 %2
  %5:f32[128,1024] = mul %4 %3
  return %5
}
)"),
            R"(kernel(%0:f32[128,1024], %6:f32[1024,1024]) {
  ranges 128 {
    %1:f32[128,1024] = tanh %0
    %3:f32[128,1024] = exp %1
  }
  %2:f32[128,1024] = einsum[spec="mk,kn->mn"] %1 %6
  ranges 128 {
    %4:f32[128,1024] = add %3 %2
    %5:f32[128,1024] = mul %4 %3
  }
  return %5
}
)");
}

TEST(FuseRanges, IndependentProducersOfOneTaskAreNotFused) {
  expect_no_ranges(R"(kernel(%0:f32[128,1024], %2:f32[128,1024]) {
  %1:f32[128,1024] = tanh %0
  %3:f32[128,1024] = exp %2
  %4:f32[128,1024] = add %1 %3
  return %4
}
)");
}

// A value that is written in place of another one takes its shared memory.
TEST(LowerRanges, IntermediateValuesStayInSharedMemory) {
  const CudaStep step = only_step(R"(kernel(%0:f32[128,5]) {
  ranges 128 {
    %1:f32[128,5] = tanh %0
    %2:f32[128,5] = exp %1
    %3:f32[128,5] over %1 = add %2 %0
  }
  return %2 %3
}
)");
  EXPECT_EQ(step.blocks, 128);
  EXPECT_EQ(step.shared_bytes, 32 + 32);
  const auto expect_once = [&](const std::string& what) { EXPECT_EQ(times(what, step.body), 1u) << step.body; };
  expect_once("(block, p0, shared + 0 - uint64_t(block) * 20u)");
  expect_once("(block, shared + 0 - uint64_t(block) * 20u, shared + 32 - uint64_t(block) * 20u)");
  expect_once("(block, shared + 32 - uint64_t(block) * 20u, p5, shared + 0 - uint64_t(block) * 20u)");
  expect_once("(p3 + uint64_t(block) * 20u))[i]");  // of the second
  expect_once("(p6 + uint64_t(block) * 20u))[i]");  // of the third, which replaced the first
}

// Except operands that a member has overwritten, and those of few or too many bytes.
TEST(LowerRanges, LongTasksPrefetchTheirOperandsOnce) {
  const CudaStep step =
      only_step(R"(kernel(%0:f32[128,20], %1:f32[20,20], %2:f32[5000,20], %3:i32[128], %4:f32[128,20], %5:f32[]) {
  ranges 128 {
    %6:f32[128,20] = einsum[spec="mk,kn->mn"] %0 %1
    %7:f32[128,20] = add %6 %0
    %8:f32[128,20] = gather[axis=0, batch_dims=0] %2 %3
    %9:f32[128,20] over %4 = add %7 %4
    %10:f32[128,20] = broadcast[dims=[], shape=[128,20]] %5
    %11:f32[128,20] = add %9 %10
  }
  return %8 %11
}
)");
  // Smallest first: 4 bytes of the range of the indices, 80 bytes of the ranges of two, and 1,600 bytes.
  ASSERT_EQ(step.prefetches.size(), 4u);
  EXPECT_EQ(step.prefetches[0].operands, std::vector<size_t>{5});
  EXPECT_EQ(step.prefetches[1].operands, std::vector<size_t>{0});
  EXPECT_EQ(step.prefetches[2].operands, std::vector<size_t>{7});
  EXPECT_EQ(step.prefetches[3].operands, std::vector<size_t>{1});
  EXPECT_NE(step.prefetches[3].body.find("p1 + i * 16u, true)"), std::string::npos) << step.prefetches[3].body;
  EXPECT_NE(step.body.find("if (!(prefetched & 8u))"), std::string::npos);
  EXPECT_EQ(times("copy_async<16>", step.body), 3u) << step.body;
  EXPECT_EQ(times("copy_async<4>", step.body), 1u) << step.body;
  EXPECT_NE(step.body.find("(block, p6, "), std::string::npos) << step.body;   // the table of the gather
  EXPECT_NE(step.body.find("(block, p12, "), std::string::npos) << step.body;  // the scalar
  for (const char* unused : {"(block, p0, ", "(block, p3, ", "(block, p9, "})
    EXPECT_EQ(step.body.find(unused), std::string::npos) << step.body;
}

TEST(LowerRanges, FewerMultiprocessorsHaveFewerRanges) {
  const KernelSchedule kernel = parse_kernel(R"(kernel(%0:f32[128,1024]) {
  ranges 128 {
    %1:f32[128,1024] = tanh %0
    %2:f32[128] = reduce_max[axes=[1]] %1
  }
  return %2
}
)",
                                             {});
  const GpuTask& task = kernel.tasks[0];
  EXPECT_EQ(range_count(task.members, 132, {}), 128);
  for (const auto& [processors, count] :
       {std::pair<int, int64_t>{132, 128}, {127, 64}, {64, 64}, {33, 32}, {8, 8}, {7, 128}}) {
    const GpuTask fewer = with_processors(task, processors, {});
    EXPECT_EQ(fewer.count, count) << processors;
    EXPECT_EQ(fewer.step->blocks, count) << processors;
  }
}

TEST(LowerRanges, ImpossibleChoicesAreErrors) {
  for (const char* count : {"100", "256"})
    EXPECT_THROW(parse_kernel(fmt::format("kernel(%0:f32[128,1024]) {{\n  ranges {} {{\n    %1:f32[128,1024] = tanh "
                                          "%0\n    %2:f32[128,1024] = exp %1\n  }}\n  return %2\n}}\n",
                                          count),
                              {}),
                 Error)
        << count;
}

// Gathered rows are multiplied, reduced and scaled.
TEST(LowerRanges, TextsCompile) {
  struct Case {
    const char* dtype;
    int64_t n, k;
    bool transposed;
    const char* architecture;
  };
  for (const Case& c : {Case{"f32", 10, 1024, false, "sm_90"}, Case{"f32", 1024, 10, true, "sm_80"},
                        Case{"bf16", 10, 128, true, "sm_90"}, Case{"f16", 700, 16, false, "sm_90"}}) {
    SCOPED_TRACE(fmt::format("{} columns of {} sums, {}", c.n, c.k, c.dtype));
    const auto type = [&](int64_t rows, int64_t cols) { return fmt::format("{}[{},{}]", c.dtype, rows, cols); };
    const std::string text = fmt::format(
        R"(kernel(%0:{table}, %1:i32[128], %2:{weights}) {{
  %3:{x} = gather[axis=0, batch_dims=0] %0 %1
  %4:{y} = einsum_fused[body=program(%0:{y}) {{
      %1:{y} = tanh %0
      return %1
    }}, spec="{spec}"] %3 %2
  %5:{dtype}[128] = reduce_max[axes=[1]] %4
  %6:{y} over %4 = mul %4 %4
  return %5 %6
}}
)",
        fmt::arg("table", type(50, c.k)), fmt::arg("weights", c.transposed ? type(c.n, c.k) : type(c.k, c.n)),
        fmt::arg("x", type(128, c.k)), fmt::arg("y", type(128, c.n)), fmt::arg("dtype", c.dtype),
        fmt::arg("spec", c.transposed ? "mk,nk->mn" : "mk,kn->mn"));
    const GpuTarget target{.major = c.architecture[3] - '0'};
    KernelSchedule kernel = parse_kernel(text, target);
    fuse_ranges(kernel, target);
    ASSERT_EQ(kernel.tasks.size(), 1u);
    assign_phases(kernel, target);
    // Other indices in each round, and a gathered value that alternates between two buffers.
    const RoundStrides strides{{{1, 128 * 4}, {3, 0}}};
    const KernelText rounds = kernel_text(kernel, {.rounds = &strides});
    EXPECT_NE(rounds.text.find("at_round(near.p[1], near.odd[0], 512ll, round)"), std::string::npos) << rounds.text;
    try {
      EXPECT_FALSE(compile_quickly(rounds.text, c.architecture).empty());
      EXPECT_FALSE(compile_quickly(kernel_text(kernel, {}).text, c.architecture).empty());
    } catch (const Error& e) {
      if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
      FAIL() << e.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::detail
#endif
