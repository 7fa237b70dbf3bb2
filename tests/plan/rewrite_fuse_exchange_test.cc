// A product fused with the tasks that need its complete rows: text in, text out; what thread blocks exchange and
// prefetch; kernel texts that compile.
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

void fuse_both(KernelSchedule& kernel, const GpuTarget& target) {
  fuse_ranges(kernel, target);
  fuse_exchange(kernel, target);
}
KernelSchedule fused(const std::string& text, const GpuTarget& target = {}) {
  KernelSchedule kernel = parse_kernel(text, target);
  fuse_both(kernel, target);
  check(kernel);
  return kernel;
}

// The forms of the tasks: "row ranges".
std::string forms(const KernelSchedule& kernel) {
  std::string out;
  for (const GpuTask& task : kernel.tasks)
    out += fmt::format("{}{}", out.empty() ? "" : " ",
                       task.form == TaskForm::row      ? "row"
                       : task.form == TaskForm::ranges ? "ranges"
                                                       : "exchange");
  return out;
}

// The end of a network. %5 is a layer of 128 rows, %6 a few sums of each row, %7 their maximum, %8 the scaled sums, and
// %9 the gradient of the layer.
const std::string kInputs = "%0:f32[128,1024], %1:f32[1024,1024], %2:f32[1024,10], %3:f32[10], %4:f32[128,10]";
const std::string kLayer = R"(einsum_fused[body=program(%0:f32[128,1024]) {
      %1:f32[128,1024] = tanh %0
      return %1
    }, spec="mk,kn->mn"] %0 %1)";
const std::string kSums = R"(einsum_fused[body=program(%0:f32[128,10], %1:f32[10]) {
      %2:f32[128,10] = broadcast[dims=[1], shape=[128,10]] %1
      %3:f32[128,10] = mul %0 %2
      return %3
    }, spec="mk,kn->mn"] %5 %2 %3)";
// %8 and the layer, of which each element is multiplied by its own.
const std::string kGradient = R"(einsum_fused[body=program(%0:f32[128,1024], %1:f32[128,1024]) {
      %2:f32[128,1024] = mul %0 %1
      return %2
    }, spec="mk,nk->mn"] %8 %2 %5)";

// The network; `gradient`: the last value.
std::string network(const std::string& gradient = "%9:f32[128,1024]", const std::string& scaled = "%8:f32[128,10]") {
  return fmt::format(R"(kernel({}) {{
  %5:f32[128,1024] = {}
  %6:f32[128,10] = {}
  %7:f32[128] = reduce_max[axes=[1]] %6
  {} = mul %6 %4
  {} = {}
  return %7 %9
}}
)",
                     kInputs, kLayer, kSums, scaled, gradient, kGradient);
}

// The same text in the printer's form.
std::string printed(const std::string& text) { return print(parse_kernel(text, {})); }

TEST(FuseExchange, TasksThatNeedRowsAreFusedWithTheProduct) {
  EXPECT_EQ(rewritten(network(), fuse_both), printed(fmt::format(R"(kernel({}) {{
  exchange {{
    %5:f32[128,1024] = {} (exchanged=10)
    %6:f32[128,10] = {}
    %7:f32[128] = reduce_max[axes=[1]] %6
    %8:f32[128,10] = mul %6 %4
    %9:f32[128,1024] = {}
  }}
  return %7 %9
}}
)",
                                                                 kInputs, kLayer, kSums, kGradient)));
}

TEST(FuseExchange, MembersHaveColumnsOrRows) {
  const KernelSchedule kernel = fused(network());
  ASSERT_EQ(forms(kernel), "exchange");
  const GpuTask& task = kernel.tasks[0];
  ASSERT_EQ(task.members.size(), 5u);
  EXPECT_EQ(task.members[0].division, TaskDivision::tiles);
  EXPECT_EQ(task.members[1].division, TaskDivision::columns);
  EXPECT_EQ(task.members[2].division, TaskDivision::warps);
  EXPECT_EQ(task.members[3].division, TaskDivision::warps);
  EXPECT_EQ(task.members[4].division, TaskDivision::columns);
  EXPECT_EQ(operands(task).size(), 2u + 3 + 1 + 2 + 3);
}

