// Tasks by ranges and with exchanged sums (TaskForm::ranges, TaskForm::exchange) on a GPU: programs in which they apply
// have the results of the reference, to the last bit.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/cuda_stream.h"
#include "ops/control.h"
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

TEST(RangesOnGpu, ResultsEqualTheReference) {
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
TEST(RangesOnGpu, RoundsEqualTheReference) {
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
TEST(RangesOnGpu, RoundsPassCarriesOn) {
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

TEST(ExchangeOnGpu, ResultsEqualTheReference) {
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
}  // namespace lockstep
#endif
