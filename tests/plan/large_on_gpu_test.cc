// Large instructions on a GPU, which run as separate kernels and process several adjacent elements at a time.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "rows/on_gpu.h"

namespace lockstep {
namespace {

class LargeOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }
  std::mt19937 random{20261116};
};

TEST_F(LargeOnGpu, ElementsAreReadThroughAnyView) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32})
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{300, 256}, {320, 250}, {254, 1022}}) {
      if (dtype != DType::f32 && cols % 4 != 0) continue;
      SCOPED_TRACE(fmt::format("{} x {}, {}", rows, cols, name(dtype)));
      Builder b;
      const Shape shape{rows, cols};
      const Value x = b.input({dtype, shape}), turned = b.input({dtype, {cols, rows}}),
                  bytes = b.input({DType::u8, shape});
      const Value of_row = b.input({dtype, {rows}}), of_col = b.input({dtype, {cols}}), one = b.input({dtype, {}});
      const Value all = x + transpose(turned, {1, 0}) + broadcast(of_row, shape, {0}) + broadcast(of_col, shape, {1});
      const Value more = all + cast(bytes, dtype) - broadcast(one, shape, {});
      const Value mask = gt(broadcast(of_col, shape, {1}), x);
      expect_same_on_gpu(fuse(b.take(Values{more, mask, reverse(x, {1}) + x})), random);
    }
}

TEST_F(LargeOnGpu, RowsAreGatheredSixteenBytesAtATime) {
  for (const auto& [type, axis] : {std::pair<Type, int64_t>{{DType::u8, {60, 28, 28}}, 0},
                                   {{DType::f32, {50, 20}}, 0},
                                   {{DType::bf16, {50, 24}}, 0},
                                   {{DType::bf16, {50, 22}}, 0},
                                   {{DType::f32, {3, 40, 8}}, 1}})
    for (const int64_t places : {1, 100}) {
      SCOPED_TRACE(fmt::format("{} along {}, {} places", to_string(type), axis, places));
      Builder b;
      const Value table = b.input(type), indices = b.input({DType::i32, {places}});
      expect_same_on_gpu(b.take(Values{gather(table, indices, axis)}), random);
    }
}

TEST_F(LargeOnGpu, SumsOfManyRowsAreExact) {
  using Axes = std::vector<int64_t>;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32})
    for (const auto& [shape, axes] : {std::pair<Shape, Axes>{{2048, 1024}, {0}},
                                      {{4096, 300}, {0}},
                                      {{8, 640, 256}, {1}},
                                      {{64, 20, 1024}, {0, 1}},
                                      {{2050, 514}, {0}}}) {
      if (dtype != DType::f32 && axes != Axes{1}) continue;
      const Type type{dtype, shape};
      SCOPED_TRACE(to_string(type));
      Builder b;
      const Value x = b.input(type);
      expect_same_on_gpu(b.take(Values{dtype == DType::i32 ? reduce_max(x, axes) : reduce_sum(x, axes)}), random);
    }
}

}  // namespace
}  // namespace lockstep
#endif
