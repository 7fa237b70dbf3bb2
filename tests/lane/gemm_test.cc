#include "lane/cpu/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lockstep/error.h"

namespace lockstep {
namespace {

template <class T>
std::vector<T> random_values(int64_t count, std::mt19937& random) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    if constexpr (std::is_integral_v<T>)
      value = static_cast<T>(random() * 0x9e3779b97f4a7c15u);
    else
      value = static_cast<T>(std::normal_distribution<float>()(random));
  }
  return values;
}

// One entry of the batch by the definition, in double or wrapping 64-bit integers.
template <class T>
auto reference(const GemmSpec& s, const T* a, const T* b, int64_t row, int64_t col) {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  Wide sum = 0;
  for (int64_t p = 0; p < s.k; ++p) {
    const T x = s.transpose_a ? a[p * s.lda + row] : a[row * s.lda + p];
    const T y = s.transpose_b ? b[col * s.ldb + p] : b[p * s.ldb + col];
    sum += static_cast<Wide>(x) * static_cast<Wide>(y);
  }
  return sum;
}

template <class T>
double tolerance() {
  if (std::is_same_v<T, BFloat16>) return 1e-2;
  if (std::is_same_v<T, Float16>) return 2e-3;
  return std::is_same_v<T, double> ? 1e-13 : 2e-6;
}

template <class T>
void expect_close(T got, std::conditional_t<std::is_integral_v<T>, uint64_t, double> want, double scale) {
  if constexpr (std::is_integral_v<T>)
    ASSERT_EQ(got, static_cast<T>(want));
  else
    ASSERT_NEAR(static_cast<double>(got), want, tolerance<T>() * scale);
}

template <class T>
class GemmOf : public testing::Test {};
using AllTypes = testing::Types<float, double, BFloat16, Float16, int32_t, int64_t, uint32_t, uint8_t>;
TYPED_TEST_SUITE(GemmOf, AllTypes);

TYPED_TEST(GemmOf, MatchesTheDefinitionOnRandomShapes) {
  using T = TypeParam;
  std::mt19937 random(5);
  Pool pool({.threads = 3});
  for (int round = 0; round < 60; ++round) {
    const auto extent = [&](int64_t most) { return static_cast<int64_t>(1 + random() % static_cast<uint64_t>(most)); };
    GemmSpec spec{.dtype = dtype_of<T>, .m = extent(90), .n = extent(90), .k = extent(round % 10 == 0 ? 700 : 60)};
    spec.transpose_a = random() % 2;
    spec.transpose_b = random() % 2;
    spec.batch = round % 3 == 0 ? extent(5) : 1;
    if (random() % 2) spec.lda = (spec.transpose_a ? spec.m : spec.k) + extent(5);
    if (random() % 2) spec.ldb = (spec.transpose_b ? spec.k : spec.n) + extent(5);
    if (random() % 2) spec.ldc = spec.n + extent(5);
    if (random() % 3 == 0) spec.stride_a = 0;
    const int64_t most = (90 + 5) * (700 + 5) * 2;
    if (spec.lda > 0) spec.stride_a = spec.stride_a == 0 ? 0 : spec.lda * (spec.transpose_a ? spec.k : spec.m);
    if (spec.ldb > 0) spec.stride_b = spec.ldb * (spec.transpose_b ? spec.n : spec.k);
    if (spec.ldc > 0) spec.stride_c = spec.ldc * spec.m;
    const std::vector<T> a = random_values<T>(most * spec.batch, random),
                         b = random_values<T>(most * spec.batch, random);
    std::vector<T> c(static_cast<size_t>(95 * 95 * spec.batch));
    const Gemm gemm = Gemm::prepare(spec, pool.threads());
    std::atomic<int64_t> covered = 0;
    gemm.run(pool, a.data(), b.data(), c.data(), [&](const Tile& tile) { covered += tile.rows * tile.cols; });
    ASSERT_EQ(covered, spec.batch * spec.m * spec.n);
    const GemmSpec& s = gemm.spec();
    for (int64_t i = 0; i < s.batch; ++i)
      for (int64_t row = 0; row < s.m; ++row)
        for (int64_t col = 0; col < s.n; ++col)
          expect_close<T>(c[static_cast<size_t>(i * s.stride_c + row * s.ldc + col)],
                          reference(s, a.data() + i * s.stride_a, b.data() + i * s.stride_b, row, col),
                          10 * std::sqrt(static_cast<double>(s.k)));
  }
}