TEST(FuseExchange, ThreadBlocksExchangeSumsAndPrefetchOperands) {
  const KernelSchedule kernel = fused(network("%9:f32[128,1024]", "%8:f32[128,10] over %6"));
  ASSERT_EQ(forms(kernel), "exchange");
  const GpuTask& task = kernel.tasks[0];
  const CudaStep &step = *task.step, &product = *task.members[0].step;
  EXPECT_TRUE(step.cooperative && step.counted);
  EXPECT_EQ(step.blocks, product.blocks);
  // Eight bytes for each sum of each thread block, after the workspaces of the product.
  ASSERT_EQ(step.workspaces.size(), product.workspaces.size() + 1);
  EXPECT_EQ(step.workspaces.back(), 128 * (1024 / product.share.cols) * 10 * 8);
  // The prefetched operands are those of the product, and the others that are read.
  ASSERT_EQ(step.prefetches.size(), 5u);
  for (const auto& [k, operand] : {std::pair<size_t, size_t>{2, 3}, {3, 4}, {4, 7}})
    EXPECT_EQ(step.prefetches[k].operands, std::vector<size_t>{operand});
  const auto count = [&](const std::string& what) {
    size_t found = 0;
    for (size_t i = step.body.find(what); i != std::string::npos; i = step.body.find(what, i + 1)) ++found;
    return found;
  };
  // Both products read the same rows of the weights once. The bias has 40 bytes.
  EXPECT_EQ(count("copy_async<16>") + count("copy_async<4>"), 3u) << step.body;
  EXPECT_EQ(count("p2 + i * 4u"), 1u) << step.body;
  // Values that every thread block has are written by one: the maximum, and the scaled sums in place of the sums.
  EXPECT_EQ(count("if (place == 0u)"), 2u) << step.body;
}

TEST(FuseExchange, OneTaskThatAddsUpRowsIsEnough) {
  EXPECT_EQ(
      forms(fused(fmt::format(R"(kernel({}) {{
  %5:f32[128,1024] = {}
  %6:f32[128,10] = {}
  return %6
}}
)",
                              "%0:f32[128,1024], %1:f32[1024,1024], %2:f32[1024,10], %3:f32[10]", kLayer, kSums))),
      "exchange");
}

// An operand of the chain that is computed in the same phase as the product.
TEST(FuseExchange, UnfinishedOperandsPreventFusion) {
  const auto with = [](const std::string& scale) {
    return fmt::format(R"(kernel({}, %10:f32[1024,10]) {{
  %5:f32[128,1024] = {}
  {}
  %6:f32[128,10] = {}
  %7:f32[128] = reduce_max[axes=[1]] %6
  %8:f32[128,10] = mul %6 %11
  %9:f32[128,1024] = {}
  return %7 %9
}}
)",
                       "%0:f32[128,1024], %1:f32[1024,1024], %2:f32[1024,10], %3:f32[10]", kLayer, scale, kSums,
                       kGradient);
  };
  EXPECT_EQ(forms(fused(with("%11:f32[128,10] = einsum[spec=\"mk,kn->mn\"] %0 %10"))), "row row ranges");
}

// The gradient overwrites the layer, or an operand of the product.
TEST(FuseExchange, NoThreadBlockWritesWhatAnotherReads) {
  EXPECT_EQ(forms(fused(network("%9:f32[128,1024] over %5"))), "row ranges");
  EXPECT_EQ(forms(fused(network("%9:f32[128,1024] over %0"))), "row ranges");
}

