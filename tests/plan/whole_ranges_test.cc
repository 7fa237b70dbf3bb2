// Instructions of a persistent kernel that each block runs one after another on its range: which are merged, what stays
// in shared memory, and kernel texts that compile. Only the last tests need a GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/control.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/row_product_text.h"
#include "ops/cuda/text.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "plan/cuda/whole_kernel.h"
#include "rows/on_gpu.h"

namespace lockstep::detail {
namespace {

using Stretches = std::vector<std::pair<int64_t, int64_t>>;

struct Ranged {
  std::deque<SteppedKernel> kernels, made;
  std::vector<KernelPart> parts;

  // With 100 blocks; in up to `most` ranges. `own`: all operands are read range by range.
  void add(int64_t most, const Stretches& in, const Stretches& out, bool own = true, int64_t least = 1) {
    CudaStep step;
    step.name = std::to_string(parts.size());
    step.blocks = 100;
    for (size_t i = 0; i < in.size(); ++i) {
      step.parameters += fmt::format("const float* in{}, ", i);
      step.arguments.push_back({CudaStep::Argument::operand, i});
    }
    for (size_t o = 0; o < out.size(); ++o) {
      step.parameters += fmt::format("{}float* out{}", o > 0 ? ", " : "", o);
      step.arguments.push_back({CudaStep::Argument::result, o});
    }
    CudaRanges ranges{.most = most, .least = least, .own = {}, .step = [step](int64_t count) {
                        CudaStep ranged = step;
                        ranged.blocks = count;
                        return ranged;
                      }};
    for (size_t i = 0; own && i < in.size(); ++i) ranges.own.push_back(i);
    KernelPart part{
        &kernels.emplace_back(nullptr, std::vector{step}, std::vector<BufferPtr>(), SteppedWays{.ranges = ranges}),
        {},
        {}};
    for (const auto& [begin, end] : in) part.in.push_back({0, begin, end});
    for (const auto& [begin, end] : out) part.out.push_back({0, begin, end});
    for (size_t i = 0; i < in.size(); ++i) part.operands.push_back(parts.size() * 10 + i);
    for (size_t o = 0; o < out.size(); ++o) part.results.push_back(parts.size() * 10 + o);
    parts.push_back(std::move(part));
  }

  std::vector<KernelPart> joined() { return merge_ranges(parts, 132, made); }

