// A product on the GPU merged with the chain that needs its complete rows: when it is, its text, and equal results.
// Only the last test needs a GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/row_product_text.h"
#include "ops/cuda/share_text.h"
#include "ops/cuda/text.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "plan/cuda/cuda_plan.h"
#include "plan/cuda/whole_kernel.h"
#include "rows/on_gpu.h"
#include "support/brief.h"

namespace lockstep::detail {
namespace {

MemoryRange at(int64_t space, const Type& type) { return {space, 0, type.bytes()}; }

// The end of a network: a layer of 128 x `width`, `classes` sums of each row, their maximum, the differences to it, and
// the gradient of the layer.
struct Network {
  DType dtype = DType::f32;
  int64_t width = 1024, classes = 10, deep = 512;
  int processors = 132;
  std::deque<SteppedKernel> kernels = {}, made = {};
  std::vector<KernelPart> parts = {};
  size_t operands = 0, results = 0;

  Type layer() const { return {dtype, {128, width}}; }
  Type sums() const { return {dtype, {128, classes}}; }
  Type weights() const { return {dtype, {width, classes}}; }

  void add(const SteppedKernel& kernel, std::vector<MemoryRange> in, std::vector<MemoryRange> out) {
    parts.push_back({&kernels.emplace_back(kernel), std::move(in), std::move(out)});
    for (size_t i = 0; i < parts.back().in.size(); ++i) parts.back().operands.push_back(operands++);
    for (size_t i = 0; i < parts.back().out.size(); ++i) parts.back().results.push_back(results++);
  }

  CudaStep finished(const GemmStep& product, const Program& body) const {
    CudaStep step;
    step.name = "product";
    step.parameters = fmt::format("const {}* a, const {}* b", memory_type(dtype), memory_type(dtype));
    step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::operand, 1}};
    step.operations = 1e6;
    EXPECT_TRUE(add_finish(step, product, body, 2));
    return step;
  }

  void add_layer() {
    Builder b;
    const Program body = b.take(Values{tanh(b.input(layer()))});
    const GemmSpec g{.dtype = dtype, .m = 128, .n = width, .k = deep};
    const auto make = [this, g, body](int n, int64_t exchanged = 0) {
      const GemmStep product = *gemm_step(g, n, 220 << 10, {}, exchanged);
      std::vector<BufferPtr> own(product.partial_bytes > 0 ? 1 : 0);
      return SteppedKernel(nullptr, {finished(product, body)}, own);
    };
    const SteppedKernel all = make(processors);
    add(SteppedKernel(
            nullptr, all.steps(), all.memory(),
            {.remake = [make](int n) { return make(n); },
             .with_exchange = [this, make](int64_t exchanged) { return std::optional(make(processors, exchanged)); }}),
        {at(0, {dtype, {128, deep}}), at(1, {dtype, {deep, width}})}, {at(2, layer())});
  }

  // Times `other` of the third operand: the layer itself, or a bias.
  void add_small_product(bool back, std::vector<MemoryRange> in, std::vector<MemoryRange> out,
                         const std::function<Value(Builder&)>& other = {}) {
    const Type result = back ? layer() : sums();
    Builder b;
    Value y = b.input(result);
    if (in.size() > 2 && other)
      y = y * other(b);
    else if (in.size() > 2)
      y = y * (back ? b.input(layer()) : broadcast(b.input({dtype, {classes}}), result.shape, {1}));
    const Program body = b.take(Values{y});
    const GemmSpec g{
        .dtype = dtype, .m = 128, .n = back ? width : classes, .k = back ? classes : width, .transpose_b = back};
    ASSERT_TRUE(row_product(g));
    const CudaSpread::Kind kind = spread_kind(g);
    std::vector<size_t> in_place;
    for (size_t i : in_place_inputs(body))
      if (i > 0) in_place.push_back(i + 1);
    const auto spread = std::make_shared<const CudaSpread>(
        CudaSpread{.kind = kind,
                   .rows = 0,
                   .by = 1,
                   .few = classes,
                   .width = width,
                   .row_type = memory_type(dtype),
                   .by_type = memory_type(dtype),
                   .in_place = in_place,
                   .step =
                       [this, g, kind, body](int64_t cols) {
                         return finished(
                             kind == CudaSpread::sums ? shared_sums_step(g, cols) : shared_columns_step(g, cols), body);
                       },
                   .publish = [g](int64_t cols) { return shared_sums_publish(g, cols); }});
    CudaRanges ranges{.most = 128, .least = 32, .own = {0}, .step = [this, g, body](int64_t count) {
                        return finished(row_product_step(g, count), body);
                      }};
    for (size_t i = 2; back && i < in.size(); ++i) ranges.own.push_back(i);
    add(SteppedKernel(nullptr, {finished(row_product_step(g, 128), body)}, {}, {.ranges = ranges, .spread = spread}),
        std::move(in), std::move(out));
  }