// Checks samples, since the definition is slow on shapes large enough for several tiles.
TYPED_TEST(GemmOf, MatchesTheDefinitionInTilesAndChunks) {
  using T = TypeParam;
  std::mt19937 random(6);
  Pool pool({.threads = 4});
  const std::vector<std::array<int64_t, 3>> shapes{
      {300, 500, 64}, {128, 1024, 40}, {17, 30, 20000}, {1, 2000, 300}, {700, 1, 300}};
  for (const auto& shape : shapes)
    for (const bool transposed : {false, true}) {
      const int64_t m = shape[0], n = shape[1], k = shape[2];
      const Gemm gemm = Gemm::prepare(
          {.dtype = dtype_of<T>, .m = m, .n = n, .k = k, .transpose_a = transposed, .transpose_b = transposed}, 4);
      const std::vector<T> a = random_values<T>(m * k, random), b = random_values<T>(k * n, random);
      std::vector<T> c(static_cast<size_t>(m * n)), fused(c.size());
      gemm.run(pool, a.data(), b.data(), c.data());
      gemm.run(pool, a.data(), b.data(), nullptr, [&](const Tile& tile) {
        for (int64_t row = 0; row < tile.rows; ++row)
          std::memcpy(fused.data() + (tile.row0 + row) * n + tile.col0, static_cast<T*>(tile.data) + row * tile.ld,
                      static_cast<size_t>(tile.cols) * sizeof(T));
      });
      EXPECT_EQ(std::memcmp(c.data(), fused.data(), c.size() * sizeof(T)), 0);
      for (int sample = 0; sample < 300; ++sample) {
        const auto row = static_cast<int64_t>(random() % static_cast<uint64_t>(m));
        const auto col = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
        expect_close<T>(c[static_cast<size_t>(row * n + col)], reference(gemm.spec(), a.data(), b.data(), row, col),
                        std::sqrt(static_cast<double>(k)) * 10);
      }
    }
}

TYPED_TEST(GemmOf, EmptySumsAreZeroAndEmptyResultsAreNotWritten) {
  using T = TypeParam;
  Pool pool({.threads = 2});
  std::vector<T> c(12, static_cast<T>(3));
  Gemm::prepare({.dtype = dtype_of<T>, .m = 3, .n = 4, .k = 0}, 2).run(pool, nullptr, nullptr, c.data());
  for (const T value : c) EXPECT_EQ(value, static_cast<T>(0));
  const auto never = [](const Tile&) { FAIL(); };
  Gemm::prepare({.dtype = dtype_of<T>, .m = 0, .n = 4, .k = 5}, 2).run(pool, nullptr, nullptr, nullptr, never);
  Gemm::prepare({.dtype = dtype_of<T>, .m = 4, .n = 0, .k = 5}, 2).run(pool, nullptr, nullptr, nullptr, never);
  Gemm::prepare({.dtype = dtype_of<T>, .m = 4, .n = 4, .k = 5, .batch = 0}, 2)
      .run(pool, nullptr, nullptr, nullptr, never);
}

template <class T>
void expect_same_bits_on_any_number_of_threads(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b) {
  std::mt19937 random(7);
  const std::vector<T> a = random_values<T>(m * k, random), b = random_values<T>(k * n, random);
  std::vector<T> first(static_cast<size_t>(m * n)), c(first.size());
  for (const int threads : {1, 2, 3, 5, 16}) {
    Pool pool({.threads = threads});
    const GemmSpec spec{
        .dtype = dtype_of<T>, .m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b};
    Gemm::prepare(spec, threads).run(pool, a.data(), b.data(), threads == 1 ? first.data() : c.data());
    if (threads > 1) {
      EXPECT_EQ(std::memcmp(first.data(), c.data(), c.size() * sizeof(T)), 0)
          << m << "x" << n << "x" << k << " on " << threads << " threads";
    }
  }
}

TEST(Gemm, ResultDoesNotDependOnTheNumberOfThreads) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      expect_same_bits_on_any_number_of_threads<float>(128, 1024, 784, transpose_a, transpose_b);
      expect_same_bits_on_any_number_of_threads<float>(129, 333, 400, transpose_a, transpose_b);
      expect_same_bits_on_any_number_of_threads<float>(128, 10, 1024, transpose_a, transpose_b);
      expect_same_bits_on_any_number_of_threads<float>(50, 32, 30000, transpose_a, transpose_b);
      expect_same_bits_on_any_number_of_threads<double>(200, 300, 500, transpose_a, transpose_b);
      expect_same_bits_on_any_number_of_threads<BFloat16>(200, 300, 1100, transpose_a, transpose_b);
    }
}

