// Persistent kernels: the order of tasks and phases, and kernel texts that compile. Needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/whole_kernel.h"

#include <gtest/gtest.h>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/text.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep::detail {
namespace {

// A part of one step with `blocks` blocks, with operands and results in ranges of one memory.
struct Made {
  std::vector<SteppedKernel> kernels;
  std::vector<KernelPart> parts;

  Made() { kernels.reserve(32); }

  using Stretches = std::vector<std::pair<int64_t, int64_t>>;
  void add(int64_t blocks, const Stretches& in, const Stretches& out, double operations = 0, bool cooperative = false) {
    CudaStep step;
    step.name = "step";
    step.blocks = blocks;
    step.operations = operations;
    step.cooperative = cooperative;
    // When rebuilt it has as many blocks as processors, at most its own number.
    const auto remake = [step](int processors) {
      CudaStep other = step;
      other.blocks = std::min<int64_t>(processors, step.blocks);
      return SteppedKernel(nullptr, {other});
    };
    kernels.emplace_back(nullptr, std::vector<CudaStep>{step}, std::vector<BufferPtr>(), SteppedWays{.remake = remake});
    KernelPart part{&kernels.back(), {}, {}};
    for (const auto& [begin, end] : in) part.in.push_back({0, begin, end});
    for (const auto& [begin, end] : out) part.out.push_back({0, begin, end});
    parts.push_back(part);
  }

