#include "lockstep/signal.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

TEST(Interp, IsLinearBetweenPoints) {
  const Array xp = array({1.0f, 2.0f, 4.0f}), fp = array({10.0f, 20.0f, 0.0f});
  EXPECT_ELEMENTS(interp(array({0.0f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 9.0f}), xp, fp), {10, 10, 15, 20, 10, 0, 0}, 1e-5);
  EXPECT_ELEMENTS(interp(array({0.0f, 9.0f}), xp, fp, {.left = -1, .right = -2}), {-1, -2}, 0);
  EXPECT_ELEMENTS(interp(array({5.5f, -0.5f}), array({0.0f, 1.0f, 2.0f}), array({0.0f, 1.0f, 2.0f}), {.period = 4}),
                  {1.5, 0.5}, 1e-5);
  const auto slope = grad([&](const Array& x) { return interp(x, xp, fp); });
  EXPECT_NEAR(slope(full({}, 1.5f)).item<float>(), 10, 1e-5);
  EXPECT_NEAR(jit(slope)(full({}, 3.0f)).item<float>(), -10, 1e-5);
  EXPECT_ELEMENTS(interp(2.5f, array({1.0f}), array({7.0f})), {7}, 0);
  EXPECT_THROWS(interp(1.0f, xp, array({1.0f})), Error, "interp: points f32[3] with values f32[1]");
}

TEST(Convolve, HasThreeModes) {
  const Array a = array({1.0f, 2.0f, 3.0f}), v = array({0.0f, 1.0f, 0.5f});
  EXPECT_ELEMENTS(convolve(a, v), {0, 1, 2.5, 4, 1.5}, 1e-6);
  EXPECT_ELEMENTS(convolve(a, v, "same"), {1, 2.5, 4}, 1e-6);
  EXPECT_ELEMENTS(convolve(a, v, "valid"), {2.5}, 1e-6);
  EXPECT_ELEMENTS(correlate(a, v), {3.5}, 1e-6);
  EXPECT_ELEMENTS(correlate(a, v, "full"), {0.5, 2, 3.5, 3, 0}, 1e-6);
  // The shorter one slides.
  EXPECT_ELEMENTS(convolve(array({1, 1}), array({1, 2, 3, 4}), "full"), {1, 3, 5, 7, 4}, 1e-6);
  EXPECT_ELEMENTS(correlate(array({1, 2}), array({1, 2, 3, 4}), "valid"), {11, 8, 5}, 1e-6);
  EXPECT_ELEMENTS(grad([&](const Array& x) { return sum(convolve(x, v, "valid")); })(a), {0.5, 1, 0}, 1e-6);
  EXPECT_THROWS(convolve(a, v, "half"), Error, "convolve: no mode is called \"half\"; use full, same or valid");
  EXPECT_THROWS(convolve(zeros({0}), v), Error, "convolve: f32[0] and f32[3]; pass two vectors");
}

TEST(Differences, OfNeighbours) {
  const Array x = array({1, 4, 9, 16});
  EXPECT_TEXT(diff(x), "i32[3] [3, 5, 7]");
  EXPECT_TEXT(diff(x, 0, {.n = 2}), "i32[2] [2, 2]");
  EXPECT_TEXT(diff(x, 0, {.prepend = 0, .append = array({0})}), "i32[5] [1, 3, 5, 7, -16]");
  EXPECT_TEXT(diff(array({true, false, false})), "bool[2] [true, false]");
  EXPECT_TEXT(diff(array({{1, 2}, {4, 8}}), 0), "i32[1,2] [[3, 6]]");
  EXPECT_TEXT(ediff1d(x, array({-1, -2}), 7), "i32[6] [7, 3, 5, 7, -1, -2]");
  EXPECT_TEXT(gradient(x, 0), "f32[4] [3, 4, 6, 7]");
  EXPECT_ELEMENTS(gradient(x, 0, 2.0f), {1.5, 2, 3, 3.5}, 1e-6);
  // Quadratics are exact inside, whatever the coordinates.
  const Array places = array({0.0f, 1.0f, 3.0f, 4.0f});
  EXPECT_ELEMENTS(gradient(places * places, 0, places), {1, 2, 6, 7}, 1e-5);
  EXPECT_EQ(gradient(zeros({3, 4})).size(), 2u);
  EXPECT_ELEMENTS(gradient(x, 2.0f)[0], {1.5, 2, 3, 3.5}, 1e-6);
  EXPECT_TEXT(gradient(array({1.0f, 3.0f}), 0), "f32[2] [2, 2]");
  EXPECT_THROWS(gradient(array({1.0f}), 0), Error,
                "gradient: dimension 0 of [1] has 1 elements; at least 2 are needed");
}

TEST(Trapezoid, IntegratesLinesExactly) {
  EXPECT_ELEMENTS(trapezoid(array({0.0f, 2.0f, 4.0f})), {4}, 1e-6);
  EXPECT_ELEMENTS(trapezoid(array({0, 2, 4}), 0.5), {2}, 1e-6);
  EXPECT_ELEMENTS(trapezoid(array({0.0f, 2.0f, 6.0f}), array({0.0f, 1.0f, 3.0f})), {9}, 1e-6);
  EXPECT_ELEMENTS(trapezoid(array({{0.0f, 1.0f}, {2.0f, 3.0f}}), array({0.0f, 2.0f}), 0), {2, 4}, 1e-6);
}

TEST(Unwrap, RemovesJumps) {
  std::vector<float> angles, wrapped;
  for (int i = 0; i < 20; ++i) {
    angles.push_back(0.7f * static_cast<float>(i));
    wrapped.push_back(std::remainder(angles.back(), static_cast<float>(2 * M_PI)));
  }
  EXPECT_ELEMENTS(unwrap(Array::from(wrapped, {20})), {angles.begin(), angles.end()}, 1e-4);
  EXPECT_ELEMENTS(unwrap(array({0.0f, 3.0f, 2.0f, 0.0f}), -1, {.period = 4}), {0, -1, -2, 0 - 4}, 1e-6);
}

TEST(Polynomials, HaveTheHighestPowerFirst) {
  const Array p = array({2.0f, 0.0f, -1.0f});
  EXPECT_ELEMENTS(polyval(p, array({0.0f, 1.0f, 2.0f})), {-1, 1, 7}, 1e-6);
  EXPECT_TEXT(polyval(array({1, 2}), array({3})), "i32[1] [5]");
  EXPECT_ELEMENTS(polyadd(p, array({1.0f, 1.0f})), {2, 1, 0}, 0);
  EXPECT_ELEMENTS(polysub(array({1.0f}), p), {-2, 0, 2}, 0);
  EXPECT_ELEMENTS(polymul(array({1.0f, 1.0f}), array({1.0f, -1.0f})), {1, 0, -1}, 1e-6);
  EXPECT_ELEMENTS(polyder(p), {4, 0}, 0);
  EXPECT_ELEMENTS(polyder(polyint(p, 2), 2), {2, 0, -1}, 1e-6);
  EXPECT_ELEMENTS(polyint(array({2, 3}), 1, 5), {1, 3, 5}, 1e-6);
  EXPECT_THROWS(polyder(p, -1), Error, "polyder: -1 derivatives requested");
}

}  // namespace
}  // namespace lockstep