  // Which parts were merged, and into how many ranges.
  std::string text() {
    std::string out;
    for (const KernelPart& part : joined()) {
      const CudaStep& step = part.kernel->steps()[0];
      out += fmt::format("{}[{}]x{}", out.empty() ? "" : " ", step.name, step.blocks);
    }
    return out;
  }
};

TEST(WholeRanges, PartsThatReadTheirOwnRangeAreMerged) {
  Ranged r;
  r.add(128, {{0, 128}}, {{128, 256}});
  r.add(256, {{128, 256}}, {{256, 512}});
  r.add(128, {{256, 512}, {128, 256}}, {{512, 640}});
  EXPECT_EQ(r.text(), "[0 1 2]x128");
  const KernelPart one = r.joined()[0];
  EXPECT_EQ(one.operands, (std::vector<size_t>{0, 10, 20, 21}));
  EXPECT_EQ(one.results, (std::vector<size_t>{0, 10, 20}));
  EXPECT_FALSE(one.needed);
  r.parts[1].needed = true;
  EXPECT_TRUE(r.joined()[0].needed);
}

TEST(WholeRanges, PartsThatReadAllOfAnOperandAreNotMerged) {
  Ranged r;
  r.add(128, {{0, 128}}, {{128, 256}});
  r.add(128, {{128, 256}}, {{256, 384}}, false);
  EXPECT_EQ(r.text(), "[0]x100 [1]x100");
}

TEST(WholeRanges, RangeCountSuitsAllMembers) {
  Ranged other, few, most, many;
  other.add(128, {}, {{128, 256}});
  other.add(100, {{128, 256}}, {{256, 384}});
  EXPECT_EQ(other.text(), "[0]x100 [1]x100");
  few.add(7, {}, {{0, 70}});
  few.add(7, {{0, 70}}, {{70, 140}});
  EXPECT_EQ(few.text(), "[0]x100 [1]x100");
  most.add(1000, {}, {{0, 1000}});  // 125 is the largest divisor up to the number of processors
  most.add(1000, {{0, 1000}}, {{1000, 2000}});
  EXPECT_EQ(most.text(), "[0 1]x125");
  many.add(128, {}, {{0, 1280}});
  many.add(1280, {{0, 1280}}, {{1280, 2560}}, true, 256);
  EXPECT_EQ(many.text(), "[0]x100 [1]x100");
}

// Parts whose memory begins or ends elsewhere do not have the same ranges.
TEST(WholeRanges, ReusedMemoryMustHaveTheSameRanges) {
  Ranged same, part;
  same.add(128, {{0, 128}}, {{128, 256}});
  same.add(128, {{128, 256}}, {{0, 128}});
  same.add(128, {{0, 128}}, {{128, 256}});
  EXPECT_EQ(same.text(), "[0 1 2]x128");
  part.add(128, {{0, 128}}, {{128, 256}});
  part.add(128, {{128, 256}}, {{0, 64}});
  EXPECT_EQ(part.text(), "[0]x100 [1]x100");
}

// No part is delayed by a merge.
TEST(WholeRanges, MergesDoNotDelayParts) {
  Ranged r;
  r.add(128, {{0, 128}}, {{128, 256}});                // 0
  r.add(0, {{128, 256}}, {{256, 384}});                // 1: a product
  r.add(128, {{128, 256}}, {{384, 512}});              // 2: with the first
  r.add(128, {{384, 512}, {256, 384}}, {{512, 640}});  // 3: after the product
  r.add(128, {{512, 640}, {384, 512}}, {{640, 768}});  // 4: with it
  EXPECT_EQ(r.text(), "[0 2]x128 [1]x100 [3 4]x128");
}

TEST(WholeRanges, IndependentProducersOfOnePartAreNotMerged) {
  Ranged r;
  r.add(128, {}, {{0, 128}});
  r.add(128, {}, {{128, 256}});
  r.add(128, {{0, 128}, {128, 256}}, {{256, 384}});
  EXPECT_EQ(r.text(), "[0]x100 [1]x100 [2]x100");
}

// Intermediate values are read from shared memory, and written to global memory only if needed.
TEST(WholeRanges, IntermediateValuesStayInSharedMemory) {
  Ranged r;
  r.add(128, {{0, 1280}}, {{1280, 2560}});
  r.add(128, {{1280, 2560}}, {{2560, 3840}});
  r.add(128, {{2560, 3840}, {0, 1280}}, {{1280, 2560}});
  const CudaStep step = r.joined()[0].kernel->steps()[0];
  EXPECT_EQ(step.shared_bytes, 16 + 16);
  const auto times = [&](const std::string& what) {
    size_t count = 0;
    for (size_t at = 0; (at = step.body.find(what, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(times("(block, p0, shared + 0 - uint64_t(block) * 10u)"), 1u) << step.body;
  EXPECT_EQ(times("(block, shared + 0 - uint64_t(block) * 10u, shared + 16 - uint64_t(block) * 10u)"), 1u) << step.body;
  EXPECT_EQ(times("(block, shared + 16 - uint64_t(block) * 10u, p5, shared + 0 - uint64_t(block) * 10u)"), 1u)
      << step.body;
  EXPECT_EQ(times("(p3 + uint64_t(block) * 10u))[i]"), 1u) << step.body;  // the second's
  EXPECT_EQ(times("(p6 + uint64_t(block) * 10u))[i]"), 1u) << step.body;  // the third's, which replaced the first's
}

// The operands of a long chain are prefetched into shared memory, except those that a member overwrites.
TEST(WholeRanges, LongChainsPrefetchTheirOperandsOnce) {
  Ranged r;
  r.add(128, {{0, 1280}, {10000, 10400}}, {{1280, 2560}});
  r.add(128, {{1280, 2560}, {0, 1280}}, {{2560, 3840}});
  r.add(128, {{2560, 3840}, {20000, 99999}}, {{3840, 5120}});  // large
  r.add(128, {{3840, 5120}, {5120, 6400}}, {{5120, 6400}});
  r.add(128, {{5120, 6400}, {30000, 30008}}, {{7680, 8960}});  // too small
  CudaRanges ranges = r.parts[0].kernel->ranges();
  ranges.own = {0};  // and all of the other
  r.parts[0].kernel = &r.kernels.emplace_back(nullptr, r.parts[0].kernel->steps(), std::vector<BufferPtr>(),
                                              SteppedWays{.ranges = ranges});
  const auto joined = r.joined();
  ASSERT_EQ(joined.size(), 1u);
  const CudaStep step = joined[0].kernel->steps()[0];
  // Smallest first: ranges of 10 bytes of two, and 400 bytes in full.
  ASSERT_EQ(step.early.size(), 3u);
  EXPECT_EQ(step.early[0].operands, std::vector<size_t>{0});
  EXPECT_EQ(step.early[1].operands, std::vector<size_t>{7});
  EXPECT_EQ(step.early[2].operands, std::vector<size_t>{1});
  EXPECT_NE(step.early[2].body.find("copy_async<16>(shared + 96 + i * 16u, p1 + i * 16u, true)"), std::string::npos)
      << step.early[2].body;
  EXPECT_NE(step.body.find("if (!(early & 4u))"), std::string::npos);
  const auto expect_call = [&](const std::string& arguments) {
    EXPECT_NE(step.body.find("(block, " + arguments + ");"), std::string::npos) << arguments << "\n" << step.body;
  };
  expect_call("shared + 64 - uint64_t(block) * 10u, shared + 96, shared + 0 - uint64_t(block) * 10u");
  expect_call("shared + 48 - uint64_t(block) * 10u, p13, p14");
}

// The end of a network and its loss, forward and backward, row by row, on integers
// small enough for exact products and sums.
Program rows_of_a_loss(DType dtype, int64_t rows, int64_t deep, int64_t classes) {
  Builder b;
  const Value table = b.input({dtype, {50, deep}}), index = b.input({DType::i32, {rows}});
  const Value weights = b.input({dtype, {deep, classes}}), bias = b.input({dtype, {classes}});
  const Value step = b.input({DType::f32, {deep}});
  const auto across = [&](Value x) { return broadcast(x, {rows, classes}, {0}); };
  const Value x = gather(table, index, 0);
  const Value logits = einsum("mk,kn->mn", x, weights) + broadcast(bias, {rows, classes}, {1});
  const Value most = reduce_max(logits, {1});
  const Value below = maximum(logits - across(most), full(b, {dtype, {rows, classes}}, -3));
  const Value back = einsum("mk,nk->mn", below, weights);
  return b.take(Values{most, reduce_sum(below, {1}), back, step - reduce_sum(cast(back, DType::f32), {0})});
}

// Rows gathered, multiplied, reduced and scaled by one kernel, and the columns of that reduced by another.
TEST(WholeRanges, TextsCompile) {
  struct Case {
    DType dtype;
    int64_t n, k;
    bool transposed;
    const char* architecture;
  };
  for (const Case& c : {Case{DType::f32, 10, 1024, false, "sm_90"}, Case{DType::f32, 1024, 10, true, "sm_80"},
                        Case{DType::bf16, 10, 128, true, "sm_90"}, Case{DType::f16, 700, 16, false, "sm_90"}}) {
    const Type table{c.dtype, {50, c.k}}, index{DType::i32, {128}}, x{c.dtype, {128, c.k}}, y{c.dtype, {128, c.n}};
    Pool pool({.threads = 1});
    std::deque<SteppedKernel> kernels, made;
    std::vector<KernelPart> parts;
    size_t operands = 0, results = 0;
    const auto add = [&](const SteppedKernel& kernel, std::vector<MemoryRange> in, std::vector<MemoryRange> out) {
      ASSERT_GT(kernel.ranges().most, 0);
      parts.push_back({&kernels.emplace_back(kernel), std::move(in), std::move(out)});
      for (size_t i = 0; i < parts.back().in.size(); ++i) parts.back().operands.push_back(operands++);
      for (size_t i = 0; i < parts.back().out.size(); ++i) parts.back().results.push_back(results++);
    };
    const auto row = [&](const Op& op, std::vector<Type> in, const Attrs& attrs) {
      const std::vector<Type> out = infer_types(op, in, attrs);
      const KernelSpec spec{.in = in, .out = out, .attrs = attrs, .pool = pool, .alias = {}};
      return *(op.cuda ? op.cuda(spec) : elementwise_cuda(op, spec)).target<SteppedKernel>();
    };
    const GemmSpec g{.dtype = c.dtype, .m = 128, .n = c.n, .k = c.k, .transpose_b = c.transposed};
    const auto product = [&](int64_t count) {
      Builder b;
      const Program body = b.take(Values{tanh(b.input(y))});
      CudaStep step;
      step.parameters = fmt::format("const {}* a, const {}* b", memory_type(c.dtype), memory_type(c.dtype));
      step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::operand, 1}};
      EXPECT_TRUE(add_finish(step, row_product_step(g, count), body, 2));
      return step;
    };
    ASSERT_TRUE(row_product(g));
    const auto at = [](int64_t space, const Type& type) { return MemoryRange{space, 0, type.bytes()}; };
    add(row(gather_op, {table, index}, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}}),
        {at(0, table), at(1, index)}, {at(2, x)});
    add(SteppedKernel(nullptr, {product(128)}, {}, {.ranges = {.most = 128, .least = 32, .own = {0}, .step = product}}),
        {at(2, x), at(3, x)}, {at(4, y)});
    const Type kept{c.dtype, {128}};
    add(row(reduce_max_op, {y}, {{"axes", std::vector<int64_t>{1}}}), {at(4, y)}, {at(5, kept)});
    add(row(mul_op, {y, y}, {}), {at(4, y), at(4, y)}, {at(4, y)});
    const auto joined = merge_ranges(parts, 132, made);
    ASSERT_EQ(joined.size(), 1u);
    RoundStrides steps{std::vector<std::optional<int64_t>>(operands), std::vector<std::optional<int64_t>>(results)};
    steps.in[1] = 128 * 4;  // other rows in each round
    steps.out[0] = 0;
    const std::string text = persistent_kernel_text(joined, phases_of(joined), &steps);
    EXPECT_NE(text.find("at_round(near.p[1], near.odd[0], 512ll, round)"), std::string::npos);
    try {
      EXPECT_FALSE(compile_cuda(text, kernel_headers(), c.architecture).empty());
      EXPECT_FALSE(
          compile_cuda(persistent_kernel_text(joined, phases_of(joined)), kernel_headers(), c.architecture).empty());
    } catch (const Error& e) {
      if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
      FAIL() << e.what();
    }
  }
}

TEST(WholeRanges, OnGpuResultsEqualTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261115);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, deep, classes] : {std::tuple<int64_t, int64_t, int64_t>{128, 64, 10},
                                              {96, 512, 16},
                                              {128, 16, 700},
                                              {40, 100, 1},
                                              {260, 7, 3}}) {
      SCOPED_TRACE(fmt::format("{} rows of {} to {}, {}", rows, deep, classes, name(dtype)));
      const Program program = rows_of_a_loss(dtype, rows, deep, classes);
      expect_same_on_gpu(program, random);
    }
}