  // Phases as text: tasks as the numbers of their parts.
  std::string text() const { return text(phases_of(parts)); }
  static std::string text(const std::vector<Phase>& phases) {
    std::string out;
    for (const Phase& phase : phases) {
      out += out.empty() ? "" : " |";
      for (const Task& task : phase) {
        std::string one;
        for (const PartStep& step : task) one += (one.empty() ? "" : "-") + std::to_string(step.part);
        out += " " + one;
      }
    }
    return out;
  }
};

TEST(PersistentKernel, OperandsAreComputedInAnEarlierPhase) {
  Made m;
  m.add(100, {{0, 10}}, {{10, 20}});
  m.add(100, {{10, 20}}, {{20, 30}});
  m.add(100, {{0, 10}}, {{30, 40}});
  EXPECT_EQ(m.text(), " 0 2 | 1");
}

TEST(PersistentKernel, MemoryIsOverwrittenAfterItIsRead) {
  Made m;
  m.add(100, {{0, 10}}, {{10, 20}});
  m.add(100, {{50, 60}}, {{5, 8}});
  EXPECT_EQ(m.text(), " 0 | 1");
}

TEST(PersistentKernel, DependentSmallStepsFormAChain) {
  Made m;
  m.add(100, {}, {{0, 10}});
  m.add(2, {{0, 10}}, {{10, 20}});
  m.add(1, {{10, 20}}, {{20, 30}});
  m.add(2, {{40, 50}}, {{50, 60}});
  m.add(1, {{20, 30}, {50, 60}}, {{60, 70}});
  m.add(100, {{60, 70}}, {{70, 80}});
  // The fourth depends on nothing and comes first; it does not join the chain.
  EXPECT_EQ(m.text(), " 0 3 | 1-2-4 | 5");
}

TEST(PersistentKernel, ChainsWithACommonUserAreMerged) {
  Made m;
  m.add(1, {{0, 1}}, {{10, 20}});
  m.add(1, {{10, 20}}, {{20, 30}});
  m.add(1, {{0, 1}}, {{30, 40}});
  m.add(1, {{30, 40}}, {{40, 50}});
  m.add(1, {{20, 30}, {40, 50}}, {{50, 60}});
  EXPECT_EQ(m.text(), " 0-1-2-3-4");
}

// A single block would wait for the others forever.
TEST(PersistentKernel, StepWithABarrierIsNotInAChain) {
  Made m;
  m.add(1, {}, {{0, 10}});
  m.add(2, {{0, 10}}, {{10, 20}}, 100, true);
  m.add(1, {{10, 20}}, {{20, 30}});
  EXPECT_EQ(m.text(), " 0 | 1 | 2");
}

// A thread reads only what it has written.
TEST(PersistentKernel, StepsOfTheSameElementsShareATask) {
  const auto add = [](Made& m, int64_t each, std::vector<size_t> in_place, std::pair<int64_t, int64_t> in,
                      std::pair<int64_t, int64_t> out) {
    CudaStep step;
    step.blocks = 100;
    step.elements = 51200 * each;
    step.each = each;
    step.in_place = std::move(in_place);
    m.kernels.emplace_back(nullptr, std::vector<CudaStep>{step});
    m.parts.push_back({&m.kernels.back(), {{0, in.first, in.second}}, {{0, out.first, out.second}}});
  };
  Made same, elsewhere, other, part, over;
  add(same, 1, {}, {0, 10}, {10, 20});
  add(same, 1, {0}, {10, 20}, {20, 30});
  EXPECT_EQ(same.text(), " 0-1");
  EXPECT_FALSE(is_chain(same.parts, phases_of(same.parts)[0][0]));
  add(elsewhere, 1, {}, {0, 10}, {10, 20});
  add(elsewhere, 1, {}, {10, 20}, {20, 30});
  EXPECT_EQ(elsewhere.text(), " 0 | 1");
  add(other, 1, {}, {0, 10}, {10, 20});
  add(other, 2, {0}, {10, 20}, {20, 30});
  EXPECT_EQ(other.text(), " 0 | 1");
  add(part, 1, {}, {0, 10}, {10, 20});
  add(part, 1, {0}, {10, 15}, {20, 30});
  EXPECT_EQ(part.text(), " 0 | 1");
  add(over, 1, {}, {0, 10}, {10, 20});
  add(over, 1, {0}, {10, 20}, {0, 10});
  EXPECT_EQ(over.text(), " 0 | 1");
}

TEST(PersistentKernel, LongestTaskComesFirst) {
  Made m;
  m.add(64, {}, {{0, 1}});
  m.add(64, {}, {{1, 2}}, 1e6);
  m.add(128, {}, {{2, 3}}, 1e9);
  m.add(1, {}, {{3, 4}});
  m.add(1, {{3, 4}}, {{4, 5}});
  EXPECT_EQ(m.text(), " 3-4 2 1 0");
}

TEST(PersistentKernel, ProductsOfOnePhaseShareTheGpu) {
  Made m;
  m.add(128, {}, {{0, 1}}, 3e8);
  m.add(112, {}, {{1, 2}}, 1e8);
  m.add(64, {}, {{2, 3}}, 1e3);
  m.add(64, {}, {{3, 4}});
  m.add(120, {{0, 1}}, {{4, 5}}, 3e8);  // has its own phase,
  m.add(64, {{0, 1}}, {{5, 6}});        // with a task beside it
  m.add(112, {{4, 5}}, {{6, 7}}, 3e8);
  m.add(100, {{4, 5}}, {{7, 8}}, 1e6);
  m.add(64, {{4, 5}}, {{8, 9}});
  std::deque<SteppedKernel> made;
  assign_blocks(m.parts, phases_of(m.parts), 128, made);
  std::vector<int64_t> blocks;
  for (const KernelPart& part : m.parts) blocks.push_back(part.kernel->steps()[0].blocks);
  // The first two take nearly all blocks, so the others get an eighth and a quarter. Then eight blocks are left; then
  // sixteen for the smaller product, and none.
  EXPECT_EQ(blocks, (std::vector<int64_t>{95, 31, 16, 32, 120, 8, 112, 16, 32}));
}

// In a phase whose products use the full GPU, only those and what others need stay.
TEST(PersistentKernel, IndependentTasksAreDelayed) {
  constexpr double kMuch = 2e8;
  const auto text = [](const Made& m) { return Made::text(balanced_phases(m.parts, 132)); };
  Made m;
  m.add(100, {}, {{0, 1}}, kMuch);
  m.add(100, {}, {{1, 2}}, 1e6);  // nothing needs it
  m.add(100, {}, {{2, 3}});       // nothing needs it either
  m.add(100, {}, {{3, 4}});       // needed in the next phase
  m.add(1, {}, {{4, 5}});         // an idle block runs it
  m.add(100, {}, {{8, 9}}, kMuch);
  m.add(100, {{0, 1}, {3, 4}}, {{5, 6}}, 3 * kMuch);
  EXPECT_EQ(m.text(), " 0 5 1 2 3 4 | 6");
  EXPECT_EQ(text(m), " 0 5 3 4 | 6 1 2");
  m.add(100, {{5, 6}, {2, 3}}, {{6, 7}});  // a small phase
  EXPECT_EQ(text(m), " 0 5 3 4 | 6 1 2 | 7");
  m.add(100, {{6, 7}}, {{0, 1}}, kMuch);  // a smaller one
  EXPECT_EQ(text(m), " 0 5 3 4 | 6 1 2 | 7 | 8");
  m.add(100, {{6, 7}}, {{9, 10}}, 2 * kMuch);
  EXPECT_EQ(text(m), " 0 5 3 4 | 6 2 | 7 | 9 8 1");

  Made sums;  // of a small product, on which alone they depend, and then with others
  sums.add(100, {}, {{0, 1}}, kMuch);
  sums.add(100, {}, {{1, 2}}, 1e6);
  sums.add(1, {{1, 2}}, {{2, 3}});
  sums.add(100, {{0, 1}}, {{3, 4}}, 3 * kMuch);
  sums.add(1, {{2, 3}, {3, 4}}, {{4, 5}});
  EXPECT_EQ(sums.text(), " 0 1 | 3 2 | 4");
  EXPECT_EQ(text(sums), " 0 | 3 1 | 2-4");
  sums.add(100, {{2, 3}}, {{5, 6}});  // a step that is not small needs it
  EXPECT_EQ(text(sums), " 0 1 | 3 2 | 4 5");
  Made last;  // not if it would need a new phase
  last.add(100, {}, {{0, 1}}, kMuch);
  last.add(100, {}, {{1, 2}}, 1e6);
  last.add(1, {{1, 2}}, {{2, 3}});
  last.add(100, {{0, 1}}, {{3, 4}}, 3 * kMuch);
  EXPECT_EQ(text(last), " 0 1 | 3 2");
  Made other;  // not for steps that are not products
  other.add(100, {}, {{0, 1}}, kMuch);
  other.add(100, {}, {{1, 2}});
  other.add(1, {{1, 2}}, {{2, 3}});
  other.add(100, {{0, 1}}, {{3, 4}}, 3 * kMuch);
  other.add(1, {{2, 3}, {3, 4}}, {{4, 5}});
  EXPECT_EQ(text(other), " 0 1 | 3 2 | 4");

  Made small;  // products that leave blocks free
  small.add(100, {}, {{0, 1}}, 1e7);
  small.add(100, {}, {{1, 2}}, 1e6);
  small.add(100, {{0, 1}}, {{2, 3}}, kMuch);
  EXPECT_EQ(text(small), small.text());
}

TEST(PersistentKernel, StepsOfAnInstructionAreOrdered) {
  CudaStep first, second;
  first.blocks = second.blocks = 100;
  const SteppedKernel kernel(nullptr, {first, second});
  const KernelPart part{&kernel, {}, {}};
  const std::vector<Phase> phases = phases_of(std::span(&part, 1));
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[1][0][0].step, 1u);
}

