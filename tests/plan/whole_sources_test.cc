// Producers that are merged into the parts that read them, in a persistent kernel: which are, and kernel texts that
// compile. Only the last tests need a GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/control.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
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

// Parts named 0, 1, 2, ...
struct Sourced {
  std::deque<SteppedKernel> kernels, made;
  std::vector<KernelPart> parts;

  void add(SteppedWays ways, const Stretches& in, const Stretches& out, bool is_needed) {
    CudaStep step;
    step.name = std::to_string(parts.size());
    step.blocks = 100;
    step.arguments.resize(in.size() + out.size());
    KernelPart part{
        &kernels.emplace_back(nullptr, std::vector{step}, std::vector<BufferPtr>(), std::move(ways)), {}, {}};
    for (const auto& [begin, end] : in) part.in.push_back({0, begin, end});
    for (const auto& [begin, end] : out) part.out.push_back({0, begin, end});
    for (size_t i = 0; i < in.size(); ++i) part.operands.push_back(parts.size() * 10 + i);
    for (size_t i = 0; i < out.size(); ++i) part.results.push_back(parts.size() * 10 + i);
    part.needed = is_needed;
    parts.push_back(std::move(part));
  }
  // Adds a part that readers can compute themselves.
  void source(const Stretches& in, const Stretches& out, int equations = 0, bool is_needed = false) {
    const std::string name = std::to_string(parts.size());
    add({.source =
             [=](const std::vector<CudaSourced>& given) {
               CudaSource made_of;
               made_of.body = name;
               made_of.result_bytes = 4;
               made_of.bytes = 1;
               made_of.equations = equations;
               for (const CudaSourced& each : given)
                 made_of.body += fmt::format("({}: {} from {})", each.operand, each.source->body, each.first);
               return std::optional(made_of);
             }},
        in, out, is_needed);
  }
  // Adds a cast to fewer bits.
  void rounding(const std::pair<int64_t, int64_t>& in, const std::pair<int64_t, int64_t>& out) {
    const std::string name = std::to_string(parts.size());
    add({.source =
             [=](const std::vector<CudaSourced>&) {
               CudaSource made_of;
               made_of.body = name;
               made_of.result_bytes = 2;
               made_of.bytes = 4;
               made_of.equations = 1;
               made_of.rounded = true;
               return std::optional(made_of);
             }},
        {in}, {out}, false);
  }
  // Adds a product that can compute such operands, and may also write them.
  void product(const Stretches& in, const Stretches& out, bool writes = false) {
    const std::string name = std::to_string(parts.size());
    add({.sourced =
             [=](const std::vector<CudaSourced>& given) {
               CudaStep step;
               step.name = name;
               for (const CudaSourced& each : given) {
                 if (each.written && !writes) return std::optional<SteppedKernel>();
                 step.name += fmt::format("({}: {} from {}{})", each.operand, each.source->body, each.first,
                                          each.written ? ", written" : "");
               }
               return std::optional(SteppedKernel(nullptr, {step}));
             }},
        in, out, true);
  }
  // Adds a product that can round its first two operands.
  void large_product(const Stretches& in, const Stretches& out) {
    const std::string name = std::to_string(parts.size());
    add({.sourced =
             [=](const std::vector<CudaSourced>& given) {
               CudaStep step;
               step.name = name;
               for (const CudaSourced& each : given) {
                 if (!each.source->rounded || each.operand > 1) return std::optional<SteppedKernel>();
                 step.name += fmt::format("({}: {} from {})", each.operand, each.source->body, each.first);
               }
               return std::optional(SteppedKernel(nullptr, {step}));
             }},
        in, out, true);
  }
  void plain(const Stretches& in, const Stretches& out) { add({}, in, out, true); }

  // The remaining parts, and the operands of the last.
  std::string text() {
    std::string out;
    const std::vector<KernelPart> left = inline_sources(parts, made);
    for (const KernelPart& part : left) {
      EXPECT_EQ(part.in.size(), part.operands.size());
      EXPECT_EQ(part.out.size(), part.results.size());
      out += (out.empty() ? "" : " ") + part.kernel->steps()[0].name;
    }
    return fmt::format("{} [{}]", out, fmt::join(left.back().operands, " "));
  }
};

