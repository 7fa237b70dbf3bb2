#include "lane/cpu/conv.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "lockstep/error.h"

namespace lockstep {
namespace {

using Pair = ConvSpec::Pair;

template <class T>
std::vector<T> random_pixels(int64_t count, std::mt19937& random) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = static_cast<T>(std::normal_distribution<float>()(random));
  return values;
}

// Calls f(index in x, index in w, index in y) for every product of the convolution: y[iy] += x[ix] * w[iw].
template <class F>
void for_each_product(const ConvSpec& s, Pair out, F f) {
  const int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t oy = 0; oy < out[0]; ++oy)
      for (int64_t ox = 0; ox < out[1]; ++ox)
        for (int64_t ky = 0; ky < s.kernel[0]; ++ky)
          for (int64_t kx = 0; kx < s.kernel[1]; ++kx) {
            const int64_t ay = oy * s.stride[0] + ky * s.kernel_dilation[0] - s.pad_lo[0];
            const int64_t ax = ox * s.stride[1] + kx * s.kernel_dilation[1] - s.pad_lo[1];
            if (ay < 0 || ax < 0 || ay % s.in_dilation[0] || ax % s.in_dilation[1]) continue;
            const int64_t iy = ay / s.in_dilation[0], ix = ax / s.in_dilation[1];
            if (iy >= s.in[0] || ix >= s.in[1]) continue;
            for (int64_t o = 0; o < s.out_channels; ++o)
              for (int64_t c = 0; c < group_in; ++c)
                f(((n * s.in[0] + iy) * s.in[1] + ix) * s.in_channels + o / group_out * group_in + c,
                  ((ky * s.kernel[1] + kx) * group_in + c) * s.out_channels + o,
                  ((n * out[0] + oy) * out[1] + ox) * s.out_channels + o);
          }
}

template <class T>
void expect_near_in_norm(const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    norm += want[i] * want[i];
  }
  ASSERT_LE(std::sqrt(error), tolerance * std::sqrt(norm) + 1e-30);
}

template <class T>
double conv_tolerance() {
  if (std::is_same_v<T, double>) return 1e-13;
  return std::is_same_v<T, float> ? 1e-5 : std::is_same_v<T, Float16> ? 1e-3 : 1e-2;
}

ConvSpec random_spec(DType dtype, std::mt19937& random) {
  const auto pick = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  ConvSpec s{.dtype = dtype};
  s.batch = pick(1, 4);
  s.groups = random() % 3 == 0 ? pick(2, 3) : 1;
  s.in_channels = s.groups * pick(1, 5);
  s.out_channels = s.groups * pick(1, 6);
  const bool plain = random() % 3 == 0;
  for (int d = 0; d < 2; ++d) {
    s.in[d] = pick(1, 11);
    s.kernel[d] = pick(1, 5);
    s.pad_lo[d] = pick(plain ? 0 : -1, 3);
    s.pad_hi[d] = pick(plain ? 0 : -1, 3);
    if (plain) continue;
    s.stride[d] = pick(1, 3);
    s.in_dilation[d] = pick(1, 2);
    s.kernel_dilation[d] = pick(1, 2);
  }
  return s;
}

