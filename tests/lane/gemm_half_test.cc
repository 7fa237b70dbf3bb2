#include "lane/cpu/gemm_half.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lane/cpu/conv.h"
#include "lane/cpu/gemm.h"

namespace lockstep {
namespace {

template <class T>
std::vector<T> random_halves(int64_t count, std::mt19937& random) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = static_cast<T>(std::normal_distribution<float>()(random));
  return values;
}

// Every implementation of products of T on this machine: its kernels, and OpenBLAS, for halves after conversion to f32.
template <class T>
std::vector<const HalfKernel*> ways() {
  std::vector<const HalfKernel*> found{nullptr};
  if (const HalfKernel* const own = gemm_kernel(f32, 64, 64); own && std::is_same_v<T, float>) found.push_back(own);
  for (const HalfKernel* const kernel : half_kernels())
    if (kernel->dtype == dtype_of<T>) found.push_back(kernel);
  return found;
}

std::string name_of(const HalfKernel* kernel) { return kernel ? kernel->name : "OpenBLAS"; }

// Half the distance from |x| to the next T above it.
template <class T>
double half_ulp(double x) {
  const int bits = std::is_same_v<T, BFloat16> ? 8 : std::is_same_v<T, Float16> ? 11 : 24;
  const int least = std::is_same_v<T, Float16> ? -14 : -126;  // the exponent of subnormals
  return std::ldexp(1.0, std::max(x == 0 ? least : std::ilogb(x), least) - bits);
}

// An element by the definition, and the error bound of f32 sums in any order: each of the k additions errs by at most
// one unit in the last place of a sum that is at most sum |a||b|.
struct Exact {
  double value, bound;
};
template <class T>
Exact exact(const GemmSpec& s, const T* a, const T* b, int64_t row, int64_t col) {
  long double sum = 0, magnitude = 0;
  for (int64_t p = 0; p < s.k; ++p) {
    const T x = s.transpose_a ? a[p * s.lda + row] : a[row * s.lda + p];
    const T y = s.transpose_b ? b[col * s.ldb + p] : b[p * s.ldb + col];
    const long double product = static_cast<long double>(x) * static_cast<long double>(y);
    sum += product;
    magnitude += std::abs(product);
  }
  return {static_cast<double>(sum), static_cast<double>(static_cast<long double>(s.k) * 0x1p-23L * magnitude)};
}

template <class T, class Out>
void expect_exact_enough(const GemmSpec& s, const T* a, const T* b, int64_t row, int64_t col, Out got) {
  const Exact want = exact(s, a, b, row, col);
  const double bound = want.bound + 1.01 * half_ulp<Out>(std::abs(want.value) + want.bound);
  ASSERT_LE(std::abs(static_cast<double>(got) - want.value), bound)
      << "element " << row << ", " << col << " of " << s.m << "x" << s.n << "x" << s.k;
}

// Runs a spec into C filled with a marker. Checks every element, or `samples` of
// them, and that nothing else is written.
template <class T, class Out>
void check_product(const HalfKernel* kernel, GemmSpec spec, Pool& pool, std::mt19937& random, int samples = 0) {
  SCOPED_TRACE(name_of(kernel));
  spec.dtype = dtype_of<T>;
  spec.out = dtype_of<Out>;
  const Gemm gemm = Gemm::prepare(spec, pool.threads(), kernel);
  const GemmSpec& s = gemm.spec();
  const auto a = random_halves<T>(s.lda * (s.transpose_a ? s.k : s.m) + s.stride_a * (s.batch - 1), random);
  const auto b = random_halves<T>(s.ldb * (s.transpose_b ? s.n : s.k) + s.stride_b * (s.batch - 1), random);
  const Out mark = static_cast<Out>(-12345.0f);
  std::vector<Out> c(static_cast<size_t>(s.ldc * s.m + s.stride_c * (s.batch - 1)), mark);
  gemm.run(pool, a.data(), b.data(), c.data());
  std::vector<bool> result(c.size());
  for (int64_t i = 0; i < s.batch; ++i)
    for (int64_t row = 0; row < s.m; ++row)
      for (int64_t col = 0; col < s.n; ++col) {
        const auto at = static_cast<size_t>(i * s.stride_c + row * s.ldc + col);
        result[at] = true;
        if (samples > 0 && random() % static_cast<uint64_t>(s.m * s.n) >= static_cast<uint64_t>(samples)) continue;
        expect_exact_enough(s, a.data() + i * s.stride_a, b.data() + i * s.stride_b, row, col, c[at]);
      }
  for (size_t i = 0; i < c.size(); ++i)
    if (!result[i]) {
      ASSERT_EQ(static_cast<float>(c[i]), static_cast<float>(mark)) << "written outside the result";
    }
}

template <class T>
class GemmOfHalves : public testing::Test {};
using Halves = testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(GemmOfHalves, Halves);

template <class T>
class GemmByKernel : public testing::Test {};
using KernelTypes = testing::Types<BFloat16, Float16, float>;
TYPED_TEST_SUITE(GemmByKernel, KernelTypes);

// Each extent takes all values from 1 to 70 while the others are random.
TYPED_TEST(GemmByKernel, RaggedSizesStridesAndTransposesAreWithinTheErrorBound) {
  using T = TypeParam;
  std::mt19937 random(std::random_device{}());
  Pool pool({.threads = 2});
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(1 + random() % static_cast<uint64_t>(most)); };
  for (const HalfKernel* const kernel : ways<T>())
    for (int64_t extent = 1; extent <= 70; ++extent)
      for (int turn = 0; turn < 3; ++turn) {
        GemmSpec s{.m = up_to(70), .n = up_to(70), .k = up_to(70)};
        (turn == 0 ? s.m : turn == 1 ? s.n : s.k) = extent;
        s.transpose_a = random() % 2;
        s.transpose_b = random() % 2;
        s.batch = random() % 4 == 0 ? 3 : 1;
        if (random() % 2) {
          s.lda = (s.transpose_a ? s.m : s.k) + up_to(5);
          s.ldb = (s.transpose_b ? s.k : s.n) + up_to(5);
          s.ldc = s.n + up_to(5);
          s.stride_a = random() % 3 == 0 ? 0 : s.lda * (s.transpose_a ? s.k : s.m) + up_to(9);
          s.stride_b = s.ldb * (s.transpose_b ? s.n : s.k);
          s.stride_c = s.ldc * s.m + up_to(9);
        }
        if (extent % 2)
          check_product<T, T>(kernel, s, pool, random);
        else
          check_product<T, float>(kernel, s, pool, random);
        if (this->HasFatalFailure()) return;
      }
}

