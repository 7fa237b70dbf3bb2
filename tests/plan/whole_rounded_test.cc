// Products of 16-bit floats on the GPU that read f32 and round it themselves: kernel texts that compile, and the same
// bits as with operands rounded before. Only the last tests need a GPU.
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
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "plan/cuda/cuda_plan.h"
#include "rows/on_gpu.h"
#include "support/brief.h"

namespace lockstep {
namespace {

struct RoundedCase {
  int64_t m, n, k;
  bool ta = false, tb = false;
  bool round_a = false, round_b = true;

  Shape left() const { return ta ? Shape{k, m} : Shape{m, k}; }
  Shape right() const { return tb ? Shape{n, k} : Shape{k, n}; }
  std::string spec() const { return fmt::format("{},{}->mn", ta ? "km" : "mk", tb ? "nk" : "kn"); }
  std::string text() const {
    return fmt::format("{} of {} x {} x {}, {}{}", spec(), m, n, k, round_a ? "a" : "", round_b ? "b" : "");
  }
  bool is_worth_it(DType dtype, const CudaInfo& gpu) const {
    const auto how = [](bool rounded) { return rounded ? GemmOperand::rounded : GemmOperand::read; };
    return is_worth_rounding({.dtype = dtype, .m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb},
                             gpu.processors, gpu.shared - kReservedSharedBytes, {how(round_a), how(round_b)});
  }
};

// Every shape and transposition, with either operand and both rounded.
std::vector<RoundedCase> in_all_ways(const std::vector<RoundedCase>& shapes) {
  std::vector<RoundedCase> out;
  for (RoundedCase c : shapes)
    for (int way = 0; way < 12; ++way) {
      c.ta = way % 2 != 0, c.tb = way / 2 % 2 != 0;
      c.round_a = way / 4 != 0, c.round_b = way / 4 != 1;
      out.push_back(c);
    }
  return out;
}

TEST(WholeRounded, OnlyCastsToFewerBitsAreMerged) {
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

TEST(WholeRounded, F32ProductsDoNotRound) {
  const GemmSpec g{.dtype = DType::f32, .m = 64, .n = 64, .k = 64};
  EXPECT_TRUE(gemm_step(g, 132, 220 << 10));
  EXPECT_FALSE(gemm_step(g, 132, 220 << 10, {.b = GemmOperand::rounded}));
}

// In tiles of all sizes; in one of them rows are not aligned to 16 bytes.
TEST(WholeRounded, TextsCompile) {
  int at = 0;
  for (const RoundedCase& c :
       in_all_ways({{128, 1024, 784}, {1024, 1024, 128}, {2048, 1024, 64}, {128, 256, 784}, {50, 66, 34}})) {
    SCOPED_TRACE(c.text());
    ++at;
    const DType dtype = (at + at / 12) % 2 == 0 ? DType::bf16 : DType::f16;
    const auto how = [](bool rounded) { return rounded ? GemmOperand::rounded : GemmOperand::read; };
    const auto type = [&](bool rounded) { return rounded ? "float" : memory_type(dtype); };
    const std::optional<GemmStep> product =
        gemm_step({.dtype = dtype, .m = c.m, .n = c.n, .k = c.k, .transpose_a = c.ta, .transpose_b = c.tb},
                  at % 3 == 0 ? 66 : 132, 220 << 10, {how(c.round_a), how(c.round_b)});
    ASSERT_TRUE(product);
    EXPECT_LE(product->shared_bytes, 220 << 10);
    CudaStep step;
    step.parameters = fmt::format("const {}* a, const {}* b", type(c.round_a), type(c.round_b));
    for (size_t k = 0; k < 2; ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
    Builder as_it_is;
    ASSERT_TRUE(add_finish(step, *product, as_it_is.take(Values{as_it_is.input({dtype, {c.m, c.n}})}), 2));
    try {
      EXPECT_FALSE(compile_cuda(text_of(step), kernel_headers(), at % 5 == 0 ? "sm_80" : "sm_90").empty());
    } catch (const Error& e) {
      if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
      FAIL() << e.what();
    }
  }
}

// A bias that is added: its index is not that of the element.
TEST(WholeRounded, BiasIsRoundedToo) {
  Builder of_bias;
  const std::optional<CudaSource> bias =
      elementwise_source(of_bias.take(Values{cast(of_bias.input({DType::f32, {64}}), DType::bf16)}), {});
  ASSERT_TRUE(bias && bias->rounded && !bias->one.empty());
  Builder b;
  const Value x = b.input({DType::bf16, {128, 64}}), v = b.input({DType::bf16, {64}}), z = b.input(x.type());
  const Program body = b.take(Values{x + broadcast(v, {128, 64}, {1}) + z});
  const std::optional<GemmStep> product =
      gemm_step({.dtype = DType::bf16, .m = 128, .n = 64, .k = 32}, 132, 220 << 10, {.b = GemmOperand::rounded});
  ASSERT_TRUE(product);
  CudaStep step;
  step.parameters = "const bf16* a, const float* b";
  for (const size_t k : {0, 4}) step.arguments.push_back({CudaStep::Argument::operand, k});
  ASSERT_TRUE(add_finish(step, *product, body, 2, {{2, &*bias, 5}}));
  EXPECT_EQ(step.parameters, "const bf16* a, const float* b, const float* in1_0, const bf16* in2, bf16* out0");
  EXPECT_EQ(step.arguments[2].index, 5u);
  EXPECT_EQ(step.arguments[3].index, 3u);
  try {
    EXPECT_FALSE(compile_cuda(text_of(step), kernel_headers(), "sm_90").empty());
  } catch (const Error& e) {
    if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
    FAIL() << e.what();
  }
}

TEST(WholeRounded, TextsOfRowProductsCompile) {
  for (const bool tb : {false, true})
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const GemmSpec g{.dtype = dtype, .m = 128, .n = tb ? 1024 : 10, .k = tb ? 10 : 1024, .transpose_b = tb};
      CudaStep step;
      step.parameters = fmt::format("const {}* a, const float* b", memory_type(dtype));
      for (size_t k = 0; k < 2; ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
      Builder as_it_is;
      ASSERT_TRUE(add_finish(step, row_product_step(g, 128, true),
                             as_it_is.take(Values{as_it_is.input({dtype, {g.m, g.n}})}), 2));
      try {
        EXPECT_FALSE(compile_cuda(text_of(step), kernel_headers(), tb ? "sm_80" : "sm_90").empty());
      } catch (const Error& e) {
        if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
        FAIL() << e.what();
      }
    }
}

// From 1 to 2 or from -2 to -1, in 14 bits: some are halfway between two 16-bit floats.
HostArray weights_of(const Shape& shape, uint32_t seed) {
  HostArray out(Type{DType::f32, shape});
  std::mt19937 random(seed);
  for (int64_t i = 0; i < out.size(); ++i)
    out.set(i, (1 + static_cast<double>(random() % 8192) / 8192) * (random() % 2 == 0 ? 1 : -1));
  return out;
}

// Integers, so that sums are exact. Every other row (`across`: column) has one nonzero element, so that the last bit of
// a weight is a bit of the result. f32 values have an extra part that rounding removes.
HostArray rows_of(DType dtype, const Shape& shape, bool across, uint32_t seed) {
  HostArray out = small_integers({dtype, shape}, seed);
  const int64_t deep = shape[across ? 0 : 1];
  for (int64_t i = 0; i < shape[0]; ++i)
    for (int64_t j = 0; j < shape[1]; ++j) {
      const int64_t row = across ? j : i, k = across ? i : j, at = i * shape[1] + j;
      if (row % 2 == 0) out.set(at, k == (row * 37 + 11) % deep ? (row % 4 == 0 ? 1 : -1) : 0);
      if (dtype == DType::f32) out.set(at, out.get(at) * (1 + 1.0 / 8192));
    }
  return out;
}

TEST(WholeRounded, OnGpuProductsAreExact) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261119);
  int at = 0;
  for (const RoundedCase& c : in_all_ways({{128, 1024, 784},
                                           {128, 256, 784},
                                           {1024, 784, 128},
                                           {2048, 1024, 64},
                                           {96, 100, 200},
                                           {50, 66, 34},
                                           {36, 20, 12}})) {
    ++at;
    if (brief(false, c.m * c.n * c.k > 1000000 && (at + at / 12) % 4 != 0)) continue;
    const DType dtype = (at + at / 12) % 3 == 0 ? DType::f16 : DType::bf16;
    SCOPED_TRACE(fmt::format("{}, {}", c.text(), name(dtype)));
    // The weights are the rounded operand, or the second one if both are rounded.
    const bool weights_a = c.round_a && !c.round_b;
    Builder b;
    HostArrays in;
    in.push_back(weights_a ? weights_of(c.left(), random())
                           : rows_of(c.round_a ? DType::f32 : dtype, c.left(), c.ta, random()));
    in.push_back(weights_a ? rows_of(dtype, c.right(), !c.tb, random()) : weights_of(c.right(), random()));
    const Value x = b.input(in[0].type), y = b.input(in[1].type);
    const Program program =
        b.take(Values{einsum(c.spec(), c.round_a ? cast(x, dtype) : x, c.round_b ? cast(y, dtype) : y)});
    const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
    expect_equal(got[0], wanted[0]);
    // Row products, with a small second matrix, do not round the first.
    if (c.k * c.n <= 16384 && c.round_a) continue;
    CudaStream& lane = CudaStream::local();
    const std::string text = compile(program, test_pool(), lane)->describe();
    // On a small GPU products of this size are not joined.
    if (lane.info().processors < 64 && text.find("phases") == std::string::npos) continue;
    EXPECT_EQ(text.find(" in 1 phases") != std::string::npos, c.is_worth_it(dtype, lane.info())) << text;
  }
}

// Weights in the forward and backward pass, with biases, updated in place: the products read f32, and the update comes
// after them.
Program a_layer_there_and_back(DType dtype, int64_t rows, int64_t deep, int64_t wide) {
  Builder b;
  const Type weights{DType::f32, {deep, wide}}, biases{DType::f32, {wide}};
  const Value w = b.input(weights), v = b.input(biases), x = b.input({dtype, {rows, deep}});
  const Value dy = b.input({dtype, {rows, wide}});
  const Value rounded = cast(w, dtype);
  const Value y = einsum("mk,kn->mn", x, rounded) + broadcast(cast(v, dtype), {rows, wide}, {1});
  const Value dx = einsum("mn,kn->mk", dy, rounded);
  const Value dw = cast(einsum("mk,mn->kn", x, dy), DType::f32);
  const Value dv = cast(reduce_sum(dy, {0}), DType::f32);
  return b.take(Values{w - dw, v - dv, y, dx});
}

TEST(WholeRounded, OnGpuWeightsAreUpdatedInPlace) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  CudaStream& lane = CudaStream::local();
  std::mt19937 random(20261120);
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const bool donate : {false, true})
      for (const int64_t wide : {1024, 10}) {  // ten: row by row
        SCOPED_TRACE(fmt::format("{} {}{}", wide, name(dtype), donate ? ", in their place" : ""));
        const Program program = a_layer_there_and_back(dtype, 128, 1024, wide);
        HostArrays in = {weights_of({1024, wide}, random()), weights_of({wide}, random()),
                         rows_of(dtype, {128, 1024}, false, random()), rows_of(dtype, {128, wide}, false, random())};
        const HostArrays wanted = eager(program, in);
        const std::shared_ptr<CudaPlan> plan =
            compile(program, test_pool(), lane, {.donated = {donate, donate, false, false}});
        EXPECT_EQ(plan->donated_input(0), donate ? 0 : -1);
        std::vector<BufferPtr> held;
        std::vector<const void*> from;
        std::vector<void*> to;
        for (const HostArray& x : in) {
          held.push_back(lane.allocate(x.type.bytes()));
          lane.to_device(held.back()->data(), x.buffer->data(), x.type.bytes());
          from.push_back(held.back()->data());
        }
        for (size_t o = 0; o < wanted.size(); ++o) {
          const int own = plan->donated_input(o);
          held.push_back(own >= 0 ? held[static_cast<size_t>(own)] : lane.allocate(wanted[o].type.bytes()));
          to.push_back(held.back()->data());
        }
        plan->run(from.data(), to.data());
        for (size_t o = 0; o < wanted.size(); ++o) {
          HostArray got(wanted[o].type);
          lane.to_host(got.buffer->data(), to[o], got.type.bytes());
          expect_equal(got, wanted[o]);
        }
      }
}

