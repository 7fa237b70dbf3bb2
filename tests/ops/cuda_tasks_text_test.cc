// Rows other than products as GPU tasks: their steps, what can be done with them, and their sources. Needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/task.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"
#include "ops/elementwise.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

const GpuTarget kH200 = {};

bool has_task_compiler() {
  try {
    cuda_compiler();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The row as a task. Its values are numbered from `first` on.
GpuTask task_for(const Op& op, const std::vector<Type>& in, const Attrs& attrs, ValueId first = 0) {
  GpuTask task;
  task.op = &op;
  task.attrs = attrs;
  const auto value = [&](const Type& type) {
    const ValueId id = first++;
    return TaskValue{id, type, id};
  };
  for (const Type& type : in) task.in.push_back(value(type));
  for (const Type& type : infer_types(op, in, attrs)) task.out.push_back(value(type));
  return task;
}

std::optional<CudaStep> step_of_task(const GpuTask& task) { return task_kind(*task.op)->step(task, kH200); }

std::optional<CudaStep> step_in(GpuTask task, TaskDivision division, int64_t count) {
  task.division = division;
  task.count = count;
  return step_of_task(task);
}

bool has_text(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_step_compiles(const CudaStep& step) {
  if (!has_task_compiler()) return;
  EXPECT_FALSE(compile_quickly(text_of(step), "sm_90").empty()) << step.body;
}

GpuTask sum_of(const Type& type, std::vector<int64_t> axes) {
  return task_for(reduce_sum_op, {type}, {{"axes", std::move(axes)}});
}

TEST(CudaTasks, AReductionToFewResultsHasTwoStages) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name(dtype));
    const GpuTask whole = sum_of({dtype, {1 << 20}}, {0});
    const std::optional<CudaStep> first = step_of_task(whole);
    ASSERT_TRUE(first && first->partial);
    EXPECT_EQ(first->partial->dtype, DType::f32);
    EXPECT_EQ(first->partial->shape, (Shape{first->blocks, 1}));

    GpuTask partial = whole;
    partial.stage = TaskStage::partial;
    partial.out = {{2, *first->partial, 2}};
    const std::optional<CudaStep> same = step_of_task(partial);
    ASSERT_TRUE(same);
    EXPECT_FALSE(same->partial);
    EXPECT_EQ(same->body, first->body);
    EXPECT_EQ(same->parameters, dtype == DType::f32 ? "const float* in, float* out" : "const bf16* in, float* out");
    EXPECT_EQ(same->arguments[1].kind, CudaStep::Argument::result);

    GpuTask combine = whole;
    combine.stage = TaskStage::combine;
    combine.in = partial.out;
    const std::optional<CudaStep> second = step_of_task(combine);
    ASSERT_TRUE(second);
    EXPECT_FALSE(second->partial);
    EXPECT_EQ(second->blocks, 1);
    EXPECT_EQ(second->parameters, dtype == DType::f32 ? "const float* in, float* out" : "const float* in, bf16* out");
    for (const GpuTask& stage : {partial, combine}) {
      EXPECT_EQ(traits_of(stage, kH200).ranges.most, 0);
      EXPECT_FALSE(traits_of(stage, kH200).sums_all);
    }
    expect_step_compiles(*same);
    expect_step_compiles(*second);
  }
}

TEST(CudaTasks, AReductionInOneTaskHasNoPartialStage) {
  GpuTask task = sum_of({DType::f32, {kPartialSums}}, {0});
  ASSERT_TRUE(step_of_task(task));
  EXPECT_FALSE(step_of_task(task)->partial);
  EXPECT_EQ(step_of_task(task)->blocks, 1);
  task.stage = TaskStage::partial;
  EXPECT_FALSE(step_of_task(task));
}

