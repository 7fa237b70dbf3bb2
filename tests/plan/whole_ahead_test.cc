// What one kernel on the GPU does before the one before it is done: which tasks, from and to which memory, and texts
// that the GPU's compiler takes. Only the last test needs a GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/whole_ahead.h"

#include <gtest/gtest.h>

#include <random>

#include "lane/cuda/api.h"
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

namespace lockstep::detail {
namespace {

// Parts of one step, from and to stretches of one memory. Operands and results are numbered as they come.
struct Steps {
  std::deque<SteppedKernel> kernels;
  std::vector<WholePart> parts;
  size_t operands = 0, results = 0;
  int processors = 132;

  using Places = std::vector<std::pair<int64_t, int64_t>>;
  WholePart& add(int64_t blocks, const Places& in, const Places& out, double operations = 0) {
    CudaStep step;
    step.blocks = blocks;
    step.operations = operations;
    for (size_t i = 0; i < in.size(); ++i) step.arguments.push_back({CudaStep::Argument::operand, i});
    for (size_t j = 0; j < out.size(); ++j) step.arguments.push_back({CudaStep::Argument::result, j});
    return add(SteppedKernel(nullptr, {step}), in, out);
  }
  WholePart& add(SteppedKernel kernel, const Places& in, const Places& out) {
    WholePart part{&kernels.emplace_back(std::move(kernel)), {}, {}};
    for (const auto& [begin, end] : in) part.in.push_back({0, begin, end}), part.operands.push_back(operands++);
    for (const auto& [begin, end] : out) part.out.push_back({0, begin, end}), part.results.push_back(results++);
    return parts.emplace_back(std::move(part));
  }