TYPED_TEST(GemmByKernel, LargeProductsAreWithinTheErrorBound) {
  using T = TypeParam;
  std::mt19937 random(3);
  Pool pool({.threads = 3});
  const std::vector<std::array<int64_t, 3>> shapes{{300, 500, 64},  {128, 1024, 784}, {65, 131, 2500},
                                                   {17, 30, 20000}, {1, 2000, 300},   {700, 1, 300}};
  for (const HalfKernel* const kernel : ways<T>())
    for (const auto& [m, n, k] : shapes)
      for (const int transposes : {0, 1, 2, 3}) {
        const GemmSpec s{
            .m = m, .n = n, .k = k, .transpose_a = transposes % 2 == 1, .transpose_b = transposes / 2 == 1};
        check_product<T, T>(kernel, s, pool, random, 100);
        check_product<T, float>(kernel, s, pool, random, 100);
        if (this->HasFatalFailure()) return;
      }
}

template <class T, class Out>
void expect_same_bits_on_any_number_of_threads(const HalfKernel* kernel, GemmSpec s) {
  std::mt19937 random(7);
  s.dtype = dtype_of<T>;
  s.out = dtype_of<Out>;
  const auto a = random_halves<T>(s.m * s.k, random), b = random_halves<T>(s.k * s.n, random);
  std::vector<Out> first(static_cast<size_t>(s.m * s.n)), c(first.size());
  for (const int threads : {1, 2, 3}) {
    Pool pool({.threads = threads});
    Gemm::prepare(s, threads, kernel).run(pool, a.data(), b.data(), threads == 1 ? first.data() : c.data());
    if (threads > 1) {
      EXPECT_EQ(std::memcmp(first.data(), c.data(), c.size() * sizeof(Out)), 0)
          << name_of(kernel) << ", " << s.m << "x" << s.n << "x" << s.k << " on " << threads << " threads";
    }
  }
}

