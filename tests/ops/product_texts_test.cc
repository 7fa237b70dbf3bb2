// Kernel texts of products that compute or round operands: they compile. No GPU is needed.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/row_product_text.h"
#include "ops/cuda/task.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int kProductProcessors = 132;
constexpr int64_t kSharedBytes = 220 << 10;

// Compiles the step as a kernel of its own. Returns false if the compiler is not installed.
bool expect_compiles(const CudaStep& step, const char* architecture) {
  try {
    EXPECT_FALSE(compile_quickly(text_of(step), architecture).empty());
  } catch (const Error& e) {
    if (std::string(e.what()).find("cannot load") != std::string::npos) return false;
    ADD_FAILURE() << e.what();
  }
  return true;
}

// A step with parameters `a` and `b`, followed by the product without an epilogue.
CudaStep plain_product(const GemmStep& product, CudaStep step, const Type& result) {
  Builder identity;
  EXPECT_TRUE(add_finish(step, product, identity.take(Values{identity.input(result)}), step.arguments.size()));
  return step;
}
CudaStep with_matrices(const std::string& a, const std::string& b) {
  CudaStep step;
  step.parameters = fmt::format("const {}* a, const {}* b", a, b);
  for (size_t k = 0; k < 2; ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
  return step;
}

// A task whose values have types only.
GpuTask row_of(const Op& op, Attrs attrs, const std::vector<Type>& in, const Type& out) {
  GpuTask task;
  task.op = &op;
  task.attrs = std::move(attrs);
  for (const Type& type : in) task.in.push_back({.type = type});
  task.out.push_back({.type = out});
  return task;
}

// Gathered and scaled rows, as `a` or `b` of a product.
TEST(ProductTexts, WithComputedRowsCompile) {
  struct Case {
    DType dtype;
    GemmSpec gemm;
    bool is_b;
    const char* architecture;
  };
  int possible = 0;
  for (const Case& c : {Case{DType::f32, {.m = 128, .n = 1024, .k = 784}, false, "sm_90"},
                        Case{DType::f32, {.m = 784, .n = 256, .k = 128, .transpose_a = true}, false, "sm_90"},
                        Case{DType::bf16, {.m = 128, .n = 256, .k = 784}, false, "sm_80"},
                        Case{DType::f16, {.m = 784, .n = 1024, .k = 128, .transpose_a = true}, false, "sm_90"},
                        Case{DType::f32, {.m = 256, .n = 784, .k = 128, .transpose_a = true}, true, "sm_80"},
                        Case{DType::bf16, {.m = 64, .n = 100, .k = 784, .transpose_b = true}, true, "sm_90"}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}, {}", c.gemm.m, c.gemm.n, c.gemm.k, name(c.dtype)));
    GemmSpec g = c.gemm;
    g.dtype = c.dtype;
    const int64_t rows = c.is_b ? (g.transpose_b ? g.n : g.k) : (g.transpose_a ? g.k : g.m), cols = 784;
    const Type table{DType::u8, {1000, cols}}, index{DType::i32, {rows}}, chosen{DType::u8, {rows, cols}};
    const GpuTarget target;
    // At indices that are read, or computed.
    GpuTask gather = row_of(gather_op, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}}, {table, index}, chosen);
    const std::optional<CudaSource> at_read = source_of(gather, target);
    ASSERT_TRUE(at_read);
    EXPECT_EQ(at_read->operands, (std::vector<size_t>{0, 1}));
    gather.producers.push_back({1, row_of(neg_op, {}, {index}, index)});
    const std::optional<CudaSource> at_computed = source_of(gather, target);
    ASSERT_TRUE(at_computed);
    EXPECT_EQ(at_computed->operands, (std::vector<size_t>{0, 2}));
    EXPECT_EQ(at_computed->bytes, 1);
    Builder b;
    const Value x = cast(b.input(chosen), c.dtype);
    const std::optional<CudaSource> source =
        elementwise_source(b.take(Values{x * full(b, x.type(), 0.5)}),
                           {{.operand = 0, .source = c.is_b ? *at_computed : *at_read, .first = 1}});
    ASSERT_TRUE(source);
    EXPECT_EQ(source->operands, (std::vector<size_t>{1, c.is_b ? size_t{3} : 2}));
    EXPECT_EQ(source->bytes, 1);
    const std::optional<GemmStep> product = gemm_step(
        g, kProductProcessors, kSharedBytes,
        {c.is_b ? GemmOperand::read : GemmOperand::computed, c.is_b ? GemmOperand::computed : GemmOperand::read});
    if (!product) {  // no registers left
      EXPECT_TRUE(gemm_step(g, kProductProcessors, kSharedBytes)->register_bound);
      continue;
    }
    ++possible;
    CudaStep step;
    const char *own = c.is_b ? "b" : "a", *other = c.is_b ? "a" : "b";
    step.parameters = fmt::format("const {}* {}, {} p1, {} p{}", memory_type(c.dtype), other, source->types[0],
                                  source->types[1], source->operands[1]);
    for (size_t k = 0; k < 3; ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
    step.body = fmt::format("  const auto {} = {}{};\n", own, source->text(),
                            source->applied([](size_t k) { return fmt::format("p{}", k); }));
    if (!expect_compiles(plain_product(*product, step, {c.dtype, {g.m, g.n}}), c.architecture))
      GTEST_SKIP() << "the compiler of kernels cannot be loaded";
  }
  EXPECT_EQ(possible, 4);
}

