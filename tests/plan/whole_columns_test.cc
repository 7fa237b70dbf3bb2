// Column sums that are merged into products: which are, and their results on a GPU.
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

// Parts with operands and results in ranges, each in a numbered memory space.
struct Columns {
  std::deque<SteppedKernel> kernels, made;
  std::vector<KernelPart> parts;

  void add(const std::string& name, SteppedWays ways, const std::vector<int64_t>& in, const std::vector<int64_t>& out,
           bool wanted, int64_t elements = 0) {
    CudaStep step;
    step.name = name;
    step.elements = elements;
    KernelPart part{
        &kernels.emplace_back(nullptr, std::vector{step}, std::vector<BufferPtr>(), std::move(ways)), {}, {}};
    for (int64_t each : in) part.in.push_back({each, 0, 4096}), part.operands.push_back(static_cast<size_t>(each));
    for (int64_t each : out) part.out.push_back({each, 0, 4096}), part.results.push_back(static_cast<size_t>(each));
    part.wanted.assign(out.size(), wanted);
    part.needed = wanted;
    parts.push_back(std::move(part));
  }
  // Reads memory 1.
  void product(int64_t to, bool can = true) {
    add("product",
        {.by_columns = 1,
         .with_columns =
             [=](const CudaColumns& columns) {
               CudaStep step;
               step.name = "product";
               for (const CudaColumns::Use& use : columns.uses)
                 step.name += fmt::format("(sums {}, from {} to {})", fmt::join(use.sums, " and "), use.first_operand,
                                          use.first_result);
               return can ? std::optional(SteppedKernel(nullptr, {step})) : std::nullopt;
             }},
        {0, 1}, {to}, true);
  }
  void sum(int64_t of, int64_t to, bool wanted = false) {
    add("sum", {.adds_columns = Type{DType::f32, {128, 1024}}}, {of}, {to}, wanted);
  }
  void update(const std::vector<int64_t>& in, int64_t to) {
    CudaRanges ranges;
    ranges.most = 1024;
    for (size_t i = 0; i < in.size(); ++i) ranges.own.push_back(i);
    add("update", {.ranges = ranges}, in, {to}, true, 1024);
  }
  void other(int64_t in, int64_t out) { add("other", {}, {in}, {out}, true); }

  std::string text() {
    std::string out;
    for (const KernelPart& part : fuse_column_sums(parts, made)) out += " " + part.kernel->steps()[0].name;
    return out;
  }
};

TEST(WholeColumns, AreMergedIntoTheProduct) {
  Columns one;
  one.product(5);
  one.sum(1, 2);
  one.update({3, 2}, 3);
  EXPECT_EQ(one.text(), " product(sums 1, from 2 to 1)");
  const std::vector<KernelPart> parts = fuse_column_sums(one.parts, one.made);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].operands, (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(parts[0].results, (std::vector<size_t>{5, 3}));
  EXPECT_EQ(parts[0].wanted, (std::vector<bool>{true, true}));

  Columns before;  // the sum comes first, with other parts in between
  before.sum(1, 2);
  before.other(7, 8);
  before.update({2, 3}, 4);
  before.other(8, 9);
  before.product(5);
  before.other(5, 10);
  EXPECT_EQ(before.text(), " other other product(sums 0, from 2 to 1) other");

  Columns two;
  for (int64_t first : {0, 20}) {
    two.product(first + 5);
    two.sum(1, first + 2);
    two.update({first + 2, first + 3}, first + 3);
  }
  EXPECT_EQ(two.text(), " product(sums 0, from 2 to 1) product(sums 0, from 2 to 1)");
}

// The new bias, and the squares of its gradient.
TEST(WholeColumns, MayHaveSeveralReaders) {
  Columns both;
  both.product(5);
  both.sum(1, 2);
  both.update({3, 2}, 3);
  both.other(7, 8);
  both.update({2}, 4);
  EXPECT_EQ(both.text(), " other product(sums 1, from 2 to 1)(sums 0, from 3 to 2)");
  const std::vector<KernelPart> parts = fuse_column_sums(both.parts, both.made);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].operands, (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(parts[1].results, (std::vector<size_t>{5, 3, 4}));
  Columns there;  // they are in the memory of the sums
  there.product(5);
  there.sum(1, 2);
  there.update({3, 2}, 3);
  there.update({2}, 2);
  there.other(2, 9);
  EXPECT_EQ(there.text(), " product(sums 1, from 2 to 1)(sums 0, from 3 to 2) other");
  Columns early;  // the sums are read again
  early.product(5);
  early.sum(1, 2);
  early.update({2}, 2);
  early.update({3, 2}, 3);
  EXPECT_EQ(early.text(), " product(sums 0, from 2 to 1) update");
  Columns twice;
  twice.product(5);
  twice.sum(1, 2);
  twice.update({2, 3, 2, 4}, 3);
  EXPECT_EQ(twice.text(), " product(sums 0 and 2, from 2 to 1)");
  EXPECT_EQ(fuse_column_sums(twice.parts, twice.made)[0].operands, (std::vector<size_t>{0, 1, 3, 4}));
  Columns later;  // its result is needed before the product, but not by it
  later.sum(1, 2);
  later.update({2}, 3);
  later.other(3, 6);
  later.other(7, 8);
  later.other(6, 9);
  later.product(5);
  EXPECT_EQ(later.text(), " other product(sums 0, from 2 to 1) other other");
  EXPECT_EQ(fuse_column_sums(later.parts, later.made)[0].operands, (std::vector<size_t>{7}));
  Columns over;  // the operand is overwritten before the sum, and then after it
  over.product(5);
  over.other(7, 0);
  over.sum(1, 2);
  over.update({2, 3}, 3);
  EXPECT_EQ(over.text(), " product(sums 0, from 2 to 1) other");
  Columns before;  // and by it
  before.sum(1, 2);
  before.update({2}, 3);
  before.other(3, 0);
  before.product(5);
  EXPECT_EQ(before.text(), " sum update other product");
  Columns after;  // the second needs what the first has written
  after.product(5);
  after.sum(1, 2);
  after.update({3, 2}, 3);
  after.update({2, 3}, 4);
  EXPECT_EQ(after.text(), " product sum update update");
  Columns reads;  // it overwrites what the first reads
  reads.product(5);
  reads.sum(1, 2);
  reads.update({3, 2}, 4);
  reads.update({2}, 3);
  EXPECT_EQ(reads.text(), " product sum update update");
}