// A scan whose body is one kernel: the kernel runs the rounds.
TEST(WholeRanges, RoundsOnGpuEqualTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261116);
  for (const int64_t length : {2, 3, 10, 33})
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(fmt::format("{} rounds{}", length, reverse ? ", from the last to the first" : ""));
      Builder inner;
      const Type weights{DType::f32, {16, 8}}, rows{DType::f32, {128, 16}};
      const Value w = inner.input(weights), count = inner.input({DType::i32, {}}), x = inner.input(rows);
      const Value constant = inner.input({DType::f32, {8}});
      // Integers from -2 to 2 in every round.
      const Value y = einsum("mk,kn->mn", x, w) + broadcast(constant, {128, 8}, {1});
      const Value low = full(inner, y.type(), -2), high = full(inner, y.type(), 2);
      const Value some = maximum(minimum(y, high), low);
      const Value back = einsum("mk,mn->kn", x, some);
      const Value next = maximum(minimum(w - back, full(inner, weights, 2)), full(inner, weights, -2));
      const auto body = std::make_shared<const Program>(
          inner.take(Values{next, count + full(inner, {DType::i32, {}}, 1), reduce_sum(some, {0, 1}), some}));
      Builder b;
      const Value start = b.input(weights), zero = b.input({DType::i32, {}}),
                  xs = b.input({DType::f32, {length, 128, 16}});
      const Value bias = b.input({DType::f32, {8}});
      const Program program = b.take(scan(b, body, {start, zero}, {xs}, {bias}, length, reverse));
      expect_same_on_gpu(program, random);
    }
}