TEST(CudaTasks, RowsAreReducedByRanges) {
  const GpuTask task = sum_of({DType::f32, {128, 100}}, {1});
  const TaskTraits::Ranges ranges = traits_of(task, kH200).ranges;
  EXPECT_EQ(ranges.most, 128);
  EXPECT_EQ(ranges.own, std::vector<size_t>{0});
  EXPECT_TRUE(ranges.by_warp);

  const std::optional<CudaStep> blocks = step_in(task, TaskDivision::ranges, 32);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->blocks, 32);
  EXPECT_EQ(blocks->shared_bytes, 0);
  EXPECT_TRUE(has_text(blocks->body, "threadIdx.x / 32u % 16u; k < 4u; k += 16u")) << blocks->body;
  const std::optional<CudaStep> warps = step_in(task, TaskDivision::warps, 128);
  ASSERT_TRUE(warps);
  EXPECT_TRUE(has_text(warps->body, "threadIdx.x / 32u % 1u; k < 1u; k += 1u")) << warps->body;
  EXPECT_FALSE(step_in(task, TaskDivision::ranges, 3));
  EXPECT_FALSE(step_in(task, TaskDivision::columns, 32));
  expect_step_compiles(*blocks);
  expect_step_compiles(*warps);
}

TEST(CudaTasks, ColumnsAreReducedByRangesOfColumns) {
  const GpuTask task = sum_of({DType::f32, {128, 512}}, {0});
  const TaskTraits traits = traits_of(task, kH200);
  EXPECT_TRUE(traits.sums_columns);
  EXPECT_EQ(traits.ranges.most, 32);
  EXPECT_TRUE(traits.ranges.own.empty());
  EXPECT_FALSE(traits.ranges.by_warp);

  // 32 columns per thread block, and 16 threads for each.
  const std::optional<CudaStep> step = step_in(task, TaskDivision::ranges, 16);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->blocks, 16);
  EXPECT_TRUE(has_text(step->body, "tx = threadIdx.x % 32u")) << step->body;
  EXPECT_TRUE(has_text(step->body, "}(block * 1u + c);")) << step->body;
  EXPECT_FALSE(step_in(task, TaskDivision::warps, 16));
  EXPECT_EQ(traits_of(sum_of({DType::f32, {2000, 512}}, {0}), kH200).ranges.most, 0);
  expect_step_compiles(*step);
}

TEST(CudaTasks, OnlySumsOfF32AddUpAllElements) {
  const auto sums_all = [](const Op& op, DType dtype, std::vector<int64_t> axes) {
    return traits_of(task_for(op, {{dtype, {4, 4}}}, {{"axes", std::move(axes)}}), kH200).sums_all;
  };
  EXPECT_TRUE(sums_all(reduce_sum_op, DType::f32, {0, 1}));
  EXPECT_FALSE(sums_all(reduce_sum_op, DType::f32, {0}));
  EXPECT_FALSE(sums_all(reduce_sum_op, DType::bf16, {0, 1}));
  EXPECT_FALSE(sums_all(reduce_max_op, DType::f32, {0, 1}));
}

TEST(CudaTasks, ElementsAreDividedIntoRangesOfRows) {
  const GpuTask task = task_for(add_op, {{DType::f32, {128, 10}}, {DType::f32, {128, 10}}}, {});
  const TaskTraits traits = traits_of(task, kH200);
  EXPECT_EQ(traits.ranges.most, 128);
  EXPECT_EQ(traits.ranges.own, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(traits.can_be_inlined);
  const std::optional<CudaStep> flat = step_of_task(task), ranges = step_in(task, TaskDivision::ranges, 16),
                                warps = step_in(task, TaskDivision::warps, 128);
  ASSERT_TRUE(flat && ranges && warps);
  EXPECT_EQ(flat->elements, 1280);
  EXPECT_EQ(flat->in_place, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(ranges->blocks, 16);
  EXPECT_EQ(ranges->elements, 0);
  EXPECT_TRUE(has_text(ranges->body, "(block + 1) * 80u")) << ranges->body;
  EXPECT_TRUE(has_text(warps->body, "threadIdx.x % 32u")) << warps->body;
  EXPECT_FALSE(step_in(task, TaskDivision::ranges, 3));
}

// images[indices + 1]: the source of the rows computes the indices.
TEST(CudaTasks, ASourceOfRowsComputesItsIndices) {
  const Type index{DType::i32, {128}};
  GpuTask gather =
      task_for(gather_op, {{DType::u8, {60000, 784}}, index}, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}});
  ASSERT_TRUE(traits_of(gather, kH200).can_be_inlined);
  const std::optional<CudaSource> read = source_of(gather, kH200);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->operands, (std::vector<size_t>{0, 1}));

  gather.producers.push_back({.operand = 1, .task = task_for(add_op, {index, index}, {}, 10)});
  gather.producers[0].task.out[0] = gather.in[1];
  const std::optional<CudaSource> computed = source_of(gather, kH200);
  ASSERT_TRUE(computed);
  EXPECT_EQ(computed->operands, (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(computed->types, (std::vector<std::string>{"const uint8_t*", "const int32_t*", "const int32_t*"}));
  EXPECT_TRUE(has_text(computed->body, "(in2, in3)(i / 784u, y);")) << computed->body;
  EXPECT_FALSE(step_of_task(gather)) << "a row that is not a product reads its operands";
  EXPECT_EQ(operands(gather).size(), 4u);

  // Of scaled images, the rows are the computed operand. Its own operands follow those of the row.
  GpuTask scaled = task_for(neg_op, {{DType::u8, {128, 784}}}, {}, 20);
  scaled.producers.push_back({.operand = 0, .task = gather});
  const std::optional<CudaSource> both = source_of(scaled, kH200);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->operands, (std::vector<size_t>{1, 3, 4}));
  CudaStep step;
  step.prelude = "#include \"elementwise.cuh\"\nusing namespace lockstep;\n";
  step.parameters = "const uint8_t* in1, const int32_t* in3, const int32_t* in4, uint8_t* out";
  step.body = "  const auto source = " + both->text() + both->applied([](size_t k) { return fmt::format("in{}", k); }) +
              ";\n  uint8_t x[4];\n  source(4 * threadIdx.x, x);\n  out[threadIdx.x] = x[0] + x[3];\n";
  expect_step_compiles(step);
}

