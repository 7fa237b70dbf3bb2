// The last phase of a kernel of several rounds that overlaps with the next round: when it may, its text, and equal
// results on a GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/code.h"
#include "lane/cuda/cuda_stream.h"
#include "lockstep/error.h"
#include "ops/control.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "plan/cuda/whole_kernel.h"
#include "plan/plan.h"
#include "rows/on_gpu.h"

namespace lockstep::detail {
namespace {

// Parts of one step each, given by the words of four bytes that they read and write in one memory. The strides between
// rounds are set afterwards.
struct Rounds {
  std::deque<SteppedKernel> kernels;
  std::vector<KernelPart> parts;
  RoundStrides steps;

  void add(int64_t blocks, const std::vector<int64_t>& in, const std::vector<int64_t>& out) {
    CudaStep step;
    step.blocks = blocks;
    step.parameters = "float* to";
    step.arguments = {{CudaStep::Argument::result, 0}};
    step.body = "  if (block == 0 && threadIdx.x == 0) to[0] += 1.0f;\n";
    KernelPart part{&kernels.emplace_back(nullptr, std::vector{step}), {}, {}};
    for (const int64_t place : in) {
      part.in.push_back({0, 4 * place, 4 * place + 4});
      part.operands.push_back(steps.in.size());
      steps.in.emplace_back();
    }
    for (const int64_t place : out) {
      part.out.push_back({0, 4 * place, 4 * place + 4});
      part.results.push_back(steps.out.size());
      steps.out.emplace_back();
    }
    parts.push_back(std::move(part));
  }
  bool late(int processors = 64) const {
    return overlaps_next_round(parts, round_phases(parts, phases_of(parts), steps, processors), steps);
  }
};

// A large step writes partial sums (1), which a small one adds (2) after another large one (3).
Rounds sums() {
  Rounds out;
  out.add(40, {0}, {3});
  out.add(40, {3}, {0, 1});
  out.add(1, {1}, {2});
  return out;
}

TEST(WholeLate, SumsThatNoRoundReadsOverlap) {
  EXPECT_TRUE(sums().late());
  Rounds read = sums();  // by the first phase
  read.parts[0].in.push_back(read.parts[2].out[0]);
  read.parts[0].operands.push_back(0);
  EXPECT_FALSE(read.late());
  Rounds written = sums();  // its operand is written by the first phase
  written.parts[0].out.push_back(written.parts[2].in[0]);
  written.parts[0].results.push_back(0);
  EXPECT_FALSE(written.late());
  Rounds large = sums();
  large.add(40, {2}, {9});
  EXPECT_FALSE(large.late());
  Rounds alone;
  alone.add(40, {0}, {1});
  EXPECT_FALSE(alone.late());
}

TEST(WholeLate, DoubleBufferedCarriesDoNotOverlap) {
  Rounds carried = sums();
  carried.steps.out[carried.parts[2].results[0]] = 0;
  EXPECT_FALSE(carried.late());
  carried = sums();
  carried.steps.in[carried.parts[2].operands[0]] = 0;
  EXPECT_FALSE(carried.late());
  carried = sums();
  carried.steps.out[carried.parts[2].results[0]] = 64;  // a row of a result, different in each round
  EXPECT_TRUE(carried.late());
}

// A small task of the first phase whose result the last phase reads moves to the second phase, unless that needs it.
TEST(WholeLate, SmallTasksMoveFromTheFirstToTheSecondPhase) {
  const auto with = [](const std::vector<int64_t>& second) {
    Rounds out;
    out.add(40, {0}, {3});
    out.add(1, {7}, {8});
    out.add(40, second, {4});
    out.add(40, {4}, {0, 1});
    out.add(1, {1, 8}, {2});
    return out;
  };
  const Rounds can = with({3});
  EXPECT_TRUE(can.late());
  const std::vector<Phase> phases = round_phases(can.parts, phases_of(can.parts), can.steps, 64);
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[0].size(), 1u);
  EXPECT_EQ(phases[1].size(), 2u);
  EXPECT_FALSE(with({3, 8}).late());
  EXPECT_FALSE(can.late(40)) << "no block is free in the second phase";
}

TEST(WholeLate, FewBlocksRunThemInTurn) {
  Rounds rounds;
  rounds.add(40, {0}, {3});
  rounds.add(40, {3}, {0, 1, 4, 5});
  for (const int64_t place : {1, 4, 5}) rounds.add(1, {place}, {place + 10});
  const std::vector<Phase> phases = phases_of(rounds.parts);
  const auto count = [&](int processors, const std::string& block) {
    const std::string text = persistent_kernel_text(rounds.parts, phases, &rounds.steps, false, nullptr, processors);
    size_t out = 0;
    for (size_t at = 0; (at = text.find("blockIdx.x == gridDim.x - " + block, at)) != text.npos; ++at) ++out;
    return out;
  };
  for (const char* const block : {"1u", "2u", "3u"}) EXPECT_EQ(count(64, block), 1u) << block;
  EXPECT_EQ(count(2, "1u"), 2u);
  EXPECT_EQ(count(2, "2u"), 1u);
  EXPECT_EQ(count(1, "1u"), 3u);
  // With more tasks it is an ordinary phase with a grid barrier.
  for (const int64_t place : {6, 7}) rounds.add(1, {1}, {place + 10});
  EXPECT_FALSE(rounds.late());
}

TEST(WholeLate, TextsCompile) {
  Rounds rounds = sums();
  rounds.steps.out[rounds.parts[2].results[0]] = 64;
  const std::vector<Phase> phases = round_phases(rounds.parts, phases_of(rounds.parts), rounds.steps, 64);
  const std::string text = persistent_kernel_text(rounds.parts, phases, &rounds.steps, false, nullptr, 64);
  EXPECT_NE(text.find("blockIdx.x == gridDim.x - 1u) {\n    const uint32_t round = before;"), std::string::npos)
      << text;
  EXPECT_NE(text.find("if (round == rounds) break;"), std::string::npos) << text;
  try {
    EXPECT_FALSE(compile_cuda(text, kernel_headers(), "sm_90").empty());
  } catch (const Error& e) {
    if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
    FAIL() << e.what();
  }
}

// Steps on small integers with metrics: the sums of a layer's results and of the squares of its gradient, and a number
// computed from the step count.
TEST(WholeLate, OnGpuRoundsReturnTheSameMetrics) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261121);
  const int64_t before = PersistentKernel::late_phase_count();
  for (const auto& [rows, deep, wide] : {std::tuple<int64_t, int64_t, int64_t>{32, 64, 96}, {16, 200, 128}})
    for (const int64_t length : {2, 3, 6}) {
      SCOPED_TRACE(fmt::format("{} rounds of {} rows of {} to {}", length, rows, deep, wide));
      Builder inner;
      const Value w = inner.input({DType::f32, {deep, wide}}), count = inner.input({DType::i32, {}});
      const Value x = inner.input({DType::f32, {rows, deep}});
      const auto within = [&](const Value& y, int most) {
        return maximum(minimum(y, full(inner, y.type(), most)), full(inner, y.type(), -most));
      };
      const Value small = within(x, 1);
      const Value y = within(einsum("mk,kn->mn", small, w), 1);
      const Value gradient = einsum("mk,mn->kn", small, y);
      const Value rate = cast(count, DType::f32) * full(inner, {DType::f32, {}}, 3);
      Values facts;
      for (const Value& each : {reduce_sum(y, {0, 1}), reduce_sum(gradient * gradient, {0, 1}), rate})
        facts.push_back(reshape(each, {1}));
      facts.push_back(full(inner, {DType::f32, {13}}, 0));
      const auto body = std::make_shared<const Program>(
          inner.take(Values{within(w - gradient, 2), count + full(inner, count.type(), 1), concatenate(facts, 0)}));
      Builder b;
      const Value first = b.input({DType::f32, {deep, wide}}), none = b.input({DType::i32, {}});
      const Value xs = b.input({DType::f32, {length, rows, deep}});
      const Program program = b.take(scan(b, body, {first, none}, {xs}, {}, length, false));
      HostArrays in;
      for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
      const HostArrays wanted = eager(program, in);
      for (const std::vector<bool>& donated : {std::vector<bool>{}, std::vector<bool>{true, true, false}}) {
        const HostArrays got = planned_on_gpu(program, in, donated);
        for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
      }
    }
  EXPECT_GT(PersistentKernel::late_phase_count(), before) << "no last phase overlaps the next round";
}

}  // namespace
}  // namespace lockstep::detail
#endif