// Carries that are updated in place, are double-buffered, stay the same, or are swapped; with and without donated
// initial values.
TEST(WholeRanges, RoundsOnGpuPassCarriesOn) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261118);
  const Type square{DType::f32, {64, 64}};
  for (const bool crossed : {false, true})
    for (const int64_t length : {2, 5}) {
      SCOPED_TRACE(fmt::format("{} rounds{}", length, crossed ? ", crossed" : ""));
      Builder inner;
      const Value a = inner.input(square), c = inner.input(square), w = inner.input(square);
      const Value x = inner.input({DType::f32, {64}});
      const auto little = [&](const Value& y) {
        return maximum(minimum(y, full(inner, y.type(), 2)), full(inner, y.type(), -2));
      };
      const Value next = crossed ? c : little(c + broadcast(x, {64, 64}, {1}));  // before `a` is read for the last time
      const Value product = little(einsum("mk,kn->mn", a, w) + c);
      const auto body = std::make_shared<const Program>(inner.take(Values{next, product, w, reduce_sum(product, {0})}));
      Builder b;
      const Value first = b.input(square), second = b.input(square), third = b.input(square);
      const Value xs = b.input({DType::f32, {length, 64}});
      const Program program = b.take(scan(b, body, {first, second, third}, {xs}, {}, length, false));
      HostArrays in;
      for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
      const HostArrays wanted = eager(program, in);
      for (const std::vector<bool>& donated : {std::vector<bool>{}, std::vector<bool>{true, true, true, false}}) {
        const HostArrays got = planned_on_gpu(program, in, donated);
        for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
      }
    }
}

}  // namespace
}  // namespace lockstep::detail
#endif
