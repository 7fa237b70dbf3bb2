// The texts of persistent kernels: what they contain, and that they compile. Needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/kernel_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "plan/cuda/rewrites/overlap_rounds.h"
#include "plan/kernel_texts.h"

namespace lockstep::detail {
namespace {

const std::string kTwoProducts = R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64]) {
  %3:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  %4:f32[64,64] = einsum[spec="mk,kn->mn"] %3 %2
  return %4
}
)";

size_t count_of(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

// Products of all kinds, with epilogues.
TEST(KernelText, ProductsCompile) {
  struct Case {
    const char *dtype, *spec, *a, *b, *out;
    int major;
  };
  for (const Case& c : {Case{"f32", "mk,kn->mn", "128,784", "784,1024", "128,1024", 9},
                        {"f32", "km,nk->mn", "10,33", "65,10", "33,65", 8},
                        {"f32", "mk,nk->mn", "128,1024", "1024,1024", "128,1024", 9},
                        {"f32", "km,kn->mn", "128,784", "128,1024", "784,1024", 9},
                        {"bf16", "mk,nk->mn", "128,1024", "10,1024", "128,10", 8},
                        {"bf16", "km,nk->mn", "64,64", "10,64", "64,10", 9},
                        {"f16", "mk,kn->mn", "128,784", "784,1024", "128,1024", 8},
                        {"f16", "km,kn->mn", "128,784", "128,1024", "784,1024", 9}}) {
    SCOPED_TRACE(fmt::format("{} {} of {} and {}", c.dtype, c.spec, c.a, c.b));
    const std::string text = fmt::format(
        R"(kernel(%0:{0}[{2}], %1:{0}[{3}], %2:{0}[{4}]) {{
  %3:{0}[{4}] = einsum_fused[body=program(%0:{0}[{4}], %1:{0}[{4}]) {{
    %2:{0}[{4}] = add %0 %1
    %3:{0}[{4}] = tanh %2
    return %3
  }}, spec="{1}"] %0 %1 %2
  return %3
}}
)",
        c.dtype, c.spec, c.a, c.b, c.out);
    const GpuTarget target{.shared_bytes = 160 << 10, .major = c.major};
    expect_compiles(kernel_text(scheduled(text, target), {}).text, c.major == 9 ? "sm_90" : "sm_80");
  }
}

// The first product writes one operand of the second; the other is prefetched before the grid barrier.
TEST(KernelText, OperandsArePrefetchedAtTheGridBarrier) {
  const KernelSchedule kernel = scheduled(kTwoProducts);
  const std::string text = kernel_text(kernel, {.processors = 1}).text;
  const size_t arrive = text.find("  arrive(word, arrivals);\n  if (blockIdx.x"),
               prefetch = text.find(") prefetch_1_1(blockIdx.x");
  EXPECT_LT(arrive, prefetch);
  EXPECT_LT(prefetch, text.find("  wait_for_all(word, arrivals);\n  allow_next_kernel();"));
  EXPECT_NE(text.find("step_1(t - 0u, t == blockIdx.x ? 2u : 0u,"), std::string::npos) << text;
  EXPECT_NE(text.find("step_0(t - 0u, 0u,"), std::string::npos);
  for (const char* never : {") prefetch_0_0(", ") prefetch_0_1(", ") prefetch_1_0("})
    EXPECT_EQ(text.find(never), std::string::npos) << never;
  // With as many thread blocks as the tasks have, each has at most one.
  const std::string once = kernel_text(kernel, {.processors = 132}).text;
  EXPECT_NE(once.find("step_1(t - 0u, 2u,"), std::string::npos) << once;
  EXPECT_EQ(once.find("t += "), std::string::npos) << once;
}

// The first task of a thread block is not in the loop over its further tasks.
TEST(KernelText, FirstTaskIsOutsideOfTheLoop) {
  const KernelSchedule kernel = scheduled(R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,64], %3:f32[64,64]) {
  %4:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  %5:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %3
  return %4 %5
}
)");
  const int64_t blocks = kernel.tasks[0].step->blocks;
  const std::string all = kernel_text(kernel, {.processors = 2 * blocks}).text,
                    half = kernel_text(kernel, {.processors = blocks}).text;
  EXPECT_EQ(all.find("t += "), std::string::npos);
  EXPECT_NE(half.find(fmt::format("t = blockIdx.x + {0}u; t < {1}u; t += {0}u", blocks, 2 * blocks)), std::string::npos)
      << half;
  for (const char* name : {"      step_0(", "      step_1("}) EXPECT_EQ(count_of(half, name), 1u) << half;
}