TYPED_TEST(GemmByKernel, ResultDoesNotDependOnTheNumberOfThreads) {
  using T = TypeParam;
  for (const HalfKernel* const kernel : ways<T>())
    for (const int transposes : {0, 1, 2, 3})
      for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
               {128, 1024, 784}, {129, 333, 401}, {200, 300, 1100}, {128, 10, 1024}, {50, 32, 30000}}) {
        const GemmSpec s{
            .m = m, .n = n, .k = k, .transpose_a = transposes % 2 == 1, .transpose_b = transposes / 2 == 1};
        expect_same_bits_on_any_number_of_threads<T, T>(kernel, s);
        expect_same_bits_on_any_number_of_threads<T, float>(kernel, s);
      }
}

// This allows the tiles to depend on the number of threads.
TYPED_TEST(GemmByKernel, ElementDependsOnItsRowItsColumnAndTheDepthAlone) {
  using T = TypeParam;
  std::mt19937 random(8);
  Pool pool({.threads = 1});
  const int64_t m = 61, n = 83, k = 2049;
  const auto a = random_halves<T>(m * k, random), b = random_halves<T>(k * n, random);
  std::vector<float> whole(static_cast<size_t>(m * n)), piece(whole.size());
  for (const HalfKernel* const kernel : ways<T>()) {
    if (!kernel) continue;
    const GemmSpec s{.dtype = dtype_of<T>, .out = f32, .m = m, .n = n, .k = k};
    Gemm::prepare(s, 1, kernel).run(pool, a.data(), b.data(), whole.data());
    for (int round = 0; round < 50; ++round) {
      const auto row = static_cast<int64_t>(random() % m), col = static_cast<int64_t>(random() % n);
      GemmSpec cut = s;
      cut.m = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(m - row));
      cut.n = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n - col));
      cut.lda = k;
      cut.ldb = cut.ldc = n;
      Gemm::prepare(cut, 1, kernel).run(pool, a.data() + row * k, b.data() + col, piece.data());
      for (int64_t r = 0; r < cut.m; ++r)
        ASSERT_EQ(std::memcmp(piece.data() + r * n, whole.data() + (row + r) * n + col,
                              static_cast<size_t>(cut.n) * sizeof(float)),
                  0)
            << kernel->name;
    }
  }
}

TYPED_TEST(GemmByKernel, EpiloguesGetEachElementOnce) {
  using T = TypeParam;
  std::mt19937 random(9);
  Pool pool({.threads = 3});
  for (const HalfKernel* const kernel : ways<T>())
    for (const int64_t k : {0, 5, 1300, 9000}) {
      const int64_t m = 75, n = 210;
      const auto a = random_halves<T>(m * k + 1, random), b = random_halves<T>(k * n + 1, random);
      const Gemm gemm = Gemm::prepare({.dtype = dtype_of<T>, .m = m, .n = n, .k = k}, 3, kernel);
      std::vector<T> c(static_cast<size_t>(m * n), static_cast<T>(7.0f)), seen(c.size(), static_cast<T>(7.0f));
      gemm.run(pool, a.data(), b.data(), c.data());
      std::atomic<int64_t> covered = 0;
      gemm.run(pool, a.data(), b.data(), nullptr, [&](const Tile& tile) {
        covered += tile.rows * tile.cols;
        for (int64_t row = 0; row < tile.rows; ++row)
          std::memcpy(seen.data() + (tile.row0 + row) * n + tile.col0, static_cast<T*>(tile.data) + row * tile.ld,
                      static_cast<size_t>(tile.cols) * sizeof(T));
      });
      EXPECT_EQ(covered, m * n);
      EXPECT_EQ(std::memcmp(c.data(), seen.data(), c.size() * sizeof(T)), 0) << name_of(kernel) << ", k " << k;
      if (k == 0) {
        for (const T value : c) ASSERT_EQ(static_cast<float>(value), 0.0f);
      }
    }
}