TEST(WholeColumns, SumsThatOthersNeedAreNotMerged) {
  Columns wanted;
  wanted.product(5);
  wanted.sum(1, 2, true);
  wanted.update({2, 3}, 3);
  EXPECT_EQ(wanted.text(), " product sum update");
  Columns read;
  read.product(5);
  read.sum(1, 2);
  read.update({2, 3}, 3);
  read.other(2, 9);
  EXPECT_EQ(read.text(), " product sum update other");
  Columns another;  // matrix
  another.product(5);
  another.sum(7, 2);
  another.update({2, 3}, 3);
  EXPECT_EQ(another.text(), " product sum update");
  Columns cannot;
  cannot.product(5, false);
  cannot.sum(1, 2);
  cannot.update({2, 3}, 3);
  EXPECT_EQ(cannot.text(), " product sum update");
  Columns waited;  // a part between the product and the sum reads the product's result, and the update needs that part
  waited.product(5);
  waited.other(5, 3);
  waited.sum(1, 2);
  waited.update({2, 3}, 4);
  EXPECT_EQ(waited.text(), " product other sum update");
}

// The gradients of two layers' weights and biases on integers: exact in any order. Sums by dedicated threads and by
// all; row counts that are not multiples of a step; and sums that cannot be merged into the product.
TEST(WholeColumns, OnGpuSumsAreExact) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261117);
  struct Case {
    DType dtype;
    int64_t m, n, k;
  };
  int together = 0;
  for (const Case& c :
       {Case{DType::f32, 1024, 1024, 128}, Case{DType::f32, 784, 512, 100}, Case{DType::bf16, 1024, 1024, 128},
        Case{DType::f16, 300, 256, 40}, Case{DType::f32, 256, 128, 128}, Case{DType::f32, 100, 36, 20}}) {
    SCOPED_TRACE(fmt::format("{} of {} x {} x {}", name(c.dtype), c.m, c.n, c.k));
    Builder b;
    const Type left{c.dtype, {c.k, c.m}}, right{c.dtype, {c.k, c.n}}, weights{DType::f32, {c.m, c.n}},
        bias{DType::f32, {c.n}};
    HostArrays in;
    Values out;
    for (int i = 0; i < 2; ++i) {
      for (const Type& type : {left, right, weights, bias, bias}) in.push_back(small_integers(type, random()));
      const Value x = b.input(left), y = b.input(right), w = b.input(weights), v = b.input(bias), m = b.input(bias);
      const Value sum = cast(reduce_sum(y, {0}), DType::f32), mean = m + sum;
      out.push_back(w - cast(einsum("km,kn->mn", x, y), DType::f32));
      out.push_back(v - mean);
      out.push_back(mean * full(b, bias, 2));
      if (i == 1) out.push_back(reduce_sum(sum * full(b, bias, 2), {0}));
    }
    const Program program = fuse(b.take(out));
    const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
    for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
    const std::string text = compile(program, test_pool(), CudaStream::local())->describe();
    const bool is_one = text.find("adds up columns") != std::string::npos;
    EXPECT_TRUE(is_one || c.m != 1024) << text;
    together += is_one;
  }
  EXPECT_GE(together, 3);
}

// The same elements, which the sum reads as a matrix of another shape.
TEST(WholeColumns, OnGpuSumsOfAnotherShapeAreNotMerged) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261119);
  Builder b;
  HostArrays in;
  Values out;
  for (int i = 0; i < 2; ++i) {
    const Type matrix{DType::f32, {128, 1024}}, weights{DType::f32, {1024, 1024}}, bias{DType::f32, {2048}};
    for (const Type& type : {matrix, matrix, weights, bias}) in.push_back(small_integers(type, random()));
    const Value x = b.input(matrix), y = b.input(matrix), w = b.input(weights), v = b.input(bias);
    out.push_back(w - einsum("km,kn->mn", x, y));
    out.push_back(v - reduce_sum(reshape(y, {64, 2048}), {0}));
  }
  const Program program = fuse(b.take(out));
  const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
  for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
}

}  // namespace
}  // namespace lockstep::detail
#endif