TEST(FuseExchange, OldValuesAreReadBeforeTheyAreOverwritten) {
  // The scaled sums overwrite an operand that is only read there.
  const KernelSchedule kernel = fused(network("%9:f32[128,1024]", "%8:f32[128,10] over %4"));
  ASSERT_EQ(forms(kernel), "exchange");
  EXPECT_EQ(kernel.tasks[0].step->prefetches.size(), 5u);
  // But not before the thread blocks have exchanged their partial sums: until then one of them may still read it.
  const auto exchange = [](const std::string& scaled) {
    return fmt::format(R"(kernel({}) {{
  exchange {{
    %5:f32[128,1024] = {}
    {} = mul %4 %4
    %6:f32[128,10] = {}
    %9:f32[128,1024] = {}
  }}
  return %6 %9
}}
)",
                       kInputs, kLayer, scaled, kSums, kGradient);
  };
  EXPECT_NO_THROW(parse_kernel(exchange("%8:f32[128,10]"), {}));
  EXPECT_THROW(parse_kernel(exchange("%8:f32[128,10] over %4"), {}), Error);
}

// Sums of rows and a second product by columns, of `rows` and %4, with an epilogue that reads %5.
std::string by_columns(int64_t width, int64_t few, const std::string& rows, const std::string& body) {
  return fmt::format(R"(kernel(%0:f32[128,1024], %1:f32[1024,{w}], %2:f32[{w},{few}], %4:f32[{w},{few}]) {{
  %5:f32[128,{w}] = einsum[spec="mk,kn->mn"] %0 %1
  %6:f32[128,{few}] = einsum[spec="mk,kn->mn"] %5 %2
  %9:f32[128,{w}] = einsum_fused[body=program(%0:f32[128,{w}], %1:f32[128,{w}]) {{
{body}
    }}, spec="mk,nk->mn"] {rows} %4 %5
  return %6 %9
}}
)",
                     fmt::arg("w", width), fmt::arg("few", few), fmt::arg("rows", rows), fmt::arg("body", body));
}

TEST(FuseExchange, OnlyTheColumnsOfAThreadBlockAreReadFromItsTile) {
  const std::string same = "      %2:f32[128,1024] = mul %0 %1\n      return %2";
  EXPECT_EQ(forms(fused(by_columns(1024, 10, "%6", same))), "exchange");
  // The first column of each row, which other thread blocks have.
  const std::string first = R"(      %2:f32[128,1] = slice[limits=[128,1], starts=[0,0], strides=[1,1]] %1
      %3:f32[128] = reshape[shape=[128]] %2
      %4:f32[128,1024] = broadcast[dims=[0], shape=[128,1024]] %3
      %5:f32[128,1024] = mul %0 %4
      return %5)";
  EXPECT_EQ(forms(fused(by_columns(1024, 10, "%6", first))), "row ranges");
  // All columns. The second product does not need the sums, so it stays a task of its own.
  const std::string narrow = "      %2:f32[128,32] = mul %0 %1\n      return %2";
  EXPECT_EQ(forms(fused(by_columns(32, 32, "%6", narrow))), "exchange");
  EXPECT_EQ(forms(fused(by_columns(32, 32, "%5", narrow))), "exchange row");
  const auto exchange = [&](const std::string& rows) {
    std::string text = by_columns(32, 32, rows, narrow);
    text.insert(text.find("  %5:"), "  exchange {\n");
    return text.insert(text.find("  return %6"), "  }\n");
  };
  EXPECT_NO_THROW(parse_kernel(exchange("%6"), {}));
  EXPECT_THROW(parse_kernel(exchange("%5"), {}), Error);
}

TEST(FuseExchange, OperandsOfColumnsAreNotOverwrittenByOthers) {
  const auto with = [](const std::string& overwriting) {
    return fmt::format(R"(kernel(%0:f32[128,1024], %1:f32[1024,1024], %2:f32[1024,10], %3:f32[10], %4:f32[128]) {{
  %5:f32[128,1024] = {}
  %6:f32[128,10] = {}
  %7:f32[128] = reduce_max[axes=[1]] %6
  %9:f32[128,1024] = einsum_fused[body=program(%0:f32[128,1024], %1:f32[128]) {{
      %2:f32[128,1024] = broadcast[dims=[0], shape=[128,1024]] %1
      %3:f32[128,1024] = mul %0 %2
      return %3
    }}, spec="mk,nk->mn"] %6 %2 %4
  {} = mul %4 %7
  return %9 %10
}}
)",
                       kLayer, kSums, overwriting);
  };
  EXPECT_EQ(forms(fused(with("%10:f32[128]"))), "exchange");
  EXPECT_EQ(forms(fused(with("%10:f32[128] over %4"))).find("exchange"), std::string::npos);
}