// Products of all kinds with epilogues, and instructions before and after.
struct Texts {
  std::vector<SteppedKernel> kernels;
  std::vector<KernelPart> parts;

  Texts() { kernels.reserve(64); }

  void add(CudaStep step) {
    kernels.emplace_back(nullptr, std::vector<CudaStep>{std::move(step)});
    parts.push_back({&kernels.back(), {}, {}});
  }
  void add(const GemmSpec& g) {
    const std::optional<GemmStep> product = gemm_step(g, 132, 220 << 10);
    ASSERT_TRUE(product);
    Builder b;
    const Type type{g.dtype, {g.m, g.n}};
    const Value x = b.input(type), y = b.input(type);
    const Program body = b.take(Values{b.emit(tanh_op, Values{b.emit(add_op, Values{x, y}, {})[0]}, {})[0]});
    CudaStep step;
    step.parameters = fmt::format("const {}* a, const {}* b", memory_type(g.dtype), memory_type(g.dtype));
    step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::operand, 1}};
    ASSERT_TRUE(add_finish(step, *product, body, 2));
    EXPECT_GT(step.blocks, 0);
    add(std::move(step));
  }
};

TEST(PersistentKernel, TextsOfProductsCompile) {
  struct Case {
    DType dtype;
    int64_t m, n, k;
    bool ta, tb;
    const char* architecture;
  };
  for (const Case& c :
       {Case{DType::f32, 128, 1024, 784, false, false, "sm_90"}, Case{DType::f32, 33, 65, 10, true, true, "sm_80"},
        Case{DType::f32, 128, 1024, 1024, false, true, "sm_90"}, Case{DType::f32, 784, 1024, 128, true, false, "sm_90"},
        Case{DType::bf16, 128, 10, 1024, false, true, "sm_80"}, Case{DType::bf16, 64, 10, 64, true, true, "sm_90"},
        Case{DType::f16, 128, 1024, 784, false, false, "sm_80"},
        Case{DType::f16, 784, 1024, 128, true, false, "sm_90"}}) {
    Texts texts;
    texts.add({.dtype = c.dtype, .m = c.m, .n = c.n, .k = c.k, .transpose_a = c.ta, .transpose_b = c.tb});
    const std::string text = persistent_kernel_text(texts.parts, phases_of(texts.parts));
    try {
      EXPECT_FALSE(compile_cuda(text, kernel_headers(), c.architecture).empty());
    } catch (const Error& e) {
      if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
      FAIL() << e.what();
    }
  }
}