  // "0 1 | 2 | 3": what of the first phase goes ahead, what of it does not, and the other phases.
  std::string text() const {
    const std::vector<Phase> phases = ahead(parts, phases_of(parts), processors);
    const std::optional<Ahead> some = Ahead::of(parts, phases);
    std::string out = some ? text(some->first(phases[0])) + "|" + text(some->others(phases[0])) : "|" + text(phases[0]);
    for (size_t i = 1; i < phases.size(); ++i) out += "|" + text(phases[i]);
    return out;
  }
  static std::string text(const Phase& phase) {
    std::string out;
    for (const Task& task : phase) {
      std::string one;
      for (const WholeStep& step : task) one += (one.empty() ? "" : "-") + std::to_string(step.part);
      out += (out.empty() ? "" : " ") + one;
    }
    return out;
  }
  Ahead going() const { return *Ahead::of(parts, ahead(parts, phases_of(parts), processors)); }
};

constexpr CudaStep::Argument operand(size_t i) { return {CudaStep::Argument::operand, i}; }
constexpr CudaStep::Argument result(size_t i) { return {CudaStep::Argument::result, i}; }

// Rows and labels of images at 0 by an index at 100; weights at 200; a counter at 300.
struct AStep : Steps {
  AStep() {
    add(128, {{0, 100}, {100, 110}}, {{1000, 3000}});                                     // 0: rows
    add(1, {{100, 110}}, {{3000, 3010}});                                                 // 1: labels,
    add(1, {{3000, 3010}}, {{3010, 3020}});                                               // 2: one by one
    add(1, {{300, 301}}, {{300, 301}}).needed = true;                                     // 3: the counter
    add(100, {{1000, 3000}, {200, 220}}, {{4000, 5000}}, 1e8);                            // 4: a product
    add(100, {{4000, 5000}, {3010, 3020}}, {{5000, 6000}});                               // 5: the loss
    add(100, {{1000, 3000}, {5000, 6000}, {200, 220}}, {{200, 220}}, 1e8).needed = true;  // 6: new weights
  }
};

TEST(WholeAhead, WhatNeedsNothingOfTheStepBeforeGoesAhead) {
  const AStep step;
  EXPECT_EQ(step.text(), "1-2 0||4 3|5|6");
  const Ahead going = step.going();
  EXPECT_EQ(going.bytes(), 2048 + 256 + 256);
  // In memory of their own, which is where others read them.
  EXPECT_EQ(going.offset(0, result(0)), 0);
  EXPECT_EQ(going.offset(4, operand(0)), 0);
  EXPECT_EQ(going.offset(6, operand(0)), 0);
  EXPECT_EQ(going.offset(2, operand(0)), going.offset(1, result(0)));
  EXPECT_EQ(going.offset(5, operand(1)), going.offset(2, result(0)));
  for (const auto& [part, argument] : std::vector<std::pair<size_t, CudaStep::Argument>>{
           {0, operand(0)}, {0, operand(1)}, {3, result(0)}, {4, operand(1)}, {4, result(0)}, {6, result(0)}})
    EXPECT_EQ(going.offset(part, argument), std::nullopt) << part;
}

// Where the next phase needs it, it stays, and is done when the kernel before is done.
TEST(WholeAhead, TheRestOfThePhaseIsDoneInTheNextOrAfterwards) {
  AStep read, product, large, few;
  read.parts[4].in.push_back({0, 300, 301});
  EXPECT_EQ(read.text(), "1-2 0|3|4|5|6");
  product.add(100, {{100, 110}}, {{7000, 7100}}, 1e6).needed = true;
  EXPECT_EQ(product.text(), "1-2 0|7 3|4|5|6");
  large.add(130, {{100, 110}}, {{7000, 7100}}).needed = true;
  EXPECT_EQ(large.text(), "1-2 0|3 7|4|5|6");
  AStep full, later;  // of the second phase, all blocks; and of one after it, not all
  full.processors = 100;
  EXPECT_EQ(full.text(), "1-2 0||4 3|5|6");
  later.processors = 100;
  later.parts[5].kernel = &later.kernels.emplace_back(*later.parts[1].kernel);
  EXPECT_EQ(later.text(), "1-2 0||4|5 3|6");
  // A block that does a chain first is late for what all wait for.
  few.parts.erase(few.parts.begin());
  few.add(100, {{100, 110}}, {{7000, 7100}}, 1e6).needed = true;
  EXPECT_EQ(few.text().substr(0, 1), "|");
}

// Of a chain those who can, unless others have to come before them.
TEST(WholeAhead, ChainsAreDivided) {
  AStep step;
  step.add(1, {{3010, 3020}, {300, 301}}, {{3020, 3030}});
  EXPECT_EQ(step.text(), "1-2 0||3-7 4|5|6");
  AStep over;
  over.parts[3].in.push_back({0, 3000, 3010});
  std::swap(over.parts[2], over.parts[3]);  // reads the labels,
  over.parts[3].out[0] = {0, 3000, 3010};   // to which others are written then
  over.parts[3].in[0] = {0, 100, 110};
  over.parts[5].in[1] = {0, 3000, 3010};
  EXPECT_EQ(over.text(), "0|1-2-3|4|5|6");
}

TEST(WholeAhead, WhatIsWrittenByTheKernelOrNeededByOthersIsNot) {
  AStep written, needed, meets;
  written.parts[6].out.push_back({0, 105, 106});  // some of the index
  written.parts[6].results.push_back(99);
  EXPECT_EQ(written.text(), "|1-2 0 3|4|5|6");
  needed.parts[0].needed = true;
  EXPECT_EQ(needed.text().substr(0, 1), "|");
  CudaStep step;
  step.blocks = 128;
  step.meets = true;
  meets.parts[0].kernel = &meets.kernels.emplace_back(nullptr, std::vector{step});
  EXPECT_EQ(meets.text().substr(0, 1), "|");
  Steps one;
  one.add(128, {{0, 100}}, {{100, 110}});
  EXPECT_EQ(one.text(), "|0");
}

// The work space is used again: whoever reads there then reads something else.
TEST(WholeAhead, OnlyItsReadersAreSentToMemoryOfItsOwn) {
  AStep step;
  step.add(100, {{200, 220}}, {{1000, 2500}});
  step.add(100, {{1000, 2500}}, {{8000, 9000}}).needed = true;
  EXPECT_EQ(step.text(), "1-2 0||4 3|5|6|7|8");
  const Ahead going = step.going();
  EXPECT_EQ(going.offset(6, operand(0)), 0);
  EXPECT_EQ(going.offset(7, result(0)), std::nullopt);
  EXPECT_EQ(going.offset(8, operand(0)), std::nullopt);
  // A part that writes there and then reads what it wrote.
  AStep inner;
  inner.parts[5].in.push_back({0, 3000, 3010});
  inner.parts[5].operands.push_back(99);
  inner.parts[5].out.push_back({0, 3000, 3010});
  inner.parts[5].results.push_back(99);
  inner.parts[5].inner = {2};
  EXPECT_EQ(inner.text(), "1-2 0||4 3|5|6");
  EXPECT_EQ(inner.going().offset(5, operand(2)), std::nullopt);
  EXPECT_NE(inner.going().offset(5, operand(1)), std::nullopt);
}

TEST(WholeAhead, WhoReadsSomeOfItKeepsItWhereItIs) {
  AStep some, over, both;
  some.parts[4].in[0] = {0, 1000, 2000};
  EXPECT_EQ(some.text().substr(0, 1), "|");
  over.parts[4].out[0] = {0, 1000, 3000};
  over.parts[5].in[0] = {0, 1000, 3000};
  over.parts[6].in[0] = {0, 0, 100};
  // Who writes over it reads it elsewhere, and whoever comes after that reads what was written.
  EXPECT_EQ(over.text().substr(0, 1), "1");
  EXPECT_NE(over.going().offset(4, operand(0)), std::nullopt);
  EXPECT_EQ(over.going().offset(4, result(0)), std::nullopt);
  EXPECT_EQ(over.going().offset(5, operand(0)), std::nullopt);
  // Those that go ahead may: it is the same place again.
  both.parts[2].out[0] = {0, 3000, 3010};
  both.parts[5].in[1] = {0, 3000, 3010};
  EXPECT_EQ(both.text(), "1-2 0||4 3|5|6");
  EXPECT_EQ(both.going().offset(2, operand(0)), both.going().offset(2, result(0)));
}

TEST(WholeAhead, NothingGoesAheadOfWhatItReads) {
  const AStep step;
  const Ahead going = step.going();
  std::vector<std::byte> memory(10'000), elsewhere(1000);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const WholePart& part : step.parts) {
    for (const Stretch& at : part.in) in.push_back(memory.data() + at.begin);
    for (const Stretch& at : part.out) out.push_back(memory.data() + at.begin);
  }
  std::vector<Ahead::Bytes> written;
  EXPECT_TRUE(going.may_begin(in.data(), written));
  going.written(out.data(), written);
  EXPECT_EQ(written.size(), step.results);
  EXPECT_TRUE(going.may_begin(in.data(), written));
  // The index of the rows is what the launch before made of the weights, or the last byte of it is.
  in[1] = memory.data() + 200;
  EXPECT_FALSE(going.may_begin(in.data(), written));
  in[1] = memory.data() + 191;
  EXPECT_FALSE(going.may_begin(in.data(), written));
  in[1] = memory.data() + 190;
  EXPECT_TRUE(going.may_begin(in.data(), written));
  out[6] = elsewhere.data();  // the new weights
  going.written(out.data(), written);
  in[1] = memory.data() + 200;
  EXPECT_TRUE(going.may_begin(in.data(), written));
  in[1] = elsewhere.data() + 19;
  EXPECT_FALSE(going.may_begin(in.data(), written));
}

// Rows of a table times a matrix.
TEST(WholeAhead, TextsCompile) {
  const Type table{DType::f32, {50, 784}}, index{DType::i32, {128}}, x{DType::f32, {128, 784}};
  const GemmSpec g{.m = 128, .n = 1024, .k = 784};
  const std::optional<GemmStep> product = gemm_step(g, 132, 160 << 10);
  ASSERT_TRUE(product);
  Builder b;
  const Type y{DType::f32, {g.m, g.n}};
  CudaStep step;
  step.parameters = "const float* a, const float* b";
  step.arguments = {operand(0), operand(1)};
  ASSERT_TRUE(add_finish(step, *product, b.take(Values{tanh(b.input(y))}), 2));
  Pool pool({.threads = 1});
  const auto row = [&](const Op& op, std::vector<Type> in, const Attrs& attrs) {
    const std::vector<Type> out = infer_types(op, in, attrs);
    const KernelSpec spec{.in = in, .out = out, .attrs = attrs, .pool = pool, .alias = {}};
    return *(op.cuda ? op.cuda(spec) : elementwise_cuda(op, spec)).target<SteppedKernel>();
  };
  for (const bool more : {false, true}) {
    Steps steps;
    steps.add(row(gather_op, {table, index}, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}}), {{0, 10}, {10, 20}},
              {{100, 200}});
    steps.add(SteppedKernel(nullptr, {step}), {{100, 200}, {20, 30}}, {{200, 300}});
    if (more) steps.add(row(tanh_op, {y}, {}), {{30, 40}}, {{300, 400}});  // of what the kernel writes in the end
    steps.add(row(tanh_op, {y}, {}), {{more ? 300 : 200, more ? 400 : 300}}, {{20, 40}}).needed = true;
    const std::vector<Phase> phases = phases_of(steps.parts);
    const std::optional<Ahead> going = Ahead::of(steps.parts, phases);
    ASSERT_TRUE(going);
    EXPECT_EQ(going->others(phases[0]).size(), more ? 1u : 0u);
    for (const bool near : {false, true}) {
      const std::string text = whole_text(steps.parts, phases, nullptr, near, &*going);
      // The kernel before is waited for at first, or when the rows are there; and then what it wrote is brought near.
      std::vector<std::string> order = {"if (!ahead) after_the_last();", "t = ticket) {", "step_0_0(t - 0u"};
      if (more)
        order.insert(order.end(), {"after_the_last();", "step_2_0(t - 0u", "come(word, all_came);"});
      else
        order.insert(order.end(), {"come(word, all_came);", "after_the_last();", "early_1_0_1(blockIdx.x"});
      order.insert(order.end(), {"wait_for_all(word, all_came);", "step_1_0(t - 0u", "before_the_next();"});
      size_t at = text.find("__global__");
      for (const std::string& each : order) {
        at = text.find(each, at + 1);
        ASSERT_NE(at, std::string::npos) << each << " is not there, or earlier:\n" << text;
      }
      for (const char* architecture : {"sm_90", "sm_80"}) try {
          EXPECT_FALSE(compile_cuda(text, kernel_headers(), architecture).empty());
        } catch (const Error& e) {
          if (std::string(e.what()).find("is not there") != std::string::npos) GTEST_SKIP() << e.what();
          FAIL() << e.what();
        }
    }
  }
}

