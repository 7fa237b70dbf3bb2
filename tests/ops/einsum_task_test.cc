// Contractions as GPU tasks: their steps and what can be done with them. Only texts; needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <algorithm>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/task.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

const GpuTarget kTarget = {};

// Rows as tasks; every value has a number of its own.
class EinsumTask : public ::testing::Test {
 protected:
  TaskValue value(DType dtype, Shape shape) {
    const ValueId id = next_++;
    return {.id = id, .type = {dtype, std::move(shape)}, .memory = id};
  }

  GpuTask row(const Op& op, Attrs attrs, std::vector<TaskValue> in) {
    std::vector<Type> types;
    for (const TaskValue& each : in) types.push_back(each.type);
    GpuTask task;
    task.op = &op;
    for (const Type& type : infer_types(op, types, attrs)) task.out.push_back(value(type.dtype, type.shape));
    task.attrs = std::move(attrs);
    task.in = std::move(in);
    return task;
  }
  GpuTask product(const std::string& spec, std::vector<TaskValue> in) {
    return row(einsum_op, {{"spec", spec}}, std::move(in));
  }
  GpuTask product(DType dtype, int64_t m, int64_t k, int64_t n) {
    return product("mk,kn->mn", {value(dtype, {m, k}), value(dtype, {k, n})});
  }
  // A product with the results x and x * x, of f32.
  GpuTask product_and_squares(int64_t m, int64_t k, int64_t n) {
    Builder b;
    const Value x = b.input({DType::f32, {m, n}});
    auto body = std::make_shared<const Program>(b.take(Values{x, x * x}));
    return row(einsum_fused_op, {{"spec", std::string("mk,kn->mn")}, {"body", ProgramPtr(body)}},
               {value(DType::f32, {m, k}), value(DType::f32, {k, n})});
  }
  // The new bias: the old one minus the sums of a gradient's columns.
  std::vector<GpuTask> bias_update(const TaskValue& gradient) {
    const int64_t n = gradient.type.shape[1];
    const GpuTask sums = row(reduce_sum_op, {{"axes", std::vector<int64_t>{0}}}, {gradient});
    return {sums, row(sub_op, {}, {value(gradient.type.dtype, {n}), sums.out[0]})};
  }

  // The task, with this operand computed by another one.
  static GpuTask with_producer(GpuTask task, size_t operand, GpuTask producer, bool written = false) {
    producer.out[0] = task.in[operand];
    task.producers.push_back({.operand = operand, .task = std::move(producer), .written = written});
    return task;
  }
  // With an operand that is gathered from an array of more rows; with one that is f32, rounded.
  GpuTask with_gathered(const GpuTask& task, size_t operand, bool written = false) {
    const Type& type = task.in[operand].type;
    GpuTask gather = row(gather_op, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}},
                         {value(type.dtype, {60000, type.shape[1]}), value(DType::i32, {type.shape[0]})});
    return with_producer(task, operand, std::move(gather), written);
  }
  GpuTask with_rounded(const GpuTask& task, size_t operand, bool written = false) {
    const Type& type = task.in[operand].type;
    GpuTask cast = row(cast_op, {{"dtype", type.dtype}}, {value(DType::f32, type.shape)});
    return with_producer(task, operand, std::move(cast), written);
  }

  static std::optional<CudaStep> step(const GpuTask& task, const GpuTarget& target = kTarget) {
    return einsum_task.step(task, target);
  }
  static std::optional<CudaStep> step(GpuTask task, TaskDivision division, int64_t count) {
    task.division = division;
    task.count = count;
    return step(task);
  }
  static TaskTraits traits(const GpuTask& task) { return einsum_task.traits(task, kTarget); }

 private:
  ValueId next_ = 0;
};

std::vector<size_t> indices_of(const CudaStep& step, CudaStep::Argument::Kind kind) {
  std::vector<size_t> out;
  for (const CudaStep::Argument& argument : step.arguments)
    if (argument.kind == kind) out.push_back(argument.index);
  return out;
}