// Compares the result and both gradients with sums in double precision.
template <class T>
void check_all_directions(const ConvSpec& s, Pool& pool, std::mt19937& random) {
  const Conv conv = Conv::prepare(s);
  const Pair out = conv.out();
  const int64_t x_size = s.batch * s.in[0] * s.in[1] * s.in_channels;
  const int64_t w_size = s.kernel[0] * s.kernel[1] * s.in_channels / s.groups * s.out_channels;
  const int64_t y_size = s.batch * out[0] * out[1] * s.out_channels;
  const auto x = random_pixels<T>(x_size, random), w = random_pixels<T>(w_size, random);
  const auto dy = random_pixels<T>(y_size, random);
  std::vector<double> y_want(static_cast<size_t>(y_size)), dx_want(x.size()), dw_want(w.size());
  for_each_product(s, out, [&](int64_t ix, int64_t iw, int64_t iy) {
    const auto i = static_cast<size_t>(ix), j = static_cast<size_t>(iw), k = static_cast<size_t>(iy);
    y_want[k] += static_cast<double>(x[i]) * static_cast<double>(w[j]);
    dx_want[i] += static_cast<double>(dy[k]) * static_cast<double>(w[j]);
    dw_want[j] += static_cast<double>(dy[k]) * static_cast<double>(x[i]);
  });
  const T stale = static_cast<T>(NAN);
  std::vector<T> y(y_want.size(), stale), dx(x.size(), stale), dw(w.size(), stale);
  std::atomic<int64_t> covered = 0;
  conv.forward(pool, x.data(), w.data(), y.data(), [&](const Tile& tile) { covered += tile.rows * tile.cols; });
  conv.input_gradient(pool, dy.data(), w.data(), dx.data());
  conv.filter_gradient(pool, x.data(), dy.data(), dw.data());
  EXPECT_EQ(covered, y_size);
  expect_near_in_norm(y, y_want, conv_tolerance<T>());
  expect_near_in_norm(dx, dx_want, conv_tolerance<T>());
  expect_near_in_norm(dw, dw_want, conv_tolerance<T>());
}

template <class T>
class ConvOf : public testing::Test {};
using Floats = testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(ConvOf, Floats);

TYPED_TEST(ConvOf, AllDirectionsMatchTheDefinitionOnRandomShapes) {
  std::mt19937 random(11);
  Pool pool({.threads = 3});
  for (int round = 0; round < 150; ++round)
    check_all_directions<TypeParam>(random_spec(dtype_of<TypeParam>, random), pool, random);
}

// The columns matrix is divided into parts of its columns.
TYPED_TEST(ConvOf, DeepWindowsMatchTheDefinition) {
  std::mt19937 random(13);
  Pool pool({.threads = 3});
  const DType dtype = dtype_of<TypeParam>;
  const ConvSpec specs[] = {
      {.dtype = dtype,
       .batch = 40,
       .in = {3, 2},
       .in_channels = 160,
       .out_channels = 48,
       .kernel = {3, 3},
       .pad_lo = {1, 1},
       .pad_hi = {1, 1}},
      {.dtype = dtype,
       .batch = 2,
       .in = {5, 6},
       .in_channels = 301,
       .out_channels = 40,
       .kernel = {3, 2},
       .stride = {2, 2},
       .pad_lo = {1, 0},
       .pad_hi = {1, 1}},
      {.dtype = dtype,
       .batch = 3,
       .in = {5, 5},
       .in_channels = 320,
       .out_channels = 64,
       .kernel = {3, 3},
       .pad_lo = {2, 2},
       .pad_hi = {2, 2},
       .kernel_dilation = {2, 2},
       .groups = 2},
      {.dtype = dtype,
       .batch = 2,
       .in = {3, 3},
       .in_channels = 30,
       .out_channels = 1200,
       .kernel = {3, 3},
       .pad_lo = {1, 1},
       .pad_hi = {1, 1},
       .in_dilation = {1, 2}},
      {.dtype = dtype, .batch = 3, .in = {4, 4}, .in_channels = 1300, .out_channels = 33, .kernel = {1, 1}},
  };
  for (const ConvSpec& spec : specs) check_all_directions<TypeParam>(spec, pool, random);
}