// A number is no producer: it has no operands.
TEST(ProductTexts, NumbersAreNotComputed) {
  Builder b;
  EXPECT_FALSE(elementwise_source(b.take(Values{full(b, {DType::i32, {128}}, 3)}), {}));
}

TEST(ProductTexts, OnlyCastsTo16BitsAreRounded) {
  const auto rounds = [](auto&& of) {
    Builder b;
    const Value x = b.input({DType::f32, {8, 4}});
    const std::optional<CudaSource> source = elementwise_source(b.take(Values{of(x)}), {});
    return source && source->rounded;
  };
  EXPECT_TRUE(rounds([](const Value& x) { return cast(x, DType::bf16); }));
  EXPECT_TRUE(rounds([](const Value& x) { return cast(x, DType::f16); }));
  EXPECT_FALSE(rounds([](const Value& x) { return cast(x, DType::f64); }));
  EXPECT_FALSE(rounds([](const Value& x) { return x; }));
  EXPECT_FALSE(rounds([](const Value& x) { return cast(x + x, DType::bf16); }));
  EXPECT_FALSE(rounds([](const Value& x) { return cast(transpose(x, {1, 0}), DType::bf16); }));
  EXPECT_FALSE(rounds([](const Value& x) { return cast(cast(x, DType::f16), DType::bf16); }));
}

TEST(ProductTexts, F32ProductsDoNotRound) {
  const GemmSpec g{.dtype = DType::f32, .m = 64, .n = 64, .k = 64};
  EXPECT_TRUE(gemm_step(g, kProductProcessors, kSharedBytes));
  EXPECT_FALSE(gemm_step(g, kProductProcessors, kSharedBytes, {.b = GemmOperand::rounded}));
}