bool contains_text(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_kernel_compiles(const CudaStep& step) {
  try {
    cuda_compiler();
  } catch (const Error&) {
    return;
  }
  EXPECT_FALSE(compile_quickly(text_of(step), "sm_90").empty());
}

TEST_F(EinsumTask, AFixedTileIsUsed) {
  GpuTask task = product(DType::f32, 128, 1024, 1024);
  const std::optional<CudaStep> chosen = step(task);
  ASSERT_TRUE(chosen && chosen->tile);
  CudaTile tile{.tall = 32, .wide = 32, .warp_rows = 2, .warp_cols = 2, .warp_parts = 4};
  ASSERT_FALSE(chosen->tile->tall == tile.tall && chosen->tile->wide == tile.wide);
  task.tile = tile;
  const std::optional<CudaStep> fixed = step(task);
  ASSERT_TRUE(fixed && fixed->tile);
  EXPECT_EQ(fixed->blocks, 4 * 32);
  EXPECT_TRUE(fixed->workspaces.empty());
  EXPECT_TRUE(contains_text(fixed->prelude, "kTall = 32, kWide = 32")) << fixed->prelude;
  tile.deep = fixed->tile->deep;
  tile.stages = fixed->tile->stages;
  EXPECT_EQ(*fixed->tile, tile);
  expect_kernel_compiles(*fixed);
}

TEST_F(EinsumTask, TheChosenTileFixedGivesTheSameStep) {
  GpuTask task = product(DType::bf16, 128, 784, 1024);
  const std::optional<CudaStep> chosen = step(task);
  ASSERT_TRUE(chosen);
  task.tile = chosen->tile;
  const std::optional<CudaStep> fixed = step(task);
  ASSERT_TRUE(fixed);
  EXPECT_EQ(text_of(*fixed), text_of(*chosen));
  EXPECT_EQ(fixed->shared_bytes, chosen->shared_bytes);
}

TEST_F(EinsumTask, ATileThatDoesNotFitGivesNothing) {
  GpuTask task = product(DType::f32, 128, 1024, 1024);
  task.tile = CudaTile{.tall = 100, .wide = 100};
  EXPECT_FALSE(step(task));
  task.tile = CudaTile{.tall = 128, .wide = 128, .warp_rows = 4, .warp_cols = 4};
  EXPECT_TRUE(step(task));
  EXPECT_FALSE(step(task, {.shared_bytes = 64 << 10}));
}

TEST_F(EinsumTask, SplitSumsHaveAWorkspace) {
  const std::optional<CudaStep> few = step(product(DType::f32, 128, 4096, 64));
  ASSERT_TRUE(few && few->tile);
  ASSERT_GT(few->tile->splits, 1);
  EXPECT_EQ(few->workspaces, std::vector<int64_t>{few->blocks * few->tile->tall * few->tile->wide * 4});
  EXPECT_EQ(indices_of(*few, CudaStep::Argument::workspace), std::vector<size_t>{0});
  EXPECT_TRUE(few->cooperative);
}

TEST_F(EinsumTask, FewerProcessorsGetFewerThreadBlocks) {
  GpuTask task = product(DType::f32, 1024, 128, 1024);
  const std::optional<CudaStep> all = step(task);
  task.processors = 20;
  const std::optional<CudaStep> some = step(task);
  ASSERT_TRUE(all && some);
  EXPECT_LT(some->blocks, all->blocks);
}

TEST_F(EinsumTask, UnsupportedProductsGiveNothing) {
  EXPECT_TRUE(step(product(DType::f32, 64, 64, 64)));
  EXPECT_FALSE(step(product(DType::f32, 64, 64, 64), {.tf32 = false}));
  EXPECT_TRUE(step(product(DType::bf16, 64, 64, 64), {.tf32 = false}));
  EXPECT_FALSE(step(product(DType::bf16, 64, 64, 64), {.major = 7}));
  EXPECT_FALSE(step(product(DType::f64, 64, 64, 64)));
  EXPECT_FALSE(step(product(DType::i32, 64, 64, 64)));
  // A transposed batch must be copied first.
  EXPECT_FALSE(step(product("abk,bkn->nab", {value(DType::f32, {4, 6, 8}), value(DType::f32, {6, 8, 3})})));
  GpuTask partial = product(DType::f32, 64, 64, 64);
  partial.stage = TaskStage::partial;
  EXPECT_FALSE(step(partial));
}

TEST_F(EinsumTask, GatheredRowsAreComputed) {
  GpuTask task = with_gathered(product(DType::f32, 128, 784, 256), 0);
  task.ready = true;
  const std::optional<CudaStep> gathered = step(task);
  ASSERT_TRUE(gathered);
  EXPECT_TRUE(contains_text(gathered->prelude, "kSourceA = true, kSourceB = false")) << gathered->prelude;
  // Operand 0 is not read; its producer's operands are 2 and 3.
  std::vector<size_t> read = indices_of(*gathered, CudaStep::Argument::operand);
  std::sort(read.begin(), read.end());
  EXPECT_EQ(read, (std::vector<size_t>{1, 2, 3}));
  EXPECT_EQ(operands(task).size(), 4u);
  ASSERT_EQ(gathered->prefetches.size(), 2u);
  EXPECT_EQ(gathered->prefetches[1].operands, std::vector<size_t>{1});
  expect_kernel_compiles(*gathered);
}

TEST_F(EinsumTask, OnlyTheFirstMatrixIsAlsoWritten) {
  GpuTask first = with_gathered(product(DType::f32, 128, 784, 256), 0, true);
  first.ready = true;
  const std::optional<CudaStep> writes = step(first);
  ASSERT_TRUE(writes);
  // The product is result 0, the gathered rows are result 1.
  std::vector<size_t> written = indices_of(*writes, CudaStep::Argument::result);
  std::sort(written.begin(), written.end());
  EXPECT_EQ(written, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(results(first).size(), 2u);

  GpuTask second = with_gathered(product(DType::f32, 128, 784, 256), 1, true);
  second.ready = true;
  EXPECT_FALSE(step(second));
  EXPECT_FALSE(step(with_rounded(product(DType::bf16, 128, 784, 256), 0, true)));
}

TEST_F(EinsumTask, WeightsAreRoundedIfThereAreFewRows) {
  const std::optional<CudaStep> few = step(with_rounded(product(DType::bf16, 128, 1024, 1024), 1));
  ASSERT_TRUE(few);
  EXPECT_TRUE(contains_text(few->parameters, "const float* b")) << few->parameters;
  EXPECT_EQ(indices_of(*few, CudaStep::Argument::operand), (std::vector<size_t>{0, 2}));
  // Every row of tiles would read twice the bytes.
  EXPECT_FALSE(step(with_rounded(product(DType::bf16, 1024, 1024, 1024), 1)));
}

TEST_F(EinsumTask, ProductsRowByRowOnlyRound) {
  const GpuTask task = product(DType::bf16, 128, 1024, 10);
  ASSERT_GT(traits(task).ranges.most, 0);
  EXPECT_FALSE(step(with_gathered(task, 0)));
  EXPECT_FALSE(step(with_gathered(task, 1)));
  EXPECT_FALSE(step(with_rounded(task, 0)));  // a range reads only its own rows
  const GpuTask rounded = with_rounded(task, 1);
  EXPECT_TRUE(step(rounded));
  EXPECT_EQ(traits(rounded).ranges.most, 128);
  EXPECT_EQ(traits(rounded).spread.by, 2u);
  EXPECT_EQ(traits(rounded).spread.by_type, "float");
  EXPECT_FALSE(traits(rounded).can_sum_columns_of);
  EXPECT_TRUE(step(rounded, TaskDivision::ranges, 128));
}

TEST_F(EinsumTask, OperandsOfTheEpilogueAreOnlyRounded) {
  const auto fused = [&] {
    Builder b;
    const Value x = b.input({DType::bf16, {128, 1024}}), y = b.input({DType::bf16, {128, 1024}});
    auto body = std::make_shared<const Program>(b.take(Values{x + y}));
    return row(einsum_fused_op, {{"spec", std::string("mk,kn->mn")}, {"body", ProgramPtr(body)}},
               {value(DType::bf16, {128, 784}), value(DType::bf16, {784, 1024}), value(DType::bf16, {128, 1024})});
  };
  EXPECT_TRUE(step(fused()));
  const std::optional<CudaStep> rounded = step(with_rounded(fused(), 2));
  ASSERT_TRUE(rounded);
  EXPECT_TRUE(contains_text(rounded->parameters, "const float* in1_0")) << rounded->parameters;
  EXPECT_FALSE(step(with_gathered(fused(), 2)));
}

TEST_F(EinsumTask, AnOperandHasOneProducer) {
  GpuTask twice = with_rounded(product(DType::bf16, 128, 784, 1024), 1);
  ASSERT_TRUE(step(twice));
  twice.producers.push_back(twice.producers[0]);
  EXPECT_FALSE(step(twice));
}

TEST_F(EinsumTask, ASecondResultIsSummedInsteadOfWritten) {
  GpuTask task = product_and_squares(128, 784, 1024);
  task.summed = 1;
  const std::optional<CudaStep> sums = step(task);
  ASSERT_TRUE(sums);
  EXPECT_TRUE(contains_text(sums->body, "const auto& out1 = adding;")) << sums->body;
  EXPECT_TRUE(contains_text(sums->body, "write_block_sum<512, 512>(added, out1, block")) << sums->body;
  expect_kernel_compiles(*sums);

  GpuTask only = product(DType::f32, 128, 784, 1024);
  only.summed = 0;
  EXPECT_FALSE(step(only)) << "its only result";
  GpuTask large = product_and_squares(4096, 128, 4096);
  large.summed = 1;
  EXPECT_FALSE(step(large)) << "more thread blocks than partial sums";
}

TEST_F(EinsumTask, ColumnSumsAreComputedBesides) {
  const TaskValue gradient = value(DType::f32, {128, 1024});
  GpuTask task = product("km,kn->mn", {value(DType::f32, {128, 1024}), gradient});
  EXPECT_EQ(traits(task).can_sum_columns_of, 1u);
  const std::optional<CudaStep> plain = step(task);
  task.column_sums = bias_update(gradient);
  EXPECT_FALSE(traits(task).can_sum_columns_of);
  const std::optional<CudaStep> sums = step(task);
  ASSERT_TRUE(plain && sums);
  // The old bias is operand 2, the new bias result 1.
  EXPECT_EQ(indices_of(*sums, CudaStep::Argument::operand), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(indices_of(*sums, CudaStep::Argument::result), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(operands(task).size(), 3u);
  EXPECT_EQ(results(task).size(), 2u);
  EXPECT_GT(sums->shared_bytes, plain->shared_bytes);
  expect_kernel_compiles(*sums);
}

TEST_F(EinsumTask, ColumnSumsOfAnotherMatrixGiveNothing) {
  const TaskValue gradient = value(DType::f32, {128, 1024});
  GpuTask first = product("km,kn->mn", {gradient, value(DType::f32, {128, 1024})});
  first.column_sums = bias_update(gradient);
  EXPECT_FALSE(step(first)) << "of the first matrix";
  GpuTask transposed = product("mk,nk->mn", {value(DType::f32, {128, 1024}), gradient});
  transposed.column_sums = bias_update(gradient);
  EXPECT_FALSE(step(transposed)) << "of the rows of the second matrix";
}

// The last layer of an MLP: 128 rows of 1024, by 1024 x 10.
TEST_F(EinsumTask, TraitsOfALastLayer) {
  const TaskTraits of = traits(product(DType::f32, 128, 1024, 10));
  EXPECT_EQ(of.ranges.most, 128);
  EXPECT_EQ(of.ranges.least, 32);
  EXPECT_EQ(of.ranges.own, std::vector<size_t>{0});
  EXPECT_FALSE(of.ranges.by_warp);
  EXPECT_EQ(of.spread.kind, TaskTraits::Spread::sums);
  EXPECT_EQ(of.spread.rows, 0u);
  EXPECT_EQ(of.spread.by, 1u);
  EXPECT_EQ(of.spread.few, 10);
  EXPECT_EQ(of.spread.width, 1024);
  EXPECT_EQ(of.spread.row_type, "float");
  EXPECT_EQ(of.spread.by_type, "float");
  EXPECT_EQ(of.can_sum_columns_of, 1u);
  EXPECT_FALSE(of.can_be_inlined);
  EXPECT_FALSE(of.sums_all);
  EXPECT_FALSE(of.sums_columns);
}

// Its gradient: 128 rows of 10, by the same matrix transposed.
TEST_F(EinsumTask, TraitsOfALastLayersGradient) {
  const GpuTask task = product("mk,nk->mn", {value(DType::f32, {128, 10}), value(DType::f32, {1024, 10})});
  const TaskTraits of = traits(task);
  EXPECT_EQ(of.ranges.most, 128);
  EXPECT_EQ(of.spread.kind, TaskTraits::Spread::columns);
  EXPECT_EQ(of.spread.few, 10);
  EXPECT_EQ(of.spread.width, 1024);
  const std::optional<CudaStep> columns = step(task, TaskDivision::columns, 64);
  ASSERT_TRUE(columns);
  EXPECT_TRUE(contains_text(columns->body, "SharedColumns<float, float, 64, 1024, 10>")) << columns->body;
  EXPECT_TRUE(columns->publish.empty());
}

TEST_F(EinsumTask, ALargeProductHasNoRanges) {
  const TaskTraits of = traits(product(DType::f32, 128, 1024, 1024));
  EXPECT_EQ(of.ranges.most, 0);
  EXPECT_EQ(of.spread.kind, TaskTraits::Spread::none);
  EXPECT_EQ(of.can_sum_columns_of, 1u);
}

TEST_F(EinsumTask, RangesAndColumnsAreDivided) {
  const GpuTask task = product(DType::f32, 128, 1024, 10);
  const std::optional<CudaStep> ranges = step(task, TaskDivision::ranges, 64);
  ASSERT_TRUE(ranges);
  EXPECT_EQ(ranges->blocks, 64);
  EXPECT_FALSE(ranges->tile);
  EXPECT_TRUE(contains_text(ranges->body, "RowProduct<float, float, 512, 2, 10, 1024, 1024, 10, false>"));
  EXPECT_FALSE(step(task, TaskDivision::ranges, 16)) << "more rows than a thread block computes";
  EXPECT_FALSE(step(task, TaskDivision::ranges, 48)) << "unequal ranges";
  const std::optional<CudaStep> columns = step(task, TaskDivision::columns, 64);
  ASSERT_TRUE(columns);
  EXPECT_TRUE(contains_text(columns->body, "SharedSums<float, float, 64, 16, 10>{messages, now, place}.take<Read>"));
  EXPECT_EQ(columns->publish, "SharedSums<float, float, 64, 16, 10>{messages, now, place}.give");
  EXPECT_FALSE(step(task, TaskDivision::columns, 100)) << "unequal numbers of columns";
  EXPECT_FALSE(step(task, TaskDivision::warps, 128));
  EXPECT_FALSE(step(product(DType::f32, 128, 1024, 1024), TaskDivision::ranges, 128)) << "a large second matrix";
}

TEST_F(EinsumTask, SummedResultsHaveNoRanges) {
  GpuTask task = product_and_squares(128, 1024, 10);
  EXPECT_EQ(traits(task).ranges.most, 128);
  task.summed = 1;
  EXPECT_EQ(traits(task).ranges.most, 0);
  EXPECT_EQ(traits(task).spread.kind, TaskTraits::Spread::none);
  EXPECT_FALSE(step(task, TaskDivision::ranges, 128));
}

}  // namespace
}  // namespace lockstep
#endif