// The zeros that pad panels must not be multiplied with infinities or NaN.
TYPED_TEST(GemmByKernel, NonFiniteOperandsAffectOnlyTheirRowsAndColumns) {
  using T = TypeParam;
  Pool pool({.threads = 1});
  const int64_t m = 13, n = 17, k = 7;
  std::vector<T> a(static_cast<size_t>(m * k), static_cast<T>(1.0f)),
      b(static_cast<size_t>(k * n), static_cast<T>(2.0f));
  a[static_cast<size_t>(12 * k + 6)] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  b[static_cast<size_t>(6 * n + 16)] = static_cast<T>(std::numeric_limits<float>::infinity());
  for (const HalfKernel* const kernel : ways<T>()) {
    std::vector<T> c(static_cast<size_t>(m * n));
    Gemm::prepare({.dtype = dtype_of<T>, .m = m, .n = n, .k = k}, 1, kernel).run(pool, a.data(), b.data(), c.data());
    for (int64_t row = 0; row < m; ++row)
      for (int64_t col = 0; col < n; ++col) {
        const auto value = static_cast<float>(c[static_cast<size_t>(row * n + col)]);
        if (row == 12) {
          EXPECT_TRUE(std::isnan(value)) << name_of(kernel);
        } else {
          EXPECT_EQ(value, col == 16 ? std::numeric_limits<float>::infinity() : 14.0f) << name_of(kernel);
        }
      }
  }
}

// Specs of convolutions, without a dtype.
std::vector<ConvSpec> conv_specs() {
  return {{.batch = 3,
           .in = {14, 14},
           .in_channels = 32,
           .out_channels = 40,
           .kernel = {5, 5},
           .pad_lo = {2, 2},
           .pad_hi = {2, 2}},
          {.batch = 2,
           .in = {28, 28},
           .in_channels = 1,
           .out_channels = 32,
           .kernel = {5, 5},
           .pad_lo = {2, 2},
           .pad_hi = {2, 2}},
          {.batch = 2, .in = {6, 6}, .in_channels = 256, .out_channels = 10, .kernel = {3, 3}},
          {.batch = 2, .in = {9, 7}, .in_channels = 6, .out_channels = 9, .kernel = {1, 1}, .groups = 3},
          {.batch = 2,
           .in = {9, 11},
           .in_channels = 6,
           .out_channels = 4,
           .kernel = {3, 2},
           .stride = {2, 1},
           .groups = 2}};
}

// The operands of the three directions of a convolution: forward, and the gradients of the input and the filter.
template <class T>
struct ConvOperands {
  std::vector<T> x, w, dy;

  // The results of the directions, in this order.
  std::array<std::vector<T>, 3> run(const Conv& conv, int threads) const {
    Pool pool({.threads = threads});
    const T stale = static_cast<T>(NAN);
    std::array<std::vector<T>, 3> out{std::vector<T>(dy.size(), stale), std::vector<T>(x.size(), stale),
                                      std::vector<T>(w.size(), stale)};
    conv.forward(pool, x.data(), w.data(), out[0].data());
    conv.input_gradient(pool, dy.data(), w.data(), out[1].data());
    conv.filter_gradient(pool, x.data(), dy.data(), out[2].data());
    return out;
  }