TEST(Conv, EpilogueGetsTheSameValuesWithAndWithoutAResult) {
  std::mt19937 random(12);
  Pool pool({.threads = 2});
  const Conv conv = Conv::prepare({.batch = 5,
                                   .in = {20, 20},
                                   .in_channels = 8,
                                   .out_channels = 12,
                                   .kernel = {5, 5},
                                   .pad_lo = {2, 2},
                                   .pad_hi = {2, 2},
                                   .groups = 2});
  const auto x = random_pixels<float>(5 * 20 * 20 * 8, random), w = random_pixels<float>(5 * 5 * 4 * 12, random);
  std::vector<float> stored(5 * 20 * 20 * 12), seen(stored.size());
  conv.forward(pool, x.data(), w.data(), stored.data());
  conv.forward(pool, x.data(), w.data(), nullptr, [&](const Tile& tile) {
    for (int64_t r = 0; r < tile.rows; ++r)
      for (int64_t c = 0; c < tile.cols; ++c)
        seen[static_cast<size_t>((tile.row0 + r) * 12 + tile.col0 + c)] =
            static_cast<float*>(tile.data)[r * tile.ld + c];
  });
  EXPECT_EQ(stored, seen);
}

TEST(Conv, ResultsDoNotDependOnTheNumberOfThreads) {
  std::mt19937 random(13);
  for (const int64_t channels : {32, 170}) {  // 170: the columns are divided
    const Conv conv = Conv::prepare({.batch = 20,
                                     .in = {14, 14},
                                     .in_channels = channels,
                                     .out_channels = 16,
                                     .kernel = {5, 5},
                                     .pad_lo = {2, 2},
                                     .pad_hi = {2, 2}});
    const int64_t pixels = 20 * 14 * 14;
    const auto x = random_pixels<float>(pixels * channels, random), dy = random_pixels<float>(pixels * 16, random);
    const auto w = random_pixels<float>(25 * channels * 16, random);
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 5}) {
      Pool pool({.threads = threads});
      std::vector<std::vector<float>> now{std::vector<float>(dy.size()), std::vector<float>(x.size()),
                                          std::vector<float>(w.size())};
      conv.forward(pool, x.data(), w.data(), now[0].data());
      conv.input_gradient(pool, dy.data(), w.data(), now[1].data());
      conv.filter_gradient(pool, x.data(), dy.data(), now[2].data());
      if (threads == 1) first = now;
      EXPECT_EQ(first, now);
    }
  }
}

TEST(Conv, EmptyImagesAndBatchesGiveZeroGradients) {
  Pool pool({.threads = 2});
  std::vector<float> x(18, 1.0f), w(50, 1.0f), dx(18, 5.0f), dw(50, 5.0f);
  // The window does not fit: no output, so no gradient.
  const Conv too_large = Conv::prepare({.batch = 2, .in = {3, 3}, .kernel = {5, 5}, .stride = {2, 2}});
  EXPECT_EQ(too_large.out(), (Pair{0, 0}));
  too_large.forward(pool, x.data(), w.data(), nullptr, [](const Tile&) { FAIL(); });
  too_large.input_gradient(pool, nullptr, w.data(), dx.data());
  too_large.filter_gradient(pool, x.data(), nullptr, dw.data());
  for (const float value : dx) EXPECT_EQ(value, 0.0f);
  for (int i = 0; i < 25; ++i) EXPECT_EQ(dw[static_cast<size_t>(i)], 0.0f);
  const Conv no_images = Conv::prepare({.batch = 0, .in = {5, 5}, .out_channels = 2, .kernel = {5, 5}});
  std::fill(dw.begin(), dw.end(), 5.0f);
  no_images.filter_gradient(pool, nullptr, nullptr, dw.data());
  for (const float value : dw) EXPECT_EQ(value, 0.0f);
}

TEST(Conv, RejectsInvalidSpecs) {
  const auto message = [](const ConvSpec& spec) -> std::string {
    try {
      Conv::prepare(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.dtype = i32}), "convolution: arrays of dtype i32; convert them to a float type first");
  EXPECT_EQ(message({.in_channels = 3, .out_channels = 4, .groups = 2}),
            "convolution: 3 input and 4 output channels in 2 groups; both must be multiples of the groups");
  EXPECT_EQ(message({.stride = {0, 1}}),
            "convolution: stride 0, input dilation 1 and kernel dilation 1; each must be at least 1");
}

}  // namespace
}  // namespace lockstep