// The first product writes one operand of the second; the other can be prefetched before the grid barrier.
TEST(PersistentKernel, UnwrittenOperandsArePrefetched) {
  Texts texts;
  for (int i = 0; i < 2; ++i) texts.add({.m = 64, .n = 64, .k = 64});
  texts.parts[0].in = {{0, 0, 1}, {0, 1, 2}, {0, 2, 3}};
  texts.parts[0].out = {{0, 10, 20}};
  texts.parts[1].in = {{0, 10, 20}, {0, 30, 40}, {0, 50, 60}};
  texts.parts[1].out = {{0, 60, 70}};
  for (KernelPart& part : texts.parts) part.operands = {0, 1, 2}, part.results = {0};
  const std::string text = persistent_kernel_text(texts.parts, phases_of(texts.parts));
  const size_t arrive = text.find("  arrive(word, all_came);\n  if (blockIdx.x"),
               bring = text.find(") early_1_0_1(blockIdx.x");
  EXPECT_LT(arrive, bring);
  EXPECT_LT(bring, text.find("  wait_for_all(word, all_came);\n  before_the_next();"));
  EXPECT_NE(text.find("step_1_0(t - 0u, t == blockIdx.x ? 2u : 0u,"), std::string::npos) << text;
  EXPECT_NE(text.find("step_0_0(t - 0u, 0u,"), std::string::npos);
  for (const char* never : {") early_0_0_0(", ") early_0_0_1(", ") early_1_0_0("})
    EXPECT_EQ(text.find(never), std::string::npos) << never;
  // With as many blocks as tasks, each block has at most one.
  const std::string once = persistent_kernel_text(texts.parts, phases_of(texts.parts), nullptr, true, nullptr, 132);
  EXPECT_NE(once.find("step_1_0(t - 0u, 2u,"), std::string::npos) << once;
  EXPECT_EQ(once.find("t += "), std::string::npos) << once;
}

// The first task of a block is not in the loop over its other tasks.
TEST(PersistentKernel, FirstTaskIsOutsideOfTheLoop) {
  Texts texts;
  for (int i = 0; i < 2; ++i) texts.add({.m = 64, .n = 64, .k = 64});
  for (KernelPart& part : texts.parts) part.operands = {0, 1, 2}, part.results = {0};
  for (size_t i = 0; i < 2; ++i) {
    const auto at = static_cast<int64_t>(i) * 100;
    texts.parts[i].in = {{0, at, at + 1}, {0, at + 1, at + 2}, {0, at + 2, at + 3}};
    texts.parts[i].out = {{0, at + 10, at + 20}};
  }
  const int64_t blocks = texts.parts[0].kernel->steps()[0].blocks;
  const auto text_on = [&](int64_t processors) {
    return persistent_kernel_text(texts.parts, phases_of(texts.parts), nullptr, true, nullptr, processors);
  };
  const auto calls = [](const std::string& text, const std::string& name) {
    int64_t out = 0;
    for (size_t at = text.find("      " + name); at != std::string::npos; at = text.find("      " + name, at + 1))
      ++out;
    return out;
  };
  const std::string all = text_on(2 * blocks), one = text_on(blocks);
  EXPECT_EQ(all.find("t += "), std::string::npos);
  EXPECT_NE(one.find(fmt::format("t = blockIdx.x + {0}u; t < {1}u; t += {0}u", blocks, 2 * blocks)), std::string::npos)
      << one;
  for (const char* name : {"step_0_0(", "step_1_0("}) EXPECT_EQ(calls(one, name), 1) << one;
}

TEST(PersistentKernel, EpilogueOnOtherElementsIsRejected) {
  const std::optional<GemmStep> product = gemm_step({.m = 8, .n = 8, .k = 8}, 132, 160 << 10);
  ASSERT_TRUE(product);
  Builder b;
  const Value x = b.input({DType::f32, {8, 8}});
  const Value turned = transpose(x, {1, 0});
  const Program body = b.take(Values{b.emit(add_op, Values{x, turned}, {})[0]});
  CudaStep step;
  EXPECT_FALSE(add_finish(step, *product, body, 2));
  EXPECT_TRUE(step.body.empty());
}

TEST(PersistentKernel, OnlySmallInstructionsAreJoined) {
  CudaStep step;
  step.blocks = 100;
  EXPECT_TRUE(may_join(SteppedKernel(nullptr, {step}), 132));
  step.operations = 1e12;
  EXPECT_FALSE(may_join(SteppedKernel(nullptr, {step}), 132));
  step.operations = 0;
  step.blocks = 1 << 20;
  EXPECT_FALSE(may_join(SteppedKernel(nullptr, {step}), 132));
}

}  // namespace
}  // namespace lockstep::detail
#endif
