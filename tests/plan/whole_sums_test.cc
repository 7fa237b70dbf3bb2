// Sums of a product's result that are merged into the product: which are, and their results on a GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/cuda_stream.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "plan/cuda/cuda_plan.h"
#include "plan/cuda/whole_kernel.h"
#include "plan/plan.h"
#include "rows/on_gpu.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kMany = 100'000;  // bytes of elements

// Parts with operands and results in ranges of one memory.
struct Summed {
  std::deque<SteppedKernel> kernels, made;
  std::vector<KernelPart> parts;

  void add(const std::string& name, SteppedWays ways, std::vector<MemoryRange> in, std::vector<MemoryRange> out,
           std::vector<bool> wanted) {
    CudaStep step;
    step.name = name;
    parts.push_back({&kernels.emplace_back(nullptr, std::vector{step}, std::vector<BufferPtr>(), std::move(ways)),
                     std::move(in), std::move(out)});
    parts.back().wanted = std::move(wanted);
  }
  // Adds a product of two results, the second of which has its elements at `begin`.
  void product(int64_t begin, bool wanted = false, bool can = true) {
    add("product",
        {.adding =
             [=](size_t result) {
               CudaStep step;
               step.name = fmt::format("product({})", result);
               return can ? std::optional(SteppedKernel(nullptr, {step})) : std::nullopt;
             }},
        {}, {{1, begin, begin + kMany}, {0, begin, begin + kMany}}, {true, wanted});
  }
  void sum(int64_t begin, int64_t bytes = kMany) {
    add("sum",
        {.of_added_up =
             [] {
               CudaStep step;
               step.name = "rest";
               return SteppedKernel(nullptr, {step});
             }},
        {{0, begin, begin + bytes}}, {{2, begin, begin + 4}}, {true});
  }
  void other(const MemoryRange& in, const MemoryRange& out) { add("other", {}, {in}, {out}, {true}); }

  std::string text() {
    std::string out;
    for (const KernelPart& part : fuse_sums(parts, made)) out += " " + part.kernel->steps()[0].name;
    return out;
  }
};

TEST(WholeSums, ResultsThatAreOnlySummedAreNotWritten) {
  Summed one;
  one.product(0);
  one.sum(0);
  EXPECT_EQ(one.text(), " product(1) rest");
  const std::vector<KernelPart> parts = fuse_sums(one.parts, one.made);
  EXPECT_EQ(parts[0].out[1], (MemoryRange{0, 0, kPartialSums * 4}));
  EXPECT_EQ(parts[1].in[0], parts[0].out[1]);
  EXPECT_EQ(parts[0].out[0], one.parts[0].out[0]);

  Summed again;  // the memory is reused later
  again.product(0);
  again.sum(0);
  again.other({3, 0, 10}, {0, 0, 10});
  again.other({0, 0, 10}, {4, 0, 10});
  EXPECT_EQ(again.text(), " product(1) rest other other");
}

TEST(WholeSums, ResultsWithOtherReadersAreWritten) {
  Summed wanted;
  wanted.product(0, true);
  wanted.sum(0);
  EXPECT_EQ(wanted.text(), " product sum");
  Summed before;
  before.product(0);
  before.other({0, 10, 20}, {3, 0, 10});
  before.sum(0);
  EXPECT_EQ(before.text(), " product other sum");
  Summed after;
  after.product(0);
  after.sum(0);
  after.other({0, 10, 20}, {3, 0, 10});
  EXPECT_EQ(after.text(), " product sum other");
  Summed over;  // and overwrites it
  over.product(0);
  over.sum(0);
  over.other({0, 0, kMany}, {0, 0, kMany});
  EXPECT_EQ(over.text(), " product sum other");
  Summed twice;
  twice.product(0);
  twice.sum(0);
  twice.sum(0);
  EXPECT_EQ(twice.text(), " product sum sum");
  Summed part;  // of it
  part.product(0);
  part.sum(0, 1000);
  EXPECT_EQ(part.text(), " product sum");
  Summed cannot;
  cannot.product(0, false, false);
  cannot.sum(0);
  EXPECT_EQ(cannot.text(), " product sum");
  Summed single;
  single.sum(0);
  EXPECT_EQ(single.text(), " sum");
}

// Weights and the sum of squares of their gradient on integers: exact in any order. Large and small tiles, shared sums,
// more tiles than blocks, and two in one kernel.
TEST(WholeSums, OnGpuSumsAreExact) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261116);
  struct Case {
    DType dtype;
    int64_t m, n, k;
  };
  for (const Case& c : {Case{DType::f32, 784, 1024, 128}, Case{DType::bf16, 1024, 1024, 128},
                        Case{DType::f32, 64, 64, 512}, Case{DType::f16, 100, 36, 20}, Case{DType::f32, 256, 10, 128}}) {
    SCOPED_TRACE(fmt::format("{} of {} x {} x {}", name(c.dtype), c.m, c.n, c.k));
    Builder b;
    const Type left{c.dtype, {c.k, c.m}}, right{c.dtype, {c.k, c.n}}, weights{DType::f32, {c.m, c.n}};
    HostArrays in;
    Values sums;
    Values out;
    for (int i = 0; i < 2; ++i) {
      for (const Type& type : {left, right, weights}) in.push_back(small_integers(type, random()));
      const Value x = b.input(left), y = b.input(right), w = b.input(weights);
      const Value gradient = cast(einsum("km,kn->mn", x, y), DType::f32);
      // Small enough that the total sum is exact in f32.
      const Value one = full(b, weights, 1);
      const Value little = maximum(minimum(gradient, one), full(b, weights, -1));
      out.push_back(w - gradient);
      out.push_back(reduce_sum(little * little, {0, 1}));
    }
    const Program program = fuse(b.take(out));
    const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
    for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values());
    const std::string text = compile(program, test_pool(), CudaStream::local())->describe();
    EXPECT_NE(text.find(" in 2 phases"), std::string::npos) << text;
  }
}

// Elements that are read again together with their sum, and updated in place.
TEST(WholeSums, OnGpuResultsThatAreReadAgainAreWritten) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  Builder b;
  const Type matrix{DType::f32, {64, 64}};
  const Value x = b.input(matrix), y = b.input(matrix), w = b.input(matrix);
  const Value gradient = einsum("km,kn->mn", x, y);
  const Value little = maximum(minimum(gradient, full(b, matrix, 1)), full(b, matrix, -1));
  const Value squares = little * little, sum = reduce_sum(squares, {0, 1});
  const Value rest = squares - broadcast(sum, {64, 64}, {});
  const Program program = fuse(b.take(Values{w - gradient, sum, reduce_sum(rest, {0})}));
  HostArrays in;
  for (uint32_t seed = 0; seed < 3; ++seed) in.push_back(small_integers(matrix, seed));
  const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
  for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values());
}

}  // namespace
}  // namespace lockstep::detail
#endif