TEST(LowerExchange, ThreadBlocksThatWaitForEachOtherAreResident) {
  const KernelSchedule kernel = fused(network());
  ASSERT_EQ(forms(kernel), "exchange");
  const GpuTask& task = kernel.tasks[0];
  for (const int processors : {132, 100, 64, 33, 5}) {
    const GpuTask fewer = with_processors(task, processors, {});
    EXPECT_EQ(fewer.form, TaskForm::exchange);
    EXPECT_LE(fewer.step->blocks, fewer.members[0].processors > 0 ? processors : 132);
    EXPECT_EQ(fewer.step->name, task.step->name);
    EXPECT_EQ(results(fewer), results(task));
  }
}

TEST(LowerExchange, TextsCompile) {
  struct Case {
    const char* dtype;
    int64_t width, classes, deep;
    const char* architecture;
  };
  for (const Case& c :
       {Case{"f32", 1024, 10, 1024, "sm_90"}, Case{"bf16", 1024, 10, 1024, "sm_90"}, Case{"f32", 128, 10, 256, "sm_80"},
        Case{"f16", 256, 32, 128, "sm_90"}, Case{"f32", 512, 2, 512, "sm_90"}}) {
    SCOPED_TRACE(fmt::format("{} columns to {}, {}", c.width, c.classes, c.dtype));
    const auto type = [&](int64_t rows, int64_t cols) { return fmt::format("{}[{},{}]", c.dtype, rows, cols); };
    const std::string text = fmt::format(
        R"(kernel(%0:{x}, %1:{first}, %2:{second}, %3:{dtype}[{classes}], %4:{sums}) {{
  %5:{layer} = einsum_fused[body=program(%0:{layer}) {{
      %1:{layer} = tanh %0
      return %1
    }}, spec="mk,kn->mn"] %0 %1
  %6:{sums} = einsum_fused[body=program(%0:{sums}, %1:{dtype}[{classes}]) {{
      %2:{sums} = broadcast[dims=[1], shape=[128,{classes}]] %1
      %3:{sums} = mul %0 %2
      return %3
    }}, spec="mk,kn->mn"] %5 %2 %3
  %7:{dtype}[128] = reduce_max[axes=[1]] %6
  %8:{sums} over %6 = mul %6 %4
  %9:{layer} = einsum_fused[body=program(%0:{layer}, %1:{layer}) {{
      %2:{layer} = mul %0 %1
      return %2
    }}, spec="mk,nk->mn"] %8 %2 %5
  return %7 %9
}}
)",
        fmt::arg("dtype", c.dtype), fmt::arg("classes", c.classes), fmt::arg("x", type(128, c.deep)),
        fmt::arg("first", type(c.deep, c.width)), fmt::arg("second", type(c.width, c.classes)),
        fmt::arg("layer", type(128, c.width)), fmt::arg("sums", type(128, c.classes)));
    const GpuTarget target{.major = c.architecture[3] - '0'};
    KernelSchedule kernel = fused(text, target);
    ASSERT_EQ(forms(kernel), "exchange");
    assign_phases(kernel, target);
    const KernelText got = kernel_text(kernel, {});
    EXPECT_NE(got.text.find("uint32_t(arrivals) + 1u"), std::string::npos);
    try {
      EXPECT_FALSE(compile_quickly(got.text, c.architecture).empty());
    } catch (const Error& e) {
      if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
      FAIL() << e.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::detail
#endif
