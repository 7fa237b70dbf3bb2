// Operands that a persistent kernel prefetches before the previous kernel has ended: which, when, and kernel texts that
// compile. Needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/prefetch_ahead.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/cuda/kernel_text.h"
#include "plan/kernel_texts.h"

namespace lockstep::detail {
namespace {

// A layer of rows that the product gathers from a table, and new weights. `more`: what else the step does.
std::string a_step(const std::string& weights, const std::string& more = "") {
  return fmt::format(R"(kernel(%0:f32[784,128], %1:f32[50,784], %2:i32[128], %3:f32[128,784]) {{
  %5:f32[128,128] = einsum[spec="mk,kn->mn"] %4 %0 (ready)
    computes {{
      %4:f32[128,784] = gather[axis=0, batch_dims=0] %1 %2
    }}
  %6:f32[784,128] = einsum[spec="mk,mn->kn"] %3 %5
  {} = tanh %6
{}  return %7
}}
)",
                     weights, more);
}
const std::string kOverwritten = "%7:f32[784,128] over %0", kElsewhere = "%7:f32[784,128]";

std::vector<TaskValue> kernel_values(const KernelSchedule& kernel) { return values_of(pointers_of(kernel)); }

// The operands that the tasks of the first phase prefetch ahead, by task.
std::string ahead(const std::string& text, const RoundStrides* rounds = nullptr) {
  const KernelSchedule kernel = scheduled(text);
  const std::optional<AheadPrefetch> found = AheadPrefetch::of(kernel, kernel_values(kernel), rounds);
  if (!found) return "nothing";
  std::string out;
  for (const size_t task : kernel.phases[0]) {
    out += out.empty() ? "" : " |";
    for (size_t k = 0; found->prefetched(task) >> k != 0; ++k)
      if (found->prefetched(task) & 1u << k)
        for (const size_t operand : kernel.tasks[task].step->prefetches[k].operands)
          out += fmt::format(" %{}", operands(kernel.tasks[task])[operand].id);
  }
  return out;
}

TEST(PrefetchAhead, OperandsThatTheKernelDoesNotWriteArePrefetched) {
  EXPECT_EQ(ahead(a_step(kOverwritten)), " %1 %2");
  EXPECT_EQ(ahead(a_step(kElsewhere)), " %1 %2 %0") << "all, if the weights do not change";
  const std::string next_rows = "  %8:i32[128] over %2 = add %2 %2\n";
  EXPECT_EQ(ahead(a_step(kElsewhere, next_rows)), " %0");
  EXPECT_EQ(ahead(a_step(kOverwritten, next_rows)), "nothing");
}

// The previous round wrote the rows of this one.
TEST(PrefetchAhead, ValuesOfThePreviousRoundAreNotPrefetched) {
  const RoundStrides moving{{{2, 256}}}, carried{{{2, 0}}};
  EXPECT_EQ(ahead(a_step(kOverwritten), &moving), " %1 %2");
  EXPECT_EQ(ahead(a_step(kOverwritten), &carried), "nothing");
  EXPECT_EQ(ahead(a_step(kElsewhere), &carried), " %0");
}

TEST(PrefetchAhead, EachTaskOfTheFirstPhaseHasItsOwnOperands) {
  EXPECT_EQ(ahead(R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[64,512], %3:f32[512,256]) {
  %4:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  %5:f32[64,256] = einsum[spec="mk,kn->mn"] %2 %3
  %6:f32[64,64] = exp %1
  %7:f32[64,64] over %0 = tanh %4
  return %5 %6 %7
}
)"),
            " %2 %3 | %1 |");
}

// The members of a chain share its shared memory. What prefetches nothing has no AheadPrefetch.
TEST(PrefetchAhead, ChainsPrefetchNothing) {
  EXPECT_EQ(ahead(R"(kernel(%0:f32[8,8], %1:f32[8,8], %2:f32[8,8]) {
  %3:f32[8,8] = einsum[spec="mk,kn->mn"] %0 %1
  %4:f32[8,8] = einsum[spec="mk,kn->mn"] %3 %2
  return %4
}
)"),
            "nothing");
  EXPECT_EQ(ahead(R"(kernel(%0:f32[320,320]) {
  %1:f32[320,320] = tanh %0
  return %1
}
)"),
            "nothing");
  EXPECT_FALSE(AheadPrefetch::of({}, {}));
}