// Where there is one meeting, a block that comes there has waited: then the next kernel knows that all before is done.
TEST(WholeAhead, TheLastMeetingComesAfterWaiting) {
  Steps steps;
  steps.add(128, {{0, 10}}, {{10, 20}});
  steps.add(128, {{10, 20}}, {{20, 30}}).needed = true;
  for (WholePart& part : steps.parts) {
    CudaStep step = part.kernel->steps()[0];
    step.parameters = "const float* in, float* out";
    part.kernel = &steps.kernels.emplace_back(nullptr, std::vector{step});
  }
  const std::vector<Phase> phases = phases_of(steps.parts);
  const Ahead going = steps.going();
  EXPECT_NE(whole_text(steps.parts, phases, nullptr, true, &going)
                .find("  after_the_last();\n  come(word, all_came);\n  wait_for_all(word, all_came);\n"),
            std::string::npos);
}

// A step of whole numbers that stay small: a layer of rows of a table, its loss, new weights, how many steps there
// were, and other rows for the next one.
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

// By an index that was there before, of those the calls take turns; by one that the call before made; by one that is
// copied to its place before each call; and by one that another program makes.
enum class From { before, call, copy, program };

void run_steps(const Program& program, From from, int steps, bool& some) {
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  CudaLane& lane = CudaLane::local();
  const std::shared_ptr<Plan> plan =
      compile(program, test_pool(), {.donated = {false, false, true, true, false}, .cuda = &lane});
  const int64_t rows = program.input_types()[1].shape[0];
  Builder b;
  const Value given = b.input({DType::i32, {rows}});
  const Program turn = b.take(Values{full(b, given.type(), 68) - given});
  const std::shared_ptr<Plan> turned = compile(turn, test_pool(), {.cuda = &lane});

  std::mt19937 random(20261119);
  HostArrays in;
  for (const Type& type : program.input_types()) in.push_back(whole_numbers(type, random()));
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
  std::vector<std::vector<BufferPtr>> outs;  // by step, where they are not donated
  lane.wait();

  const int64_t ahead_before = WholeKernel::went_ahead();
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
      turned->run(&made, &to);  // the rows before
    }
  }
  const int64_t went = WholeKernel::went_ahead() - ahead_before;
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

TEST(WholeAhead, OnGpuStepsComputeTheSame) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  bool some = false;
  for (const auto& [rows, deep, wide] :
       {std::tuple<int64_t, int64_t, int64_t>{128, 784, 1024}, {128, 784, 128}, {64, 100, 40}}) {
    const Program program = a_step(rows, deep, wide);
    for (const From from : {From::before, From::call, From::copy, From::program}) {
      SCOPED_TRACE(fmt::format("{} rows of {} to {}, {}", rows, deep, wide, static_cast<int>(from)));
      run_steps(program, from, 20, some);
    }
  }
  EXPECT_EQ(some, CudaFunction::starts_early(CudaLane::local().info()));
}

}  // namespace
}  // namespace lockstep::detail
#endif
