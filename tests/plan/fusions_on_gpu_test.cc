// Fusions of a schedule (plan/cuda/rewrites.h) on a GPU: programs in which they apply have the results of the reference,
// to the last bit.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/cuda_stream.h"
#include "ops/control.h"
#include "ops/cuda/gemm_choice.h"
#include "ops/cuda/step.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "plan/cuda/cuda_plan.h"
#include "plan/plan.h"
#include "rows/on_gpu.h"
#include "support/brief.h"

namespace lockstep {
namespace {

// Weights and the sum of squares of their gradient on integers: exact in any order. Large and small tiles, shared sums,
// more tiles than blocks, and two in one kernel.
TEST(FusionsOnGpu, FullSumsAreExact) {
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
TEST(FusionsOnGpu, SummedResultsThatAreReadAgainAreWritten) {
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

// Two products of one shape with different producers of rows, and one with a constant matrix.
TEST(FusionsOnGpu, ProductsOfOneShapeKeepTheirProducers) {
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

TEST(FusionsOnGpu, InlinedProducersEqualTheReference) {
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

// The gradients of two layers' weights and biases on integers: exact in any order. Sums by dedicated threads and by
// all; row counts that are not multiples of a step; and sums that cannot be fused into the product.
TEST(FusionsOnGpu, ColumnSumsAreExact) {
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
    const std::string text = compile(program, test_pool(), CudaStream::local())->schedule();
    const bool is_one = text.find("sums columns {") != std::string::npos;
    EXPECT_TRUE(is_one || c.m != 1024) << text;
    together += is_one;
  }
  EXPECT_GE(together, 3);
}

// The same elements, which the sum reads as a matrix of another shape.
TEST(FusionsOnGpu, ColumnSumsOfAnotherShapeAreNotFused) {
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

TEST(FusionsOnGpu, RoundingProductsAreExact) {
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

TEST(FusionsOnGpu, RoundedWeightsAreUpdatedInPlace) {
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
TEST(FusionsOnGpu, RoundsWithRoundedWeightsEqualTheReference) {
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