TEST(PrefetchAhead, LaunchesThatReadThePreviousResultsDoNotStartEarly) {
  const KernelSchedule kernel = scheduled(a_step(kElsewhere));
  const std::vector<TaskValue> values = kernel_values(kernel);
  const AheadPrefetch prefetch = *AheadPrefetch::of(kernel, values);
  const auto place = [&](ValueId id) {
    return static_cast<size_t>(
        std::find_if(values.begin(), values.end(), [&](const TaskValue& each) { return each.id == id; }) -
        values.begin());
  };
  std::vector<std::byte> memory(4 << 20), elsewhere(1 << 20);
  std::vector<void*> pointers;
  std::byte* end = memory.data();
  for (const TaskValue& each : values) {
    pointers.push_back(end);
    end += each.bytes();
  }
  std::vector<AheadPrefetch::Bytes> written;
  EXPECT_TRUE(prefetch.may_start_early(pointers.data(), written));
  prefetch.written(pointers.data(), written);
  EXPECT_EQ(written.size(), 3u);
  EXPECT_TRUE(prefetch.may_start_early(pointers.data(), written));
  // The previous launch wrote the index of the rows, or its last byte.
  auto* const result = static_cast<std::byte*>(pointers[place(7)]);
  const int64_t bytes = values[place(2)].bytes(), all = values[place(7)].bytes();
  const auto may_read = [&](std::byte* at) {
    std::vector<void*> next = pointers;
    next[place(2)] = at;
    return prefetch.may_start_early(next.data(), written);
  };
  EXPECT_FALSE(may_read(result));
  EXPECT_FALSE(may_read(result + all - 1));
  EXPECT_TRUE(may_read(elsewhere.data()));
  pointers[place(7)] = elsewhere.data() + bytes;
  prefetch.written(pointers.data(), written);
  EXPECT_TRUE(may_read(elsewhere.data()));
  EXPECT_FALSE(may_read(elsewhere.data() + 1));
}

// Rows of a table, which the product gathers itself, times a matrix that is written at the end.
TEST(PrefetchAhead, TextsCompile) {
  const KernelSchedule kernel = scheduled(a_step(kOverwritten));
  const std::optional<AheadPrefetch> found = AheadPrefetch::of(kernel, kernel_values(kernel));
  ASSERT_TRUE(found);
  for (const bool near : {false, true}) {
    const std::string text = kernel_text(kernel, {.near = near, .ahead = &*found}).text;
    std::vector<std::string> order = {"uint32_t ahead)", "  if (ahead) {\n"};
    if (near) order.insert(order.end() - 1, "near)[k]"), order.push_back("__syncthreads();");
    order.insert(order.end(),
                 {"prefetch_0_0(blockIdx.x", "  }\n  wait_for_previous_kernel();",
                  "if (!ahead) arrivals = load_relaxed(word);", "__syncthreads();", "step_0(t - 0u, ahead ? 1u : 0u,",
                  "arrive(word, arrivals);", "allow_next_kernel();", "step_2(t - 0u"});
    size_t at = text.find("__global__");
    for (const std::string& each : order) {
      at = text.find(each, at + 1);
      ASSERT_NE(at, std::string::npos) << each << " is missing, or comes earlier:\n" << text;
    }
    EXPECT_EQ(text.find(") prefetch_0_1("), std::string::npos);
    for (const char* architecture : {"sm_90", "sm_80"}) expect_compiles(text, architecture);
  }
  const std::string without = kernel_text(kernel, {}).text;
  EXPECT_EQ(without.find("ahead"), std::string::npos);
  EXPECT_NE(without.find("step_0(t - 0u, 0u,"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::detail
#endif
