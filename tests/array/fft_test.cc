// Fourier transforms of arrays against the sums that define them, and their options.
#include "lockstep/fft.h"

#include <cmath>
#include <complex>
#include <numbers>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using C = std::complex<double>;
using fft::Norm;

std::vector<C> signal(int64_t n) {
  std::vector<C> out;
  for (int64_t k = 0; k < n; ++k)
    out.emplace_back(std::sin(static_cast<double>(k * k % 101)), std::cos(static_cast<double>(3 * k % 53)) - 0.3);
  return out;
}

std::vector<C> plain_transform(const std::vector<C>& x, int direction) {
  const auto n = std::ssize(x);
  std::vector<C> roots, out;
  for (int64_t k = 0; k < n; ++k) {
    const double angle = direction * 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
    roots.emplace_back(std::cos(angle), std::sin(angle));
  }
  for (int64_t k = 0; k < n; ++k) {
    C sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += x[static_cast<size_t>(j)] * roots[static_cast<size_t>(j * k % n)];
    out.push_back(sum);
  }
  return out;
}

Array array_of(const std::vector<C>& values) { return Array::from(values, {std::ssize(values)}); }

void expect_near(const Array& got, const std::vector<C>& wanted, double tolerance) {
  const std::vector<C> numbers = got.to_vector<C>();
  ASSERT_GE(wanted.size(), numbers.size());
  double size = 1, worst = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    size = std::max(size, std::abs(wanted[i]));
    worst = std::max(worst, std::abs(numbers[i] - wanted[i]));
  }
  EXPECT_LE(worst, tolerance * size) << numbers.size() << " elements";
}

class EveryLength : public testing::TestWithParam<int64_t> {};

TEST_P(EveryLength, TransformsAreTheSums) {
  const int64_t n = GetParam();
  const std::vector<C> x = signal(n);
  const Array a = array_of(x);
  const std::vector<C> forward = plain_transform(x, -1);
  expect_near(fft::fft(a), forward, 1e-12);
  expect_near(fft::fft(astype(a, c64)), forward, 2e-6);
  expect_near(fft::ifft(fft::fft(a)), x, 1e-13);
  expect_near(fft::ifft(fft::fft(astype(a, c64))), x, 2e-6);
  std::vector<C> re;
  for (const C& each : x) re.emplace_back(each.real());
  const Array spectrum = fft::rfft(real(a));
  EXPECT_EQ(spectrum.type(), (Type{c128, {n / 2 + 1}}));
  expect_near(spectrum, plain_transform(re, -1), 1e-12);
  expect_near(fft::irfft(spectrum, n), re, 1e-13);
}

std::vector<int64_t> lengths() {
  std::vector<int64_t> out;
  for (int64_t n = 1; n <= 64; ++n) out.push_back(n);
  out.insert(out.end(), {100, 127, 1000, 1024});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Fft, EveryLength, testing::ValuesIn(lengths()), testing::PrintToStringParamName());

// Of a few frequencies, since the sums take long.
TEST(Fft, LongTransformsFindFrequencies) {
  for (const int64_t n : {int64_t{1} << 14, int64_t{10007}}) {
    std::vector<C> x, wanted(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k) {
      C sum = 0;
      for (const int64_t f : {3, 17, 4000})
        sum += std::polar(1.0 / static_cast<double>(f),
                          2 * std::numbers::pi * static_cast<double>(f * k % n) / static_cast<double>(n));
      x.push_back(sum);
    }
    for (const int64_t f : {3, 17, 4000})
      wanted[static_cast<size_t>(f)] = static_cast<double>(n) / static_cast<double>(f);
    expect_near(fft::fft(array_of(x)), wanted, 1e-12);
    expect_near(fft::fft(astype(array_of(x), c64)), wanted, 1e-5);
  }
}

TEST(Fft, ManyLinesAreTransformedAlike) {
  const std::vector<C> x = signal(40 * 12);
  const Array a = reshape(array_of(x), {40, 12});
  const Array rows = fft::fft(a), columns = fft::fft(a, {}, 0);
  for (const int64_t i : {0, 17, 39}) EXPECT_EQ(at(rows, i).to_string(), fft::fft(at(a, i)).to_string());
  EXPECT_EQ(at(columns, 5, 1).to_string(), fft::fft(at(a, 5, 1)).to_string());
}

TEST(Fft, LengthsCutOrPad) {
  const Array x = array({1, 2, 3, 4});
  EXPECT_TEXT(fft::fft(x, 2), "c64[2] [3+0i, -1+0i]");
  EXPECT_TEXT(fft::rfft(x, 2), "c64[2] [3+0i, -1+0i]");
  expect_near(fft::fft(x, 6), plain_transform({1, 2, 3, 4, 0, 0}, -1), 1e-6);
  EXPECT_TEXT(fft::irfft(array({4, 0})), "f32[2] [2, 2]");
  EXPECT_EQ(fft::irfft(zeros({5})).shape(), (Shape{8}));
}

TEST(Fft, NormsDivide) {
  const Array x = array({1, 2, 3, 6});
  EXPECT_NEAR(abs(at(fft::fft(x, {}, -1, Norm::forward), 0)).item<double>(), 3, 1e-6);
  EXPECT_NEAR(abs(at(fft::fft(x, {}, -1, Norm::ortho), 0)).item<double>(), 6, 1e-6);
  EXPECT_NEAR(abs(at(fft::ifft(x), 0)).item<double>(), 3, 1e-6);
  EXPECT_NEAR(abs(at(fft::ifft(x, {}, -1, Norm::forward), 0)).item<double>(), 12, 1e-6);
  EXPECT_ELEMENTS(fft::hfft(array({C(6, 0), C(-2, 1)})), {4, 8}, 1e-6);
  expect_near(fft::ihfft(array({1, 2, 3, 6})), {3, C(-0.5, -1), -1}, 1e-6);
}