// With OpenBLAS: up to 2^18 multiplications, starting a second thread costs more than it saves.
TEST(Gemm, SmallProductsAreOneTile) {
  const auto tiles = [](const GemmSpec& spec) {
    const Gemm gemm = Gemm::prepare(spec, 8, nullptr);
    return std::pair{gemm.tile_rows(), gemm.tile_cols()};
  };
  EXPECT_EQ(tiles({.m = 64, .n = 64, .k = 64}), std::pair(int64_t{64}, int64_t{64}));
  EXPECT_EQ(tiles({.m = 32, .n = 64, .k = 64, .batch = 2}), std::pair(int64_t{32}, int64_t{64}));
  EXPECT_NE(tiles({.m = 64, .n = 64, .k = 65}), std::pair(int64_t{64}, int64_t{64}));
}

// Every thread has a tile of the products of a training step, whatever the kernel.
TEST(Gemm, ProductsOfAStepHaveATileForEachOf16Threads) {
  for (const HalfKernel* const kernel : {static_cast<const HalfKernel*>(nullptr), gemm_kernel(f32, 128, 1024)})
    for (const GemmSpec& spec :
         {GemmSpec{.m = 128, .n = 1024, .k = 784}, GemmSpec{.m = 128, .n = 1024, .k = 1024, .transpose_b = true},
          GemmSpec{.m = 784, .n = 1024, .k = 128, .transpose_a = true}, GemmSpec{.m = 128, .n = 256, .k = 784}}) {
      const Gemm gemm = Gemm::prepare(spec, 16, kernel);
      const int64_t rows = (spec.m + gemm.tile_rows() - 1) / gemm.tile_rows(),
                    cols = (spec.n + gemm.tile_cols() - 1) / gemm.tile_cols();
      EXPECT_GE(rows * cols, 16) << spec.m << "x" << spec.n << "x" << spec.k << (kernel ? " by kernel" : "");
    }
}

// 300 = 4 x 75 and 77 = 7 x 11 do not divide evenly into most tiles; 256 and 64 do.
TEST(Gemm, NoTileOfAnEpilogueIsEmpty) {
  Pool pool({.threads = 3});
  for (const GemmSpec& spec : {GemmSpec{.m = 64, .n = 64, .k = 8}, GemmSpec{.m = 256, .n = 256, .k = 64, .batch = 2},
                               GemmSpec{.m = 300, .n = 77, .k = 64}, GemmSpec{.m = 16, .n = 16, .k = 16384}}) {
    const std::vector<float> a(static_cast<size_t>(spec.batch * spec.m * spec.k), 1.0f),
        b(static_cast<size_t>(spec.batch * spec.k * spec.n), 1.0f);
    std::atomic<int64_t> elements = 0;
    Gemm::prepare(spec, 3).run(pool, a.data(), b.data(), nullptr, [&](const Tile& tile) {
      EXPECT_GT(tile.rows, 0);
      EXPECT_GT(tile.cols, 0);
      elements += tile.rows * tile.cols;
    });
    EXPECT_EQ(elements, spec.batch * spec.m * spec.n);
  }
}

TEST(Gemm, HalvesCanKeepTheirSumsInFloat) {
  Pool pool({.threads = 2});
  const std::vector<BFloat16> a(512, BFloat16(1.0f)), b(512, BFloat16(1.0f));
  float sum = 0;
  Gemm::prepare({.dtype = bf16, .out = f32, .m = 1, .n = 1, .k = 511}, 2).run(pool, a.data(), b.data(), &sum);
  EXPECT_EQ(sum, 511.0f);
  BFloat16 rounded;
  Gemm::prepare({.dtype = bf16, .m = 1, .n = 1, .k = 511}, 2).run(pool, a.data(), b.data(), &rounded);
  EXPECT_EQ(static_cast<float>(rounded), 512.0f);
}

TEST(Gemm, DoesNotReadC) {
  Pool pool({.threads = 1});
  const std::vector<float> a(4, 1.0f), b(4, 2.0f);
  std::vector<float> c(4, std::numeric_limits<float>::quiet_NaN());
  Gemm::prepare({.m = 2, .n = 2, .k = 2}, 1).run(pool, a.data(), b.data(), c.data());
  for (const float value : c) EXPECT_EQ(value, 4.0f);
}

TEST(Gemm, RejectsUnsupportedTypes) {
  const auto message = [](const GemmSpec& spec) -> std::string {
    try {
      Gemm::prepare(spec, 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.dtype = boolean, .m = 1, .n = 1, .k = 1}),
            "matrix product: operands of dtype bool; convert them to i32, i64 or a float first");
  EXPECT_EQ(message({.dtype = f32, .out = f64, .m = 1, .n = 1, .k = 1}),
            "matrix product: a result of dtype f64 from operands of dtype f32; convert the operands first");
  EXPECT_EQ(message({.m = 1, .n = int64_t{1} << 31, .k = 1}),
            "matrix product: an extent of 2147483648 exceeds 2^31 - 1; split the operands");
}

}  // namespace
}  // namespace lockstep