  void add_row(const Op& op, const std::vector<Type>& types, const Attrs& attrs, std::vector<MemoryRange> in,
               std::vector<MemoryRange> out) {
    Pool pool({.threads = 1});
    const std::vector<Type> result = infer_types(op, types, attrs);
    const KernelSpec spec{.in = types, .out = result, .attrs = attrs, .pool = pool, .alias = {}};
    add(*(op.cuda ? op.cuda(spec) : elementwise_cuda(op, spec)).target<SteppedKernel>(), std::move(in), std::move(out));
  }

  // Sums of spaces 2 and 3 to 4, with a bias in 5; the maximum to 6; the differences to 4; the gradient to 7.
  void add_chain(const MemoryRange& back_to) {
    add_small_product(false, {at(2, layer()), at(3, weights()), at(5, {dtype, {classes}})}, {at(4, sums())});
    add_row(reduce_max_op, {sums()}, {{"axes", std::vector<int64_t>{1}}}, {at(4, sums())}, {at(6, {dtype, {128}})});
    add_row(mul_op, {sums(), sums()}, {}, {at(4, sums()), at(8, sums())}, {at(4, sums())});
    add_small_product(true, {at(4, sums()), at(3, weights()), at(2, layer())}, {back_to});
  }
};

TEST(WholeSpread, ChainIsMergedWithTheProductBeforeIt) {
  Network n;
  n.add_layer();
  n.add_chain(at(7, n.layer()));
  const std::vector<KernelPart> all = merge_ranges(n.parts, n.processors, n.made);
  ASSERT_EQ(all.size(), 1u);
  const CudaStep& step = all[0].kernel->steps()[0];
  EXPECT_EQ(step.name, "product product reduce elementwise product");
  EXPECT_TRUE(step.cooperative && step.counted);
  EXPECT_EQ(step.blocks, n.parts[0].kernel->steps()[0].blocks);
  EXPECT_EQ(all[0].in.size(), 2u + 3 + 1 + 2 + 3);
  // The prefetched operands are those of the product, and the others that the chain reads.
  ASSERT_EQ(step.early.size(), 5u);
  for (const auto& [k, operand] : {std::pair<size_t, size_t>{2, 3}, {3, 4}, {4, 7}})
    EXPECT_EQ(step.early[k].operands, std::vector<size_t>{operand});
  // Both products read the same rows of the weights once, and the bias is prefetched.
  const auto count = [&](const std::string& what) {
    size_t found = 0;
    for (size_t i = step.body.find(what); i != std::string::npos; i = step.body.find(what, i + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("copy_async<16>"), 2u) << step.body;  // the rows of the weights and of space 8
  EXPECT_EQ(count("copy_async<4>"), 1u) << step.body;
  // Values that every block has are written by one.
  EXPECT_EQ(count("if (place == 0u)"), 2u) << step.body;
}

TEST(WholeSpread, UnfinishedOperandsPreventTheMerge) {
  Network n;
  n.add_layer();
  // An operand of the chain that is computed in the same phase as the product.
  Builder b;
  n.add(SteppedKernel(nullptr, {n.finished(*gemm_step({.m = 128, .n = 10, .k = 512}, 132, 220 << 10),
                                           b.take(Values{b.input(n.sums())}))}),
        {at(0, {DType::f32, {128, 512}}), at(9, {DType::f32, {512, 10}})}, {at(8, n.sums())});
  n.add_chain(at(7, n.layer()));
  EXPECT_EQ(merge_ranges(n.parts, n.processors, n.made).size(), 3u);
}

TEST(WholeSpread, NoBlockWritesWhatAnotherReads) {
  // Overwriting the layer itself, the product's operand, or what the chain reads.
  for (const int64_t space : {2, 0, 3, 8}) {
    Network n{.deep = 1024};
    n.add_layer();
    n.add_chain(at(space, n.layer()));
    EXPECT_NE(merge_ranges(n.parts, n.processors, n.made).size(), 1u) << space;
  }
}

TEST(WholeSpread, OldValuesAreReadBeforeTheyAreOverwritten) {
  Network n;
  n.add_layer();
  n.add_small_product(false, {at(2, n.layer()), at(3, n.weights()), at(5, {DType::f32, {10}})}, {at(4, n.sums())});
  // Overwriting an operand that is only read here, and one of the exchanged sums.
  n.add_row(mul_op, {n.sums(), n.sums()}, {}, {at(4, n.sums()), at(8, n.sums())}, {at(8, n.sums())});
  n.add_small_product(true, {at(8, n.sums()), at(3, n.weights()), at(2, n.layer())}, {at(7, n.layer())});
  const std::vector<KernelPart> all = merge_ranges(n.parts, n.processors, n.made);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NE(all[0].kernel->steps()[0].body.find("copy_async<16>"), std::string::npos);
  // But not before the blocks have exchanged their partial sums: until then a block may still read it.
  Network other;
  other.add_layer();
  other.add_row(mul_op, {n.sums(), n.sums()}, {}, {at(8, n.sums()), at(8, n.sums())}, {at(8, n.sums())});
  other.add_small_product(false, {at(2, n.layer()), at(3, n.weights()), at(5, {DType::f32, {10}})}, {at(4, n.sums())});
  other.add_small_product(true, {at(8, n.sums()), at(3, n.weights()), at(2, n.layer())}, {at(7, n.layer())});
  const std::optional<KernelPart> none =
      spread_rows(other.parts[0], std::span(other.parts).subspan(1), other.processors, other.made);
  EXPECT_FALSE(none);
}

TEST(WholeSpread, OnlyTheColumnsOfABlockAreReadFromItsTile) {
  const auto parts = [](Network& n, int64_t rows, const std::function<Value(Builder&)>& other) {
    n.add_layer();
    n.add_small_product(false, {at(2, n.layer()), at(3, n.weights()), at(5, {DType::f32, {n.classes}})},
                        {at(4, n.sums())});
    n.add_small_product(true, {at(rows, rows == 2 ? n.layer() : n.sums()), at(9, n.weights()), at(2, n.layer())},
                        {at(7, n.layer())}, other);
    return merge_ranges(n.parts, n.processors, n.made).size();
  };
  Network same, first, rows{.width = 32, .classes = 32};
  EXPECT_EQ(parts(same, 4, {}), 1u);
  // The first column of each row, which other blocks have; and all columns.
  EXPECT_NE(parts(first, 4,
                  [&](Builder& b) {
                    const Value column = slice(b.input(first.layer()), {0, 0}, {128, 1}, {1, 1});
                    return broadcast(reshape(column, {128}), first.layer().shape, {0});
                  }),
            1u);
  EXPECT_NE(parts(rows, 2, {}), 1u);
}

TEST(WholeSpread, OperandsOfColumnsAreNotOverwrittenByOthers) {
  const Type each{DType::f32, {128}};
  for (const bool over : {false, true}) {
    Network n;
    n.add_layer();
    n.add_small_product(false, {at(2, n.layer()), at(3, n.weights()), at(5, {DType::f32, {10}})}, {at(4, n.sums())});
    n.add_row(reduce_max_op, {n.sums()}, {{"axes", std::vector<int64_t>{1}}}, {at(4, n.sums())}, {at(6, each)});
    n.add_small_product(true, {at(4, n.sums()), at(3, n.weights()), at(10, each)}, {at(7, n.layer())},
                        [&](Builder& b) { return broadcast(b.input(each), n.layer().shape, {0}); });
    n.add_row(mul_op, {each, each}, {}, {at(10, each), at(6, each)}, {at(over ? 10 : 11, each)});
    EXPECT_EQ(merge_ranges(n.parts, n.processors, n.made).size() == 1, !over);
  }
}

TEST(WholeSpread, BlocksThatWaitForEachOtherAreCoResident) {
  Network n;
  n.add_layer();
  n.add_chain(at(7, n.layer()));
  const std::vector<KernelPart> all = merge_ranges(n.parts, n.processors, n.made);
  ASSERT_EQ(all.size(), 1u);
  for (const int processors : {132, 100, 64, 33, 5}) {
    const SteppedKernel fewer = all[0].kernel->on(processors);
    EXPECT_LE(fewer.steps()[0].blocks, 132);
    EXPECT_EQ(fewer.steps()[0].name, all[0].kernel->steps()[0].name);
    EXPECT_EQ(fewer.steps()[0].arguments.size(), all[0].kernel->steps()[0].arguments.size());
  }
}

TEST(WholeSpread, TextsCompile) {
  struct Case {
    DType dtype;
    int64_t width, classes, deep;
    const char* architecture;
  };
  for (const Case& c : {Case{DType::f32, 1024, 10, 1024, "sm_90"}, Case{DType::bf16, 1024, 10, 1024, "sm_90"},
                        Case{DType::f32, 128, 10, 256, "sm_80"}, Case{DType::f16, 256, 32, 128, "sm_90"},
                        Case{DType::f32, 512, 1, 512, "sm_90"}}) {
    SCOPED_TRACE(fmt::format("{} columns to {}, {}", c.width, c.classes, name(c.dtype)));
    Network n{.dtype = c.dtype, .width = c.width, .classes = c.classes, .deep = c.deep};
    n.add_layer();
    n.add_chain(at(7, n.layer()));
    const std::vector<KernelPart> all = merge_ranges(n.parts, n.processors, n.made);
    ASSERT_EQ(all.size(), 1u);
    const std::string text = persistent_kernel_text(all, phases_of(all));
    EXPECT_NE(text.find("uint32_t(all_came) + 1u"), std::string::npos);
    try {
      EXPECT_FALSE(compile_cuda(text, kernel_headers(), c.architecture).empty());
    } catch (const Error& e) {
      if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
      FAIL() << e.what();
    }
  }
}

// A layer, the loss and the gradients of both, on integers small enough for exact sums and products.
Program end_of_a_network(DType dtype, int64_t rows, int64_t deep, int64_t width, int64_t classes) {
  Builder b;
  const Value x = b.input({dtype, {rows, deep}}), first = b.input({dtype, {deep, width}});
  const Value weights = b.input({dtype, {width, classes}}), bias = b.input({dtype, {classes}});
  const auto between = [&](Value v, double low, double high) {
    return maximum(minimum(v, full(b, v.type(), high)), full(b, v.type(), low));
  };
  const auto as_floats = [&](Value v) { return dtype == DType::f32 ? v : cast(v, DType::f32); };
  const Value before = einsum("mk,kn->mn", x, first), none = full(b, before.type(), 0);
  const Value is_on = gt(before, none);
  const Value layer = select(is_on, between(before, 0, 2), none);
  const Value sums = between(einsum("mk,kn->mn", layer, weights) + broadcast(bias, {rows, classes}, {1}), -60, 60);
  const Value most = reduce_max(sums, {1});
  const Value below = between(sums - broadcast(most, {rows, classes}, {0}), -2, 0);
  const Value loss = reduce_sum(below, {1}) * (most + cast(b.input({DType::i32, {rows}}), dtype));
  const Value back = select(is_on, einsum("mk,nk->mn", below, weights), none);
  return b.take(Values{most, loss, reduce_sum(as_floats(loss), {0}), back,
                       einsum("mk,mn->kn", as_floats(layer), as_floats(below)),
                       einsum("mk,mn->kn", x, between(back, -2, 2))});
}

TEST(WholeSpread, OnGpuResultsEqualTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261117);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, deep, width, classes] : {std::tuple<int64_t, int64_t, int64_t, int64_t>{128, 256, 1024, 10},
                                                     {128, 256, 128, 10},
                                                     {64, 512, 512, 32},
                                                     {128, 1024, 256, 1},
                                                     {96, 128, 320, 7}}) {
      SCOPED_TRACE(fmt::format("{} rows of {} to {} to {}, {}", rows, deep, width, classes, name(dtype)));
      const Program program = fuse(end_of_a_network(dtype, rows, deep, width, classes));
      CudaStream& lane = CudaStream::local();
      if (classes > 1 && lane.info().processors >= 128) {
        const std::string text = compile(program, test_pool(), lane)->describe();
        EXPECT_NE(text.find(" in 2 phases"), std::string::npos) << text;
      }
      for (int round = 0; round < brief(3, 1); ++round) expect_same_on_gpu(program, random);
    }
}

}  // namespace
}  // namespace lockstep::detail
#endif
