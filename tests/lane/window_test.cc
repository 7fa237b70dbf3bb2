#include "lane/cpu/window.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// Few distinct values, so that windows have ties and sums are exact in every dtype.
template <class T>
std::vector<T> small_values(int64_t count, std::mt19937& random) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = static_cast<T>(static_cast<float>(random() % 4));
  return values;
}

template <class T>
class WindowOf : public testing::Test {};
using AllTypes = testing::Types<float, double, BFloat16, Float16, int32_t, int64_t, uint32_t, uint8_t>;
TYPED_TEST_SUITE(WindowOf, AllTypes);

TYPED_TEST(WindowOf, AllFunctionsMatchTheDefinitionOnRandomShapes) {
  using T = TypeParam;
  std::mt19937 random(3);
  Pool pool({.threads = 3});
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int round = 0; round < 100; ++round) {
    WindowSpec s{.dtype = dtype_of<T>, .batch = draw(1, 3), .channels = draw(1, 20)};
    for (int d = 0; d < 2; ++d) {
      s.in[d] = draw(1, 9);
      s.window[d] = draw(1, 4);
      s.stride[d] = draw(1, 3);
      s.pad_lo[d] = draw(0, s.window[d] - 1);
      s.pad_hi[d] = draw(0, s.window[d] - 1);
    }
    const WindowSpec::Pair out = s.out();
    const int64_t in_size = s.batch * s.in[0] * s.in[1] * s.channels, out_size = s.batch * out[0] * out[1] * s.channels;
    const auto x = small_values<T>(in_size, random), v = small_values<T>(in_size, random);
    const auto dy = small_values<T>(out_size, random);
    const auto n_out = static_cast<size_t>(out_size), n_in = static_cast<size_t>(in_size);
    std::vector<double> max(n_out), pick(n_out), sum(n_out), max_dx(n_in), sum_dx(n_in);
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t oy = 0; oy < out[0]; ++oy)
        for (int64_t ox = 0; ox < out[1]; ++ox)
          for (int64_t c = 0; c < s.channels; ++c) {
            const auto o = static_cast<size_t>(((n * out[0] + oy) * out[1] + ox) * s.channels + c);
            double best = std::is_integral_v<T> ? static_cast<double>(std::numeric_limits<T>::lowest()) : -INFINITY;
            int64_t place = -1;
            for (int64_t y = oy * s.stride[0] - s.pad_lo[0]; y < oy * s.stride[0] - s.pad_lo[0] + s.window[0]; ++y)
              for (int64_t z = ox * s.stride[1] - s.pad_lo[1]; z < ox * s.stride[1] - s.pad_lo[1] + s.window[1]; ++z) {
                if (y < 0 || y >= s.in[0] || z < 0 || z >= s.in[1]) continue;
                const int64_t i = ((n * s.in[0] + y) * s.in[1] + z) * s.channels + c;
                const auto value = static_cast<double>(x[static_cast<size_t>(i)]);
                if (place < 0 || value > best) best = value, place = i;
                sum[o] += value;
                sum_dx[static_cast<size_t>(i)] += static_cast<double>(dy[o]);
              }
            max[o] = best;
            if (place < 0) continue;
            pick[o] = static_cast<double>(v[static_cast<size_t>(place)]);
            max_dx[static_cast<size_t>(place)] += static_cast<double>(dy[o]);
          }
    std::vector<T> got_out(n_out), got_in(n_in);
    const auto expect = [](const std::vector<T>& got, const std::vector<double>& want) {
      for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(static_cast<double>(got[i]), want[i]);
    };
    max_pool(pool, s, x.data(), got_out.data());
    expect(got_out, max);
    max_pool_pick(pool, s, x.data(), v.data(), got_out.data());
    expect(got_out, pick);
    sum_pool(pool, s, x.data(), got_out.data());
    expect(got_out, sum);
    max_pool_gradient(pool, s, x.data(), dy.data(), got_in.data());
    expect(got_in, max_dx);
    sum_pool_gradient(pool, s, dy.data(), got_in.data());
    expect(got_in, sum_dx);
  }
}

TEST(Window, NanIsTheMaximumAndGetsTheGradient) {
  Pool pool({.threads = 1});
  const WindowSpec s{.in = {1, 4}, .window = {1, 4}};
  const std::vector<float> x{1, NAN, 3, NAN}, dy{2};
  float y = 0;
  max_pool(pool, s, x.data(), &y);
  EXPECT_TRUE(std::isnan(y));
  std::vector<float> dx(4);
  max_pool_gradient(pool, s, x.data(), dy.data(), dx.data());
  EXPECT_EQ(dx, (std::vector<float>{0, 2, 0, 0}));
}

TEST(Window, MinusInfinityCanBeTheMaximum) {
  Pool pool({.threads = 1});
  const WindowSpec s{.in = {1, 2}, .window = {1, 2}};
  const std::vector<float> x{-INFINITY, -INFINITY}, dy{2};
  std::vector<float> dx(2);
  max_pool_gradient(pool, s, x.data(), dy.data(), dx.data());
  EXPECT_EQ(dx, (std::vector<float>{2, 0}));
}

TEST(Window, IntegerSumsWrapAround) {
  Pool pool({.threads = 1});
  const WindowSpec s{.dtype = i32, .in = {1, 2}, .window = {1, 2}};
  const std::vector<int32_t> x{std::numeric_limits<int32_t>::max(), 1};
  int32_t y = 0;
  sum_pool(pool, s, x.data(), &y);
  EXPECT_EQ(y, std::numeric_limits<int32_t>::min());
}

TEST(Window, RefusesWindowsOfMoreElementsThanPositionsCount) {
  Pool pool({.threads = 1});
  const WindowSpec s{.dtype = u8, .in = {2, int64_t{1} << 31}, .window = {2, 1}};
  EXPECT_THROWS(
      max_pool_pick(pool, s, nullptr, nullptr, nullptr), Error,
      "max_pool: a window of 2 rows of 2147483648 x 1 elements is too long for i32 positions; split the images");
  EXPECT_THROWS(max_pool_gradient(pool, s, nullptr, nullptr, nullptr), Error, "too long for i32 positions");
}

TEST(Window, RejectsInvalidSpecs) {
  Pool pool({.threads = 1});
  const auto message = [&](const WindowSpec& spec) -> std::string {
    try {
      max_pool(pool, spec, nullptr, nullptr);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.dtype = boolean}), "max_pool: an array of dtype bool; convert it to i32, i64 or a float first");
  EXPECT_EQ(message({.stride = {0, 1}}), "max_pool: a stride of 0; it must be at least 1");
}

}  // namespace
}  // namespace lockstep
