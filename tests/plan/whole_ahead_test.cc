// Operands that a persistent kernel prefetches before the previous kernel has ended: which, when, and kernel texts that
// compile. Only the last test needs a GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/whole_ahead.h"
#include "plan/cuda/cuda_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "rows/on_gpu.h"
#include "support/brief.h"

namespace lockstep::detail {
namespace {

// Parts of one step each, with operands and results in ranges of one memory, numbered in order. `early`: prefetchable
// operands, as one group.
struct Steps {
  std::deque<SteppedKernel> kernels;
  std::vector<KernelPart> parts;
  size_t operands = 0, results = 0;

  using Places = std::vector<std::pair<int64_t, int64_t>>;
  KernelPart& add(int64_t blocks, const Places& in, const Places& out,
                  const std::vector<std::vector<size_t>>& early = {}) {
    CudaStep step;
    step.blocks = blocks;
    for (const std::vector<size_t>& each : early) step.early.push_back({each, ""});
    return add(SteppedKernel(nullptr, {step}), in, out);
  }
  KernelPart& add(SteppedKernel kernel, const Places& in, const Places& out) {
    KernelPart part{&kernels.emplace_back(std::move(kernel)), {}, {}};
    for (const auto& [begin, end] : in) part.in.push_back({0, begin, end}), part.operands.push_back(operands++);
    for (const auto& [begin, end] : out) part.out.push_back({0, begin, end}), part.results.push_back(results++);
    return parts.emplace_back(std::move(part));
  }