TEST(CudaTasks, AnIndexThatIsItselfComputedFromSourcesIsRead) {
  const Type index{DType::i32, {128}};
  GpuTask gather =
      task_for(gather_op, {{DType::f32, {1000, 64}}, index}, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}});
  GpuTask outer = task_for(neg_op, {index}, {}, 10);
  outer.producers.push_back({.operand = 0, .task = task_for(neg_op, {index}, {}, 20)});
  ASSERT_TRUE(source_of(outer, kH200));
  gather.producers.push_back({.operand = 1, .task = outer});
  EXPECT_FALSE(source_of(gather, kH200));
}

TEST(CudaTasks, OnlyCompleteRowsAreSources) {
  const Attrs columns{{"axis", int64_t{1}}, {"batch_dims", int64_t{0}}};
  const GpuTask gather = task_for(gather_op, {{DType::f32, {10, 64}}, {DType::i32, {5}}}, columns);
  EXPECT_FALSE(traits_of(gather, kH200).can_be_inlined);
  EXPECT_FALSE(source_of(gather, kH200));
}

TEST(CudaTasks, EmptyResultsHaveNoStep) {
  EXPECT_FALSE(step_of_task(task_for(neg_op, {{DType::f32, {0, 3}}}, {})));
  EXPECT_FALSE(step_of_task(sum_of({DType::f32, {3, 0}}, {0})));
  EXPECT_FALSE(step_of_task(task_for(argmax_op, {{DType::f32, {0, 3}}}, {{"axis", int64_t{1}}})));
  EXPECT_FALSE(step_of_task(task_for(iota_op, {}, {{"dtype", DType::i32}, {"shape", Shape{0}}, {"dim", int64_t{0}}})));
}