TEST(WholeSources, ProductsComputeTheirOperands) {
  Sourced all;
  all.source({{0, 10}, {10, 11}}, {{20, 30}});
  all.source({{20, 30}}, {{30, 70}}, 3);
  all.product({{30, 70}, {80, 90}}, {{90, 99}});
  all.product({{200, 220}, {30, 70}}, {{100, 110}});
  EXPECT_EQ(all.text(), "2(0: 1(0: 0 from 1) from 2) 3(1: 1(0: 0 from 1) from 2) [30 31 10 0 1]");
}

// Whether or not other parts read the result of the product.
TEST(WholeSources, ProductsWhoseResultIsReadComputeTheirRows) {
  Sourced all;
  all.source({{0, 10}}, {{20'000, 30'000}});
  all.product({{20'000, 30'000}, {80'000, 90'000}}, {{40'000, 50'000}});
  all.product({{40'000, 50'000}, {90'000, 99'000}}, {{50'000, 60'000}});
  EXPECT_EQ(all.text(), "1(0: 0 from 2) 2 [20 21]");
}

TEST(WholeSources, ValuesWithOtherReadersAreWritten) {
  Sourced needed;
  needed.source({{0, 10}}, {{20, 30'000}}, 0, true);
  needed.product({{20, 30'000}}, {{40'000, 50'000}});
  EXPECT_EQ(needed.text(), "0 1 [10]");
  Sourced plain;
  plain.source({{0, 10}}, {{20, 30'000}});
  plain.product({{20, 30'000}}, {{40'000, 50'000}});
  plain.plain({{20, 30'000}}, {{50'000, 60'000}});
  EXPECT_EQ(plain.text(), "0 1 2 [20]");
  Sourced part;  // of it is read
  part.source({{0, 10}}, {{20, 30}});
  part.product({{20, 25}}, {{40, 50}});
  EXPECT_EQ(part.text(), "0 1 [10]");
  Sourced unread;
  unread.source({{0, 10}}, {{20, 30}});
  EXPECT_EQ(unread.text(), "0 [0]");
}

// By the first product that computes it, if that has no other dependency: the other readers come later.
TEST(WholeSources, FirstProductWritesWhatOthersRead) {
  Sourced all;
  all.source({{0, 10}}, {{20, 30'000}});
  all.product({{20, 30'000}, {100'000, 110'000}}, {{40'000, 50'000}}, true);
  all.plain({{20, 30'000}, {40'000, 50'000}}, {{50'000, 60'000}});
  EXPECT_EQ(all.text(), "1(0: 0 from 2, written) 2 [20 21]");
  const std::vector<KernelPart> left = inline_sources(all.parts, all.made);
  EXPECT_EQ(left[0].out, (std::vector<MemoryRange>{{0, 40'000, 50'000}, {0, 20, 30'000}}));
  EXPECT_EQ(left[0].results, (std::vector<size_t>{10, 0}));
  Sourced waits;  // depends on another part
  waits.source({{0, 10}}, {{20, 30'000}});
  waits.plain({{100'000, 110'000}}, {{200'000, 210'000}});
  waits.product({{20, 30'000}, {200'000, 210'000}}, {{40'000, 50'000}}, true);
  waits.plain({{20, 30'000}, {40'000, 50'000}}, {{50'000, 60'000}});
  EXPECT_EQ(waits.text(), "0 1 2 3 [30 31]");
  Sourced second;  // the second reads it: the first product needs it earlier
  second.source({{0, 10}}, {{20, 30'000}});
  second.plain({{20, 30'000}}, {{50'000, 60'000}});
  second.product({{20, 30'000}, {100'000, 110'000}}, {{40'000, 50'000}}, true);
  EXPECT_EQ(second.text(), "0 1 2 [20 21]");
}

// Such as row indices, by which images and labels are gathered: products do not wait for them.
TEST(WholeSources, SmallValuesAreWrittenForSomeAndComputedByOthers) {
  Sourced all;
  all.source({{0, 10}}, {{20, 30}}, 1);
  all.source({{20, 30}, {100, 200}}, {{30'000, 70'000}});
  all.plain({{20, 30}}, {{70'000, 70'010}});
  all.product({{30'000, 70'000}, {80'000, 90'000}}, {{90'000, 99'000}});
  EXPECT_EQ(all.text(), "0 2 3(0: 1(0: 0 from 2) from 2) [30 31 10 11 0]");
  Sourced chain;  // the second is written, and reads the first
  chain.source({{0, 10}}, {{20, 30}}, 1);
  chain.source({{20, 30}}, {{30, 40}}, 1);
  chain.plain({{30, 40}}, {{50, 60}});
  chain.product({{30, 40}}, {{60, 70}});
  EXPECT_EQ(chain.text(), "0 1 2 3(0: 1(0: 0 from 1) from 1) [30 10 0]");
}

TEST(WholeSources, OverwrittenOperandsAreNotReadLater) {
  Sourced operands;
  operands.source({{0, 10}}, {{20, 30}});
  operands.product({{20, 30}}, {{40, 50}});
  operands.product({{20, 30}}, {{5, 15}});
  EXPECT_EQ(operands.text(), "0 1 2 [20]");
  Sourced result;
  result.source({{0, 10}}, {{20, 30}});
  result.product({{20, 30}}, {{25, 35}});
  EXPECT_EQ(result.text(), "0 1 [10]");
  Sourced in_place;
  in_place.source({{20, 30}}, {{20, 30}});
  in_place.product({{20, 30}}, {{40, 50}});
  EXPECT_EQ(in_place.text(), "0 1 [10]");
}

TEST(WholeSources, ExpensiveValuesAreComputedOnce) {
  Sourced all;
  all.source({{0, 10}}, {{20, 30}}, 20);
  all.product({{20, 30}}, {{40, 50}});
  EXPECT_EQ(all.text(), "0 1 [10]");
  Sourced rest;  // it reads the first, which is then written
  rest.source({{0, 10}}, {{20'000, 30'000}});
  rest.source({{20'000, 30'000}}, {{30'000, 40'000}}, 20);
  rest.product({{20'000, 30'000}, {30'000, 40'000}}, {{40'000, 50'000}});
  EXPECT_EQ(rest.text(), "0 1 2 [20 21]");
}

// Rounded weights for the forward and backward products; biases are small and are written.
TEST(WholeSources, WeightsAreRoundedByTheProducts) {
  Sourced all;
  all.source({{0, 10}}, {{20'000, 30'000}});             // rows, too large for large products
  all.rounding({900'000, 999'000}, {200'000, 300'000});  // weights
  all.rounding({300'000, 304'000}, {304'000, 306'000});  // biases
  all.large_product({{20'000, 30'000}, {200'000, 300'000}, {304'000, 306'000}}, {{400'000, 410'000}});
  all.large_product({{400'000, 410'000}, {200'000, 300'000}}, {{410'000, 420'000}});
  EXPECT_EQ(all.text(), "0 2 3(1: 1 from 3) 4(1: 1 from 2) [40 41 10]");
}

TEST(WholeSources, RoundedValuesWithOtherReadersAreWritten) {
  Sourced all;
  all.rounding({0, 200'000}, {200'000, 300'000});
  all.large_product({{310'000, 320'000}, {200'000, 300'000}}, {{400'000, 410'000}});
  all.plain({{200'000, 300'000}}, {{410'000, 420'000}});
  EXPECT_EQ(all.text(), "0 1 2 [20]");
}

// Such as the update of donated weights.
TEST(WholeSources, OperandsMayBeOverwrittenAfterAllReaders) {
  Sourced last;
  last.rounding({0, 200'000}, {200'000, 300'000});
  last.large_product({{310'000, 320'000}, {200'000, 300'000}}, {{400'000, 410'000}});
  last.plain({{0, 200'000}, {400'000, 410'000}}, {{0, 200'000}});
  EXPECT_EQ(last.text(), "1(1: 0 from 2) 2 [20 21]");
  const std::vector<KernelPart> left = inline_sources(last.parts, last.made);
  EXPECT_TRUE(conflict(left[0], left[1]));
  Sourced between;
  between.rounding({0, 200'000}, {200'000, 300'000});
  between.large_product({{310'000, 320'000}, {200'000, 300'000}}, {{400'000, 410'000}});
  between.plain({{0, 200'000}, {400'000, 410'000}}, {{0, 200'000}});
  between.large_product({{330'000, 340'000}, {200'000, 300'000}}, {{410'000, 420'000}});
  EXPECT_EQ(between.text(), "0 1 2 3 [30 31]");
  Sourced chain;  // the second would read the first's operand, which has been overwritten
  chain.source({{0, 10}}, {{20, 30}});
  chain.source({{20, 30}}, {{30, 40}});
  chain.plain({{90, 99}}, {{0, 10}});
  chain.product({{30, 40}}, {{40, 50}});
  EXPECT_EQ(chain.text(), "0 2 3(0: 1 from 1) [30 10]");
}

// Gathered and scaled rows, as `a` or `b` of a product.
TEST(WholeSources, TextsCompile) {
  struct Case {
    DType dtype;
    GemmSpec gemm;
    bool is_b;
    const char* architecture;
  };
  int compiled = 0;
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
    Pool pool({.threads = 1});
    const std::vector<Type> in = {table, index}, out = {chosen};
    const Attrs attrs{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}};
    const Kernel gather = gather_cuda({.in = in, .out = out, .attrs = attrs, .pool = pool, .alias = {}});
    const std::optional<CudaSource> some = gather.target<SteppedKernel>()->source({});
    ASSERT_TRUE(some);
    EXPECT_EQ(some->operands, (std::vector<size_t>{0, 1}));
    Builder of_index;
    const Value first = of_index.input(index);
    const std::optional<CudaSource> place =
        elementwise_source(of_index.take(Values{first + full(of_index, index, 3)}), {});
    ASSERT_TRUE(place);
    Builder number;
    EXPECT_FALSE(elementwise_source(number.take(Values{full(number, index, 3)}), {}));
    const std::optional<CudaSource> by_place = gather.target<SteppedKernel>()->source({{1, &*place, 2}});
    ASSERT_TRUE(by_place);
    EXPECT_EQ(by_place->operands, (std::vector<size_t>{0, 2}));
    EXPECT_EQ(by_place->bytes, 1);
    Builder b;
    const Value x = cast(b.input(chosen), c.dtype);
    const std::optional<CudaSource> source =
        elementwise_source(b.take(Values{x * full(b, x.type(), 0.5)}), {{0, c.is_b ? &*by_place : &*some, 1}});
    ASSERT_TRUE(source);
    EXPECT_EQ(source->operands, (std::vector<size_t>{1, c.is_b ? size_t{3} : 2}));
    EXPECT_EQ(source->bytes, 1);
    const std::optional<GemmStep> product = gemm_step(
        g, 132, 220 << 10,
        {c.is_b ? GemmOperand::read : GemmOperand::computed, c.is_b ? GemmOperand::computed : GemmOperand::read});
    if (!product) {  // no registers left
      EXPECT_TRUE(gemm_step(g, 132, 220 << 10)->register_bound);
      continue;
    }
    ++compiled;
    CudaStep step;
    const char *its = c.is_b ? "b" : "a", *other = c.is_b ? "a" : "b";
    step.parameters = fmt::format("const {}* {}, {} p1, {} p{}", memory_type(c.dtype), other, source->types[0],
                                  source->types[1], source->operands[1]);
    for (size_t k = 0; k < 3; ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
    step.body = fmt::format("  const auto {} = {}{};\n", its, source->text(),
                            source->applied([](size_t k) { return fmt::format("p{}", k); }));
    Builder as_it_is;
    ASSERT_TRUE(add_finish(step, *product, as_it_is.take(Values{as_it_is.input({c.dtype, {g.m, g.n}})}), 3));
    try {
      EXPECT_FALSE(compile_cuda(text_of(step), kernel_headers(), c.architecture).empty());
    } catch (const Error& e) {
      if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
      FAIL() << e.what();
    }
  }
  EXPECT_EQ(compiled, 4);
}

// The number of pointers of a kernel is limited: 119 products of 4 and their operands of 3. Each would have two more.
TEST(WholeSources, ValuesThatNeedTooManyPointersAreWritten) {
  for (const int64_t products : {10, 119}) {
    Sourced all;
    all.source({{0, 10}, {10, 20}}, {{30'000, 70'000}});
    for (int64_t i = 0; i < products; ++i) {
      const int64_t at = 100'000 + 10 * i;
      all.add({.sourced =
                   [](const std::vector<CudaSourced>&) {
                     CudaStep step;
                     step.arguments.resize(6);
                     step.blocks = 100;
                     return std::optional(SteppedKernel(nullptr, {step}));
                   }},
              {{30'000, 70'000}, {80'000, 90'000}, {90'000, 99'000}}, {{at, at + 10}}, true);
    }
    ASSERT_TRUE(fits_in_one_kernel(all.parts));
    const std::vector<KernelPart> left = optimize_parts(all.parts, 132, all.made);
    EXPECT_TRUE(fits_in_one_kernel(left));
    EXPECT_EQ(left.size(), static_cast<size_t>(products == 10 ? products : products + 1));
  }
}

// Not if it would make the tiles smaller: computed operands are stored completely in shared memory.
TEST(WholeSources, MergingDoesNotShrinkTiles) {
  std::mt19937 random(20261117);
  const auto below = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  int some = 0, none = 0;
  for (int i = 0; i < 300; ++i) {
    const GemmSpec g{.dtype = i % 2 == 0 ? DType::f32 : DType::bf16,
                     .m = 4 * below(300),
                     .n = 4 * below(300),
                     .k = 4 * below(1000),
                     .transpose_a = i % 3 == 0};
    const std::optional<GemmStep> plain = gemm_step(g, 132, 220 << 10),
                                  with = gemm_step(g, 132, 220 << 10, {.a = GemmOperand::computed});
    ASSERT_TRUE(plain);
    ++(with ? some : none);
    if (!with) continue;
    EXPECT_FALSE(plain->register_bound);
    EXPECT_EQ(with->blocks, plain->blocks);
    EXPECT_LE(with->shared_bytes, 220 << 10);
  }
  EXPECT_GT(some, 10);
  EXPECT_GT(none, 10);
}

// A layer of rows of a table and its gradient; two row indices are out of bounds.
Program a_layer(DType dtype, int64_t rows, int64_t deep, int64_t wide) {
  Builder b;
  const Value table = b.input({DType::u8, {70, deep}}), index = b.input({DType::i32, {rows}});
  const Value w = b.input({dtype, {deep, wide}}), dy = b.input({dtype, {rows, wide}});
  const Value place = index + full(b, index.type(), 1);
  const Value chosen = cast(gather(table, place, 0), dtype), x = chosen - full(b, chosen.type(), 1);
  const Value y = einsum("mk,kn->mn", x, w);
  const Value little = maximum(minimum(y, dy), full(b, y.type(), -4));
  // Also gathered by the same indices, which are therefore written.
  const Value label = gather(b.input({DType::i32, {70}}), place, 0);
  return b.take(Values{y, w - einsum("mk,mn->kn", x, little), einsum("km,nk->mn", w, x), label + label});
}

// Two products of one shape with different sources of rows, and one with a constant matrix.
TEST(WholeSources, OnGpuProductsOfOneShapeKeepTheirSources) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261118);
  Builder b;
  const Type table{DType::f32, {70, 256}}, index{DType::i32, {128}}, w{DType::f32, {256, 256}},
      wide{DType::f32, {64, 8192}};
  const Value one = b.input(table), two = b.input(table), at = b.input(index), v = b.input(w), u = b.input(w);
  const Value last = b.input(wide);
  const Value x = gather(one, at, 0), y = gather(two, at + full(b, index, 1), 0);
  const Program program =
      b.take(Values{einsum("mk,kn->mn", x, v), einsum("mk,kn->mn", y, u), einsum("mk,nk->mn", full(b, wide, 1), last)});
  HostArrays in;
  for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
  for (int64_t i = 0; i < 128; ++i) in[2].set(i, static_cast<double>((i * 37 + 5) % 70));
  const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
  for (size_t o = 0; o < got.size(); ++o) expect_equal(got[o], wanted[o]);
}

TEST(WholeSources, OnGpuResultsEqualTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261116);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, deep, wide] : {std::tuple<int64_t, int64_t, int64_t>{128, 784, 256},
                                           {128, 784, 1024},
                                           {96, 100, 200},
                                           {60, 20, 2000},
                                           {36, 1028, 68}}) {
      SCOPED_TRACE(fmt::format("{} rows of {} to {}, {}", rows, deep, wide, name(dtype)));
      const Program program = a_layer(dtype, rows, deep, wide);
      HostArrays in;
      for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
      for (int64_t i = 0; i < rows; ++i) in[1].set(i, static_cast<double>((i * 37 + 5) % 74 - 2));
      const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
      for (size_t o = 0; o < got.size(); ++o) expect_equal(got[o], wanted[o]);
    }
}

}  // namespace
}  // namespace lockstep::detail
#endif