TEST(Fft, SeveralAxes) {
  const std::vector<C> x = signal(2 * 3 * 4 * 5);
  const Array a = reshape(array_of(x), {2, 3, 4, 5});
  Array one_by_one = a;
  for (const int64_t axis : {3, 2, 1, 0}) one_by_one = fft::fft(one_by_one, {}, axis);
  expect_near(fft::fftn(a), one_by_one.to_vector<C>(), 1e-12);
  expect_near(fft::ifftn(fft::fftn(a)), x, 1e-13);
  expect_near(fft::fft2(a), fft::fft(fft::fft(a), {}, -2).to_vector<C>(), 1e-12);
  expect_near(fft::fftn(a, {}, Shape{0, 2}), fft::fft(fft::fft(a, {}, 2), {}, 0).to_vector<C>(), 1e-12);
  expect_near(fft::fft2(a, Shape{2, 6}), fft::fft(fft::fft(a, 6), 2, -2).to_vector<C>(), 1e-12);
  const Array r = real(a), half = fft::rfftn(r);
  EXPECT_EQ(half.shape(), (Shape{2, 3, 4, 3}));
  expect_near(half, slice(fft::fftn(complex(r, 0)), {0, 0, 0, 0}, {2, 3, 4, 3}).to_vector<C>(), 1e-12);
  expect_near(fft::irfftn(half, Shape{2, 3, 4, 5}), r.to_vector<C>(), 1e-13);
  expect_near(fft::irfft2(fft::rfft2(r), Shape{4, 5}), r.to_vector<C>(), 1e-13);
}

TEST(Fft, FrequenciesAndShifts) {
  EXPECT_TEXT(fft::fftfreq(5, 0.1), "f32[5] [0, 2, 4, -4, -2]");
  EXPECT_TEXT(fft::fftfreq(4), "f32[4] [0, 0.25, -0.5, -0.25]");
  EXPECT_TEXT(fft::rfftfreq(5, 0.1), "f32[3] [0, 2, 4]");
  EXPECT_TEXT(fft::fftshift(array({0, 1, 2, -2, -1})), "i32[5] [-2, -1, 0, 1, 2]");
  EXPECT_TEXT(fft::ifftshift(fft::fftshift(array({0, 1, 2, -2, -1}))), "i32[5] [0, 1, 2, -2, -1]");
  EXPECT_TEXT(fft::fftshift(array({{0, 1}, {2, 3}}), 0), "i32[2,2] [[2, 3], [0, 1]]");
}

TEST(Fft, GradientsVmapAndJit) {
  // The energy of a spectrum is n times that of the signal.
  const Array x = array({1.0, -2.0, 0.5, 3.0, 1.5}, f64);
  const auto energy = [](const Array& v) { return sum(square(abs(fft::fft(v)))); };
  EXPECT_ELEMENTS(grad(energy)(x), {10, -20, 5, 30, 15}, 1e-12);
  const auto smooth = [](const Array& v) { return sum(fft::irfft(fft::rfft(v) * array({1.0, 0.5, 0.0}, f64), 5) * v); };
  const Array g = grad(smooth)(x);
  const double step = 1e-6;
  for (int64_t i = 0; i < 5; ++i) {
    const Array up = scatter_add(x, array({i}), array({step}, f64)),
                down = scatter_add(x, array({i}), array({-step}, f64));
    EXPECT_NEAR(at(g, i).item<double>(), (smooth(up) - smooth(down)).item<double>() / (2 * step), 1e-7);
  }
  const Array rows = reshape(array_of(signal(12)), {3, 4});
  EXPECT_EQ(vmap([](const Array& v) { return fft::fft(v); })(rows).to_string(), fft::fft(rows).to_string());
  EXPECT_EQ(jit([](const Array& v) { return fft::fft2(v); })(rows).to_string(), fft::fft2(rows).to_string());
}

TEST(Fft, ErrorsSayWhatToDo) {
  const Array z = zeros({4}, c64);
  EXPECT_THROWS(fft::rfft(z), Error,
                "fft::rfft: the input is c64[4]; the transform of real numbers needs a real array");
  EXPECT_THROWS(fft::fft(z, 0), Error, "fft::fft: a transform of length 0; a length must be at least 1");
  EXPECT_THROWS(fft::fft(z, {}, 1), Error, "fft::fft: axis 1 is out of range for [4]");
  EXPECT_THROWS(fft::fft2(zeros({3, 3}), {}, {0, -2}), Error, "fft::fft2: axis 0 of [3, 3] is given twice");
  EXPECT_THROWS(fft::fftn(z, Shape{2, 2}), Error, "fft::fftn: 2 lengths for c64[4]");
  EXPECT_THROWS(fft::fftn(z, Shape{2}, Shape{0, 0}), Error, "fft::fftn: 1 lengths for 2 axes");
  EXPECT_THROWS(fft::fftfreq(0), Error, "fft::fftfreq: a transform of length 0");
}

}  // namespace
}  // namespace lockstep