// A scan whose body is one kernel, which runs the rounds.
TEST(WholeRounded, OnGpuRoundsEqualTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261121);
  for (const int64_t length : {2, 3, 9}) {
    SCOPED_TRACE(fmt::format("{} rounds", length));
    Builder inner;
    const Type weights{DType::f32, {256, 512}};
    const Value w = inner.input(weights), x = inner.input({DType::bf16, {128, 256}});
    const Value y = einsum("mk,kn->mn", x, cast(w, DType::bf16));
    const Value some = maximum(minimum(y, full(inner, y.type(), 1)), full(inner, y.type(), -1));
    // Slightly different values of the same magnitude: sums stay exact.
    const Value turned = cast(einsum("mk,mn->kn", x, some), DType::f32);
    const Value next = select(gt(turned, full(inner, weights, 0)), w, w * full(inner, weights, -1));
    const auto body = std::make_shared<const Program>(inner.take(Values{next, y}));
    Builder b;
    const Value start = b.input(weights), xs = b.input({DType::bf16, {length, 128, 256}});
    const Program program = b.take(scan(b, body, {start}, {xs}, {}, length, false));
    HostArrays in = {weights_of({256, 512}, random()), small_integers({DType::bf16, {length, 128, 256}}, random())};
    const HostArrays got = planned_on_gpu(program, in), wanted = eager(program, in);
    for (size_t o = 0; o < got.size(); ++o) expect_equal(got[o], wanted[o]);
  }
}

}  // namespace
}  // namespace lockstep
#endif