  ConvOperands<float> widened() const { return {{x.begin(), x.end()}, {w.begin(), w.end()}, {dy.begin(), dy.end()}}; }
};

template <class T>
ConvOperands<T> random_operands(const ConvSpec& spec, ConvSpec::Pair out, std::mt19937& random) {
  const int64_t x_size = spec.batch * spec.in[0] * spec.in[1] * spec.in_channels;
  const int64_t w_size = spec.kernel[0] * spec.kernel[1] * spec.in_channels / spec.groups * spec.out_channels;
  const int64_t y_size = spec.batch * out[0] * out[1] * spec.out_channels;
  ConvOperands<T> operands;
  operands.x = random_halves<T>(x_size, random);
  operands.w = random_halves<T>(w_size, random);
  operands.dy = random_halves<T>(y_size, random);
  return operands;
}

// The distance of `got` from `want`, relative to the norm of `want`, is at most the rounding error of T.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t e = 0; e < want.size(); ++e) {
    error += std::pow(static_cast<double>(got[e]) - static_cast<double>(want[e]), 2);
    norm += std::pow(static_cast<double>(want[e]), 2);
  }
  EXPECT_LE(std::sqrt(error), (std::is_same_v<T, BFloat16> ? 0x1p-8 : 0x1p-11) * std::sqrt(norm));
}

// conv_test.cc compares Conv with the definition. Here every implementation must agree with f32 on the same values, on
// any number of threads.
TYPED_TEST(GemmOfHalves, ConvolutionsAgreeWithF32) {
  using T = TypeParam;
  std::mt19937 random(10);
  for (ConvSpec spec : conv_specs()) {
    spec.dtype = f32;
    const Conv wide = Conv::prepare(spec);
    spec.dtype = dtype_of<T>;
    const ConvOperands<T> operands = random_operands<T>(spec, wide.out(), random);
    const auto want = operands.widened().run(wide, 1);
    for (const HalfKernel* const kernel : ways<T>()) {
      const Conv conv = Conv::prepare(spec, kernel);
      const auto got = operands.run(conv, 1);
      for (size_t i = 0; i < 3; ++i) {
        SCOPED_TRACE(fmt::format("{}, direction {}, {} channels", name_of(kernel), i, spec.in_channels));
        expect_close(got[i], want[i]);
      }
      for (const int threads : {2, 3}) {
        const auto again = operands.run(conv, threads);
        for (size_t i = 0; i < 3; ++i)
          EXPECT_EQ(std::memcmp(got[i].data(), again[i].data(), got[i].size() * sizeof(T)), 0) << name_of(kernel);
      }
    }
  }
}

TEST(HalfKernels, FirstKernelOfADtypeIsUsed) {
  for (const DType dtype : {bf16, f16, f32}) {
    const HalfKernel* first = nullptr;
    for (const HalfKernel* const kernel : half_kernels())
      if (!first && kernel->dtype == dtype) first = kernel;
    EXPECT_EQ(half_kernel(dtype), first);
  }
  EXPECT_EQ(half_kernel(f32), nullptr);
}

TEST(HalfKernels, GemmUsesThemAndOneForF32) {
  for (const DType dtype : {bf16, f16}) EXPECT_EQ(gemm_kernel(dtype, 1, 10), half_kernel(dtype));
  for (const DType dtype : {f64, i32}) EXPECT_EQ(gemm_kernel(dtype, 64, 64), nullptr);
  if (const HalfKernel* const kernel = gemm_kernel(f32, 64, 64)) {
    EXPECT_EQ(kernel->dtype, f32);
  }
}

TEST(HalfKernels, NarrowProductsOfF32UseOpenBlas) {
  EXPECT_EQ(gemm_kernel(f32, 1, 1024), nullptr);
  EXPECT_EQ(gemm_kernel(f32, 128, 10), nullptr);
}

}  // namespace
}  // namespace lockstep