// Tiles of all sizes and every transposition, with either operand and both rounded. In one shape rows are not aligned to
// 16 bytes.
TEST(ProductTexts, WithRoundedMatricesCompile) {
  struct Shape3 {
    int64_t m, n, k;
  };
  int at = 0;
  for (const Shape3& shape :
       {Shape3{128, 1024, 784}, {1024, 1024, 128}, {2048, 1024, 64}, {128, 256, 784}, {50, 66, 34}})
    for (int way = 0; way < 12; ++way) {
      const bool ta = way % 2 != 0, tb = way / 2 % 2 != 0, round_a = way / 4 != 0, round_b = way / 4 != 1;
      SCOPED_TRACE(fmt::format("{} x {} x {}, way {}", shape.m, shape.n, shape.k, way));
      ++at;
      const DType dtype = (at + at / 12) % 2 == 0 ? DType::bf16 : DType::f16;
      const auto how = [](bool rounded) { return rounded ? GemmOperand::rounded : GemmOperand::read; };
      const auto type = [&](bool rounded) { return rounded ? "float" : memory_type(dtype); };
      const std::optional<GemmStep> product = gemm_step(
          {.dtype = dtype, .m = shape.m, .n = shape.n, .k = shape.k, .transpose_a = ta, .transpose_b = tb},
          at % 3 == 0 ? kProductProcessors / 2 : kProductProcessors, kSharedBytes, {how(round_a), how(round_b)});
      ASSERT_TRUE(product);
      EXPECT_LE(product->shared_bytes, kSharedBytes);
      if (!expect_compiles(
              plain_product(*product, with_matrices(type(round_a), type(round_b)), {dtype, {shape.m, shape.n}}),
              at % 5 == 0 ? "sm_80" : "sm_90"))
        GTEST_SKIP() << "the compiler of kernels cannot be loaded";
    }
}

// A bias that is added: its index is not that of the element.
TEST(ProductTexts, WithRoundedBiasCompile) {
  Builder of_bias;
  const std::optional<CudaSource> bias =
      elementwise_source(of_bias.take(Values{cast(of_bias.input({DType::f32, {64}}), DType::bf16)}), {});
  ASSERT_TRUE(bias && bias->rounded && !bias->one.empty());
  Builder b;
  const Value x = b.input({DType::bf16, {128, 64}}), v = b.input({DType::bf16, {64}}), z = b.input(x.type());
  const Program body = b.take(Values{x + broadcast(v, {128, 64}, {1}) + z});
  const std::optional<GemmStep> product = gemm_step({.dtype = DType::bf16, .m = 128, .n = 64, .k = 32},
                                                    kProductProcessors, kSharedBytes, {.b = GemmOperand::rounded});
  ASSERT_TRUE(product);
  CudaStep step = with_matrices("bf16", "float");
  step.arguments[1].index = 4;
  ASSERT_TRUE(add_finish(step, *product, body, 2, {{.operand = 2, .source = *bias, .first = 5}}));
  EXPECT_EQ(step.parameters, "const bf16* a, const float* b, const float* in1_0, const bf16* in2, bf16* out0");
  EXPECT_EQ(step.arguments[2].index, 5u);
  EXPECT_EQ(step.arguments[3].index, 3u);
  if (!expect_compiles(step, "sm_90")) GTEST_SKIP() << "the compiler of kernels cannot be loaded";
}

TEST(ProductTexts, OfRowsWithRoundedMatrixCompile) {
  for (const bool tb : {false, true})
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const GemmSpec g{.dtype = dtype, .m = 128, .n = tb ? 1024 : 10, .k = tb ? 10 : 1024, .transpose_b = tb};
      if (!expect_compiles(plain_product(row_product_step(g, 128, true), with_matrices(memory_type(dtype), "float"),
                                         {dtype, {g.m, g.n}}),
                           tb ? "sm_80" : "sm_90"))
        GTEST_SKIP() << "the compiler of kernels cannot be loaded";
    }
}

TEST(ProductTexts, EpiloguesOnOtherElementsAreRejected) {
  const std::optional<GemmStep> product = gemm_step({.m = 8, .n = 8, .k = 8}, kProductProcessors, 160 << 10);
  ASSERT_TRUE(product);
  Builder b;
  const Value x = b.input({DType::f32, {8, 8}});
  const Program body = b.take(Values{b.emit(add_op, Values{x, transpose(x, {1, 0})}, {})[0]});
  CudaStep step;
  EXPECT_FALSE(add_finish(step, *product, body, 2));
  EXPECT_TRUE(step.body.empty());
}

}  // namespace
}  // namespace lockstep
#endif