TEST(CudaTasks, LargeArraysAreCountedIn64Bits) {
  constexpr int64_t kLarge = (int64_t{1} << 32) + 10;
  const Type x{DType::u8, {kLarge}}, few{DType::u8, {3}}, one{DType::u8, {}}, start{DType::i64, {}};
  const Type index{DType::i64, {3}};
  const Attrs along{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}};
  const std::vector<GpuTask> all = {
      task_for(full_op, {}, {{"dtype", DType::u8}, {"shape", Shape{kLarge}}, {"value", int64_t{1}}}),
      task_for(iota_op, {}, {{"dtype", DType::u8}, {"shape", Shape{kLarge}}, {"dim", int64_t{0}}}),
      task_for(add_op, {x, x}, {}),
      task_for(reverse_op, {x}, {{"axes", Shape{0}}}),
      task_for(scatter_add_op, {x, index, few}, along),
      task_for(concatenate_op, {x, few}, {{"axis", int64_t{0}}}),
      task_for(pad_op, {x, one}, {{"lo", Shape{1}}, {"hi", Shape{3}}, {"interior", Shape{0}}}),
      task_for(update_slice_op, {x, few, start}, {{"batch_dims", int64_t{0}}}),
  };
  for (const GpuTask& task : all) {
    SCOPED_TRACE(task.op->name);
    const std::optional<CudaStep> step = step_of_task(task);
    ASSERT_TRUE(step);
    EXPECT_TRUE(has_text(step->body, "uint64_t first = uint64_t(block)")) << step->body;
    expect_step_compiles(*step);
  }
  // Few results from anywhere.
  for (const GpuTask& task :
       {task_for(gather_op, {x, index}, along),
        task_for(argmin_op, {{DType::u8, {2, INT32_MAX}}}, {{"axis", int64_t{1}}}),
        task_for(dynamic_slice_op, {x, start}, {{"sizes", Shape{3}}, {"batch_dims", int64_t{0}}}),
        task_for(slice_op, {x}, {{"starts", Shape{5}}, {"limits", Shape{kLarge}}, {"strides", Shape{1 << 30}}}),
        task_for(reduce_max_op, {x}, {{"axes", Shape{0}}})}) {
    SCOPED_TRACE(task.op->name);
    const std::optional<CudaStep> step = step_of_task(task);
    ASSERT_TRUE(step);
    EXPECT_TRUE(has_text(step->body, "int64_t")) << step->body;
    expect_step_compiles(*step);
  }
}

TEST(CudaTasks, StepsOfAllDivisionsCompile) {
  if (!has_task_compiler()) GTEST_SKIP() << "the CUDA compiler (NVRTC) is not available";
  const Type x{DType::f16, {8, 6}}, index{DType::i32, {4}}, start{DType::i32, {}};
  const Attrs along{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}};
  const std::vector<GpuTask> tasks = {
      task_for(full_op, {}, {{"dtype", DType::f32}, {"shape", Shape{8, 6}}, {"value", 1.5}}),
      task_for(iota_op, {}, {{"dtype", DType::f32}, {"shape", Shape{8, 6}}, {"dim", int64_t{1}}}),
      task_for(gather_op, {x, index}, along),
      task_for(scatter_add_op, {x, index, {DType::f16, {4, 6}}}, along),
      task_for(concatenate_op, {x, x}, {{"axis", int64_t{1}}}),
      task_for(pad_op, {x, {DType::f16, {}}}, {{"lo", Shape{1, 0}}, {"hi", Shape{3, 2}}, {"interior", Shape{0, 1}}}),
      task_for(dynamic_slice_op, {x, start, start}, {{"sizes", Shape{4, 2}}, {"batch_dims", int64_t{0}}}),
      task_for(update_slice_op, {x, {DType::f16, {4, 2}}, start, start}, {{"batch_dims", int64_t{0}}}),
      task_for(reduce_max_op, {x}, {{"axes", Shape{1}}}),
      task_for(argmin_op, {x}, {{"axis", int64_t{1}}}),
      task_for(random_bits_op, {{DType::u32, {2}}}, {{"shape", Shape{8}}}),
      task_for(random_bits_op, {{DType::u32, {4}}}, {{"shape", Shape{9}}}),
      task_for(random_bits_op, {{DType::u32, {3, 4}}}, {{"shape", Shape{5}}}),
  };
  for (const GpuTask& task : tasks) {
    SCOPED_TRACE(task.op->name);
    const std::optional<CudaStep> flat = step_of_task(task);
    ASSERT_TRUE(flat);
    EXPECT_EQ(parameters_of(*flat).size(), flat->arguments.size());
    expect_step_compiles(*flat);
    const TaskTraits::Ranges ranges = traits_of(task, kH200).ranges;
    EXPECT_EQ(ranges.most > 0, task.op != &argmin_op && task.op != &random_bits_op);
    if (ranges.most == 0) continue;
    for (const TaskDivision division : {TaskDivision::ranges, TaskDivision::warps}) {
      const std::optional<CudaStep> step = step_in(task, division, ranges.most);
      ASSERT_TRUE(step);
      EXPECT_EQ(step->blocks, ranges.most);
      expect_step_compiles(*step);
    }
  }
}

}  // namespace
}  // namespace lockstep
#endif