// Each step has its own pointers, but a value is listed once. A reduction that is not split yet counts with both tasks.
TEST(KernelText, PointersAreNumberedByStep) {
  KernelSchedule kernel = parse_kernel(R"(kernel(%0:f32[1000000], %1:f32[8]) {
  %2:f32[] = reduce_sum[axes=[0]] %0
  %3:f32[8] = tanh %1
  %4:f32[8] over %3 = exp %3
  return %2 %4
}
)",
                                       {});
  EXPECT_EQ(pointer_count(kernel), 8u);
  split_reductions(kernel, {});
  assign_phases(kernel, {});
  EXPECT_EQ(pointer_count(kernel), 8u);
  std::string pointers, values;
  for (const KernelPointer& each : pointers_of(kernel))
    pointers += fmt::format(" {}{}", each.kind == KernelPointer::result ? ">" : "", each.value.id);
  for (const TaskValue& each : values_of(pointers_of(kernel))) values += fmt::format(" {}", each.id);
  EXPECT_EQ(pointers, " 0 >5 5 >2 1 >3 3 >4");
  EXPECT_EQ(values, " 0 5 2 1 3 4");
}

TEST(KernelText, PointersAreCopiedIfThereIsRoom) {
  const KernelSchedule kernel = scheduled(kTwoProducts);
  const KernelText text = kernel_text(kernel, {});
  EXPECT_GT(text.shared_bytes, 0);
  EXPECT_FALSE(text.register_bound);
  EXPECT_TRUE(has_room_for_pointers(kernel, 227 << 10));
  EXPECT_FALSE(has_room_for_pointers(kernel, text.shared_bytes));
  EXPECT_NE(text.text.find("__shared__ All near;"), std::string::npos);
  EXPECT_EQ(kernel_text(kernel, {.near = false}).text.find("near"), std::string::npos);
}

// The metrics of a step overlap the next round.
KernelSchedule step_with_metrics(int metrics) {
  std::string rows, returned = "  return %4";
  for (int id = 5; id < 5 + metrics; ++id) {
    rows += fmt::format("  %{}:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %4\n", id);
    returned += fmt::format(" %{}", id);
  }
  return scheduled(R"(kernel(%0:f32[64,256], %1:f32[256,256]) {
  %3:f32[64,256] = einsum[spec="mk,kn->mn"] %0 %1
  %4:f32[256,256] = einsum[spec="mk,mn->kn"] %0 %3
)" + rows + returned +
                   "\n}\n");
}

TEST(KernelText, FewThreadBlocksRunOverlappedTasksInTurn) {
  const RoundStrides strides;
  KernelSchedule kernel = step_with_metrics(3);
  overlap_rounds(kernel, strides, {});
  const auto count = [&](int processors, const std::string& block) {
    return count_of(kernel_text(kernel, {.processors = processors, .near = false, .rounds = &strides}).text,
                    "blockIdx.x == gridDim.x - " + block);
  };
  for (const char* const block : {"1u", "2u", "3u"}) EXPECT_EQ(count(64, block), 1u) << block;
  EXPECT_EQ(count(2, "1u"), 2u);
  EXPECT_EQ(count(2, "2u"), 1u);
  EXPECT_EQ(count(1, "1u"), 3u);
}

TEST(KernelText, OverlappedRoundsCompile) {
  const RoundStrides strides{{{0, 4096}, {5, 32}}};
  KernelSchedule kernel = step_with_metrics(1);
  overlap_rounds(kernel, strides, {});
  const std::string text = kernel_text(kernel, {.near = false, .rounds = &strides}).text;
  EXPECT_NE(text.find("blockIdx.x == gridDim.x - 1u) {\n    const uint32_t round = before;"), std::string::npos)
      << text;
  EXPECT_NE(text.find("if (round == rounds) break;"), std::string::npos) << text;
  EXPECT_NE(text.find(", 32ll, round)"), std::string::npos) << text;
  EXPECT_NE(text.find("void* odd[3];"), std::string::npos) << text;  // two products read %0
  expect_compiles(text, "sm_90");
}

TEST(KernelText, RoundsWithoutOverlapCompile) {
  const RoundStrides strides{{{0, 4096}, {5, 0}}};
  KernelSchedule kernel = step_with_metrics(1);
  overlap_rounds(kernel, strides, {});
  const std::string text = kernel_text(kernel, {.near = false, .rounds = &strides}).text;
  EXPECT_NE(text.find("for (uint32_t round = 0; round < rounds; ++round) {"), std::string::npos) << text;
  EXPECT_NE(text.find("if (round + 1 == rounds) allow_next_kernel();"), std::string::npos) << text;
  EXPECT_EQ(text.find("round == rounds) break"), std::string::npos) << text;
  expect_compiles(text, "sm_90");
}

TEST(KernelText, RoundsWithAConditionCompile) {
  const RoundStrides strides{{{0, 0}, {5, 0}}, 5};
  KernelSchedule kernel = step_with_metrics(1);
  overlap_rounds(kernel, strides, {});
  const std::string text = kernel_text(kernel, {.near = false, .rounds = &strides}).text;
  EXPECT_EQ(count_of(text, "if (!continues(all.p["), 1u) << text;
  EXPECT_EQ(count_of(text, "*executed = round;"), 1u) << text;
  EXPECT_EQ(text.find("allow_next_kernel"), std::string::npos) << text;
  expect_compiles(text, "sm_90");
}

}  // namespace
}  // namespace lockstep::detail
#endif