  std::optional<AheadPrefetch> ahead() const { return AheadPrefetch::of(parts, phases_of(parts)); }
  // Bitmasks of the operands that the tasks of the first phase prefetch ahead.
  std::vector<uint32_t> bits() const {
    const std::vector<Phase> phases = phases_of(parts);
    std::vector<uint32_t> out;
    if (const std::optional<AheadPrefetch> some = AheadPrefetch::of(parts, phases))
      for (const Task& task : phases[0]) out.push_back(some->early(task));
    return out;
  }
};

using Bits = std::vector<uint32_t>;

// A product of rows, gathered from images at 0 by an index at 100, and weights at 200; the loss; and new weights that
// overwrite the old ones.
struct AStep : Steps {
  AStep() {
    add(100, {{0, 0}, {200, 220}, {0, 100}, {100, 110}}, {{4000, 5000}}, {{2, 3}, {1}});
    add(100, {{4000, 5000}}, {{5000, 6000}}, {{0}});
    add(100, {{5000, 6000}, {0, 100}, {200, 220}}, {{200, 220}}, {{0}, {1}, {2}});
  }
};

TEST(WholeAhead, OperandsThatTheKernelDoesNotWriteArePrefetched) {
  AStep step;
  EXPECT_EQ(step.bits(), Bits{1});
  step.parts[2].out[0] = {0, 300, 320};
  EXPECT_EQ(step.bits(), Bits{3});             // all, if the weights do not change
  step.parts[1].out.push_back({0, 109, 120});  // a part of the index
  step.parts[1].results.push_back(9);
  EXPECT_EQ(step.bits(), Bits{2});
  step.parts[2].out[0] = {0, 210, 211};
  EXPECT_EQ(step.bits(), Bits{});
}

TEST(WholeAhead, EachTaskOfTheFirstPhaseHasItsOwnOperands) {
  AStep step;
  step.add(50, {{300, 310}, {400, 410}}, {{7000, 7100}}, {{0}, {1}, {0, 1}});
  step.add(60, {{200, 210}}, {{7100, 7200}}, {{0}});
  std::rotate(step.parts.begin(), step.parts.end() - 1, step.parts.end());  // before weights are written
  EXPECT_EQ(step.bits(), (Bits{0, 1, 7}));
}

// The steps of a chain share shared memory; a kernel that prefetches nothing has no AheadPrefetch.
TEST(WholeAhead, ChainsPrefetchNothing) {
  Steps chain;
  chain.add(1, {{0, 10}}, {{10, 20}}, {{0}});
  chain.add(1, {{10, 20}, {30, 40}}, {{20, 30}}, {{1}});
  EXPECT_EQ(chain.bits(), Bits{});
  Steps nothing;
  nothing.add(100, {{0, 10}, {0, 0}}, {{10, 20}}, {{}, {1}});
  EXPECT_EQ(nothing.bits(), Bits{});
  EXPECT_FALSE(AheadPrefetch::of({}, {}));
}

TEST(WholeAhead, LaunchesThatReadThePreviousResultsDoNotStartEarly) {
  const AStep step;
  const AheadPrefetch ahead = *step.ahead();
  std::vector<std::byte> memory(10'000), elsewhere(1000);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const KernelPart& part : step.parts) {
    for (const MemoryRange& at : part.in) in.push_back(memory.data() + at.begin);
    for (const MemoryRange& at : part.out) out.push_back(memory.data() + at.begin);
  }
  std::vector<AheadPrefetch::Bytes> written;
  EXPECT_TRUE(ahead.may_start_early(in.data(), written));
  ahead.written(out.data(), written);
  EXPECT_EQ(written.size(), step.results);
  EXPECT_TRUE(ahead.may_start_early(in.data(), written));
  // The previous launch wrote the index of the rows, or its last byte.
  in[3] = memory.data() + 200;
  EXPECT_FALSE(ahead.may_start_early(in.data(), written));
  in[3] = memory.data() + 191;
  EXPECT_FALSE(ahead.may_start_early(in.data(), written));
  in[3] = memory.data() + 190;
  EXPECT_TRUE(ahead.may_start_early(in.data(), written));
  out[2] = elsewhere.data();  // the new weights
  ahead.written(out.data(), written);
  in[3] = memory.data() + 200;
  EXPECT_TRUE(ahead.may_start_early(in.data(), written));
  in[3] = elsewhere.data() + 19;
  EXPECT_FALSE(ahead.may_start_early(in.data(), written));
}

// Rows of a table, which the product gathers itself, times a matrix that is written at the end.
TEST(WholeAhead, TextsCompile) {
  const Type table{DType::f32, {50, 784}}, index{DType::i32, {128}}, x{DType::f32, {128, 784}};
  const GemmSpec g{.m = 128, .n = 128, .k = 784};
  const Type y{DType::f32, {g.m, g.n}};
  Pool pool({.threads = 1});
  const auto row = [&](const Op& op, std::vector<Type> in, const Attrs& attrs) {
    const std::vector<Type> out = infer_types(op, in, attrs);
    const KernelSpec spec{.in = in, .out = out, .attrs = attrs, .pool = pool, .alias = {}};
    return *(op.cuda ? op.cuda(spec) : elementwise_cuda(op, spec)).target<SteppedKernel>();
  };
  const std::optional<CudaSource> rows =
      row(gather_op, {table, index}, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}}).source({});
  ASSERT_TRUE(rows);
  const std::optional<GemmStep> product = gemm_step(g, 132, 220 << 10, {GemmOperand::computed, GemmOperand::read});
  ASSERT_TRUE(product);
  CudaStep step;
  step.parameters = fmt::format("{} p0, {} p1, const float* b", rows->types[0], rows->types[1]);
  for (size_t k = 0; k < 3; ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
  step.body = fmt::format("  const auto a = {}{};\n", rows->text(),
                          rows->applied([](size_t k) { return fmt::format("p{}", k); }));
  step.early = {{{0, 1}, fmt::format("{}  {}(block, a, shared);\n", step.body, product->bring_a)},
                {{2}, fmt::format("  {}(block, b, shared);\n", product->bring_b)}};
  Builder b;
  ASSERT_TRUE(add_finish(step, *product, b.take(Values{tanh(b.input(y))}), 3));
  Steps steps;
  steps.add(SteppedKernel(nullptr, {step}), {{0, 10}, {10, 20}, {20, 30}}, {{200, 300}});
  steps.add(row(tanh_op, {y}, {}), {{200, 300}}, {{20, 40}});
  const std::vector<Phase> phases = phases_of(steps.parts);
  const std::optional<AheadPrefetch> ahead = steps.ahead();
  ASSERT_TRUE(ahead);
  for (const bool near : {false, true}) {
    const std::string text = persistent_kernel_text(steps.parts, phases, nullptr, near, &*ahead);
    std::vector<std::string> order = {"uint32_t ahead)", "  if (ahead) {\n"};
    if (near) order.insert(order.end() - 1, "near)[k]"), order.push_back("__syncthreads();");
    order.insert(order.end(),
                 {"early_0_0_0(blockIdx.x", "  }\n  after_the_last();", "if (!ahead) all_came = look_at(word);",
                  "__syncthreads();", "step_0_0(t - 0u, t == blockIdx.x && ahead ? 1u : 0u,", "arrive(word, all_came);",
                  "before_the_next();", "step_1_0(t - 0u"});
    size_t at = text.find("__global__");
    for (const std::string& each : order) {
      at = text.find(each, at + 1);
      ASSERT_NE(at, std::string::npos) << each << " is missing, or comes earlier:\n" << text;
    }
    EXPECT_EQ(text.find(") early_0_0_1("), std::string::npos);
    for (const char* architecture : {"sm_90", "sm_80"}) try {
        EXPECT_FALSE(compile_cuda(text, kernel_headers(), architecture).empty());
      } catch (const Error& e) {
        if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
        FAIL() << e.what();
      }
  }
  // Without it: as between phases.
  const std::string without = persistent_kernel_text(steps.parts, phases);
  EXPECT_EQ(without.find("ahead"), std::string::npos);
  EXPECT_NE(without.find("step_0_0(t - 0u, 0u,"), std::string::npos);
}

// A step on small integers: a layer of rows of a table, its loss, new weights, a
// step counter, and the rows of the next step.
Program a_step(int64_t rows, int64_t deep, int64_t wide) {
  Builder b;
  const Value table = b.input({DType::u8, {70, deep}}), index = b.input({DType::i32, {rows}});
  const Value w = b.input({DType::f32, {deep, wide}}), count = b.input({DType::i32, {}});
  const Value labels = b.input({DType::i32, {70}});
  const auto within = [&](Value x, int most) {
    return maximum(minimum(x, full(b, x.type(), most)), full(b, x.type(), -most));
  };
  const Value chosen = cast(gather(table, index, 0), DType::f32);
  const Value x = within(chosen - full(b, chosen.type(), 1), 2);
  const Value label = gather(labels, index + full(b, index.type(), 1), 0);
  const Value y = within(einsum("mk,kn->mn", x, w), 2);
  const Value next = within(w - einsum("mk,mn->kn", x, y), 2);
  return b.take(Values{next, count + full(b, count.type(), 1), reduce_sum(y, {0, 1}), reduce_sum(label, {0}),
                       full(b, index.type(), 69) - index});
}

// The index of the rows is: constant, alternating between calls; computed by the previous call; copied before each
// call; or computed by another program.
enum class From { before, call, copy, program };

void run_steps(const Program& program, From from, int steps, bool& some) {
  CudaStream& lane = CudaStream::local();
  const std::shared_ptr<CudaPlan> plan =
      compile(program, test_pool(), lane, {.donated = {false, false, true, true, false}});
  const int64_t rows = program.input_types()[1].shape[0];
  Builder b;
  const Value given = b.input({DType::i32, {rows}});
  const Program turn = b.take(Values{full(b, given.type(), 68) - given});
  const std::shared_ptr<CudaPlan> turned = compile(turn, test_pool(), lane);

  std::mt19937 random(20261119);
  HostArrays in;
  for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
  const auto device = [&](const HostArray& x) {
    BufferPtr own = lane.allocate(x.type.bytes());
    lane.to_device(own->data(), x.buffer->data(), x.type.bytes());
    return own;
  };
  constexpr int kIndices = 3;
  HostArrays indices;
  std::vector<BufferPtr> places, held;
  for (int k = 0; k < kIndices; ++k) {
    indices.emplace_back(in[1].type);
    for (int64_t i = 0; i < rows; ++i) indices.back().set(i, static_cast<double>((i * (37 + k) + 5 * k) % 70));
    places.push_back(device(indices.back()));
  }
  in[1] = copy_of(indices[0]);
  std::vector<const void*> ins;
  for (const HostArray& x : in) ins.push_back(held.emplace_back(device(x))->data());
  std::vector<std::vector<BufferPtr>> outs;  // by step, if not donated
  lane.wait();

  const int64_t ahead_before = PersistentKernel::ahead_launch_count();
  const void* made = held[1]->data();
  for (int s = 0; s < steps; ++s) {
    if (from == From::before) ins[1] = places[static_cast<size_t>(s % kIndices)]->data();
    if (from == From::call) ins[1] = made;
    if (from == From::copy) lane.copy(held[1]->data(), places[static_cast<size_t>(s % kIndices)]->data(), 4 * rows);
    std::vector<void*> out;
    auto& own = outs.emplace_back();
    for (size_t o = 0; o < program.outputs.size(); ++o) {
      own.push_back(plan->donated_input(o) >= 0 ? nullptr : lane.allocate(program.output_types()[o].bytes()));
      out.push_back(own[o] ? own[o]->data() : const_cast<void*>(ins[static_cast<size_t>(plan->donated_input(o))]));
    }
    plan->run(ins.data(), out.data());
    made = out[4];
    if (from == From::program) {
      void* const to = held[1]->data();
      turned->run(&made, &to);  // of the previous rows
    }
  }
  const int64_t went = PersistentKernel::ahead_launch_count() - ahead_before;
  some |= went > 0;
  EXPECT_TRUE(from == From::before || went == 0) << went;

  HostArrays now = in;
  for (int s = 0; s < steps; ++s) {
    if (from == From::before || from == From::copy) now[1] = indices[static_cast<size_t>(s % kIndices)];
    const HostArrays wanted = eager(program, now);
    for (size_t o = 2; o < wanted.size(); ++o) {
      HostArray got(wanted[o].type);
      lane.to_host(got.buffer->data(), outs[static_cast<size_t>(s)][o]->data(), got.type.bytes());
      EXPECT_EQ(got.values(), wanted[o].values()) << "result " << o << " of step " << s;
    }
    now[2] = wanted[0];
    now[3] = wanted[1];
    if (from == From::call) now[1] = wanted[4];
    if (from == From::program) now[1] = eager(turn, {wanted[4]})[0];
  }
  for (size_t i : {2, 3}) {
    HostArray got(now[i].type);
    lane.to_host(got.buffer->data(), ins[i], got.type.bytes());
    EXPECT_EQ(got.values(), now[i].values()) << "state " << i;
  }
}

// In the second the products gather their rows themselves, and prefetch them ahead.
TEST(WholeAhead, OnGpuStepsEqualTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  bool some = false;
  for (const auto& [rows, deep, wide] :
       {std::tuple<int64_t, int64_t, int64_t>{128, 784, 1024}, {128, 784, 128}, {64, 100, 40}}) {
    const Program program = a_step(rows, deep, wide);
    for (const From from : {From::before, From::call, From::copy, From::program}) {
      SCOPED_TRACE(fmt::format("{} rows of {} to {}, {}", rows, deep, wide, static_cast<int>(from)));
      run_steps(program, from, brief(20, 4), some);
    }
  }
  EXPECT_EQ(some, CudaFunction::uses_dependent_launch(CudaStream::local().info()));
}

}  // namespace
}  // namespace lockstep::detail
#endif
