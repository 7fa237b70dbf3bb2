#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "support/text.h"

namespace lockstep {
namespace {

struct GradLayer {
  Array w, b;
};

Array cube(const Array& x) { return x * x * x; }

TEST(Grad, OfOneArgument) {
  EXPECT_EQ(grad(cube)(2.f).item<float>(), 12);
  const Array g = grad([](Array x) { return sum(x * x); })(array({1.f, 2.f, 3.f}));
  EXPECT_TEXT(g, "f32[3] [2, 4, 6]");
}

TEST(Grad, OfATreeIsATree) {
  const auto loss = [](std::vector<GradLayer> layers, int power) {
    Array total = 0.f;
    for (const GradLayer& l : layers) total = total + sum(l.w) * static_cast<float>(power) + sum(l.b * l.b);
    return total;
  };
  const std::vector<GradLayer> g =
      grad(loss)(std::vector<GradLayer>{{ones({2}), full({1}, 3.f)}, {ones({1}), full({2}, 4.f)}}, 5);
  ASSERT_EQ(g.size(), 2u);
  EXPECT_TEXT(g[0].w, "f32[2] [5, 5]");
  EXPECT_TEXT(g[0].b, "f32[1] [6]");
  EXPECT_TEXT(g[1].w, "f32[1] [5]");
  EXPECT_TEXT(g[1].b, "f32[2] [8, 8]");
}

TEST(Grad, WithRespectToChosenArguments) {
  const auto f = [](Array x, Array y, Array z) { return x * x * y + z; };
  EXPECT_EQ(grad<1>(f)(3.f, 5.f, 1.f).item<float>(), 9);
  const auto [gz, gx] = grad<2, 0>(f)(3.f, 5.f, 1.f);
  EXPECT_EQ(gz.item<float>(), 1);
  EXPECT_EQ(gx.item<float>(), 30);
  const auto [once, again] = grad<1, 1>(f)(3.f, 5.f, 1.f);
  EXPECT_EQ(once.item<float>(), 9);
  EXPECT_EQ(again.item<float>(), 9);
  // Arguments that are not differentiated may be integers.
  EXPECT_EQ(grad<1>(f)(3, 5.f, 1).item<float>(), 9);
}

TEST(Grad, ValueAndGradReturnsBoth) {
  const auto [value, g] = value_and_grad(cube)(2.f);
  EXPECT_EQ(value.item<float>(), 8);
  EXPECT_EQ(g.item<float>(), 12);
}

TEST(Grad, AuxIsReturnedUnchanged) {
  const auto f = [](Array x) { return std::pair{sum(x * x), std::tuple{x + 1.f, arange(2), std::string("aux"), 7}}; };
  const auto [value, g] = value_and_grad(f)(array({1.f, 2.f}));
  const auto& [moved, integers, text, number] = value.second;
  EXPECT_EQ(value.first.item<float>(), 5);
  EXPECT_TEXT(moved, "f32[2] [2, 3]");
  EXPECT_TEXT(integers, "i32[2] [0, 1]");
  EXPECT_EQ(text, "aux");
  EXPECT_EQ(number, 7);
  EXPECT_TEXT(g, "f32[2] [2, 4]");
  EXPECT_TEXT(grad(f)(array({1.f, 2.f})), "f32[2] [2, 4]");
}

TEST(Grad, UnusedArgumentsHaveZeros) {
  const auto [gx, gy] = grad<0, 1>([](Array x, Array) { return sum(x); })(ones({2}), ones({3}));
  EXPECT_TEXT(gx, "f32[2] [1, 1]");
  EXPECT_TEXT(gy, "f32[3] [0, 0, 0]");
  EXPECT_EQ(grad([](Array) { return Array(4.f); })(1.f).item<float>(), 0);
}

TEST(Grad, KeepsElementTypes) {
  for (DType t : {bf16, f16, f32, f64}) {
    const Array g = grad([](Array x) { return sum(x * x); })(astype(array({1.f, 2.f}), t));
    EXPECT_EQ(g.dtype(), t);
    EXPECT_ELEMENTS(g, {2, 4}, 0);
  }
  // Through a conversion the gradient has the argument's type.
  const Array g = grad([](Array x) { return sum(astype(x, f32) * 3.f); })(ones({2}, bf16));
  EXPECT_EQ(g.dtype(), bf16);
  EXPECT_ELEMENTS(g, {3, 3}, 0);
}

TEST(Grad, FlowsThroughCapturesOfTheDifferentiatedFunctionOnly) {
  const Array c = full({2}, 5.f);
  EXPECT_TEXT(grad([&c](Array x) { return sum(c * x); })(ones({2})), "f32[2] [5, 5]");
  // The inner function captures a traced array of the outer one.
  const Array g = grad([](Array x) { return grad([x](Array y) { return x * x * y * y; })(3.f); })(2.f);
  EXPECT_EQ(g.item<float>(), 24);  // d/dx 6 x^2
}

TEST(Grad, OfGradOfGrad) {
  const auto f = [](Array x) { return sin(x) * x; };
  const double x = 0.7;
  EXPECT_NEAR(grad(f)(x).item<double>(), std::sin(x) + x * std::cos(x), 1e-6);
  EXPECT_NEAR(grad(grad(f))(x).item<double>(), 2 * std::cos(x) - x * std::sin(x), 1e-6);
  EXPECT_NEAR(grad(grad(grad(f)))(x).item<double>(), -3 * std::sin(x) - x * std::cos(x), 1e-6);
}

TEST(Grad, TransformedFunctionsAcceptNumbersForArrays) {
  const auto f = jit(grad(jit(cube)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(static_cast<float>(i)).item<float>(), 3.f * static_cast<float>(i * i));
  EXPECT_EQ(f.compiled(), 1u);
  EXPECT_EQ(std::get<0>(vjp(cube, 2.f).second(1.f)).item<float>(), 12);
}

TEST(Grad, HessianVectorProduct) {
  const auto f = [](Array x) { return sum(x * x * x); };
  const Array v = array({1.f, 10.f});
  const Array hv = grad([&](Array x) { return sum(grad(f)(x) * v); })(array({2.f, 3.f}));
  EXPECT_TEXT(hv, "f32[2] [12, 180]");
}

TEST(Grad, StopGradientIsTheIdentityWithoutAGradient) {
  const auto f = [](Array x) { return x * stop_gradient(x * x); };
  EXPECT_EQ(f(3.f).item<float>(), 27);
  EXPECT_EQ(grad(f)(3.f).item<float>(), 9);
  EXPECT_EQ(grad(grad(f))(3.f).item<float>(), 0);
  EXPECT_EQ(jit(grad(f))(3.f).item<float>(), 9);
}

TEST(Grad, IntegersInBetweenCarryNoGradient) {
  const auto f = [](Array x) { return sum(take(x, argmax(x)) * 2.f); };
  EXPECT_TEXT(grad(f)(array({1.f, 5.f, 3.f})), "f32[3] [0, 2, 0]");
}

TEST(Vjp, PullbackMayBeCalledRepeatedly) {
  const auto [value, pullback] = vjp([](Array x, Array y) { return x * x * y; }, array({1.f, 2.f}), array({3.f, 4.f}));
  EXPECT_TEXT(value, "f32[2] [3, 16]");
  for (int i = 0; i < 3; ++i) {
    const auto [gx, gy] = pullback(array({1.f, static_cast<float>(i)}));
    EXPECT_EQ(gx.to_vector<float>(), (std::vector<float>{6, 16.f * static_cast<float>(i)}));
    EXPECT_EQ(gy.to_vector<float>(), (std::vector<float>{1, 4.f * static_cast<float>(i)}));
  }
}

TEST(Vjp, TreesInAndOut) {
  struct Out {
    Array twice, square;
  };
  const auto [value, pullback] = vjp(
      [](GradLayer l) {
        return Out{l.w * 2.f, l.b * l.b};
      },
      GradLayer{ones({2}), full({1}, 3.f)});
  EXPECT_TEXT(value.square, "f32[1] [9]");
  const auto [g] = pullback({array({1.f, 10.f}), ones({1})});
  EXPECT_TEXT(g.w, "f32[2] [2, 20]");
  EXPECT_TEXT(g.b, "f32[1] [6]");
}

TEST(Vjp, IntegersGetZerosOfTheirType) {
  const auto [value, pullback] = vjp(
      [](Array x, Array n) {
        return std::pair{x * astype(n, f32), n + 1};
      },
      array({2.f}), array({3}));
  EXPECT_TEXT(value.second, "i32[1] [4]");
  const auto [gx, gn] = pullback({array({1.f}), array({9})});
  EXPECT_TEXT(gx, "f32[1] [3]");
  EXPECT_TEXT(gn, "i32[1] [0]");
}

TEST(Vjp, InsideJitAndUnderGrad) {
  const auto f = [](Array x) {
    auto [y, pullback] = vjp([](Array z) { return z * z * z; }, x);
    return sum(y * std::get<0>(pullback(ones_like(y))));  // 3 x^5
  };
  EXPECT_TEXT(jit(f)(array({1.f, 2.f})), "f32[] 99");
  EXPECT_TEXT(grad(f)(array({1.f, 2.f})), "f32[2] [15, 240]");
}

TEST(Remat, GradientsAreTheSame) {
  const auto f = [](Array x, Array w) { return sum(tanh(dot(tanh(dot(x, w)), w))); };
  const Array x = random::normal(random::key(0), {3, 4}), w = random::normal(random::key(1), {4, 4});
  EXPECT_EQ(remat(f)(x, w).item<float>(), f(x, w).item<float>());
  const auto [gx, gw] = grad<0, 1>(f)(x, w);
  const auto [rx, rw] = grad<0, 1>(remat(f))(x, w);
  EXPECT_ELEMENTS(rx, gx.to_vector<double>(), 1e-6);
  EXPECT_ELEMENTS(rw, gw.to_vector<double>(), 1e-6);
  const auto [jx, jw] = jit(grad<0, 1>(remat(f)))(x, w);
  EXPECT_ELEMENTS(jx, gx.to_vector<double>(), 1e-6);
}

TEST(Remat, TheLoweredProgramComputesTwice) {
  const auto block = [](Array x) { return exp(sin(x)); };
  const auto loss = [block](Array x) { return sum(block(block(x))); };
  const auto loss_remat = [block](Array x) { return sum(remat(block)(remat(block)(x))); };
  const Array x = ones({8});
  const std::string kept = jit(grad(loss)).lowered(x), again = jit(grad(loss_remat)).lowered(x);
  EXPECT_EQ(occurrences(kept, "= sin "), 2u) << kept;
  EXPECT_GT(occurrences(again, "= sin "), 2u) << again;
  EXPECT_ELEMENTS(grad(loss_remat)(x), grad(loss)(x).to_vector<double>(), 1e-6);
}

TEST(Remat, CapturesAndTreesPass) {
  const Array scale = full({2}, 3.f);
  const auto f = remat([&scale](GradLayer l) { return std::pair{l.w * scale, l.b}; });
  EXPECT_TEXT(f(GradLayer{ones({2}), Array(1.f)}).first, "f32[2] [3, 3]");
  const auto g = grad([&f](GradLayer l) {
    auto [a, b] = f(l);
    return sum(a) * b;
  })(GradLayer{ones({2}), Array(2.f)});
  EXPECT_TEXT(g.w, "f32[2] [6, 6]");
  EXPECT_TEXT(g.b, "f32[] 6");
}

// Every composition of the transforms gives the derivatives of f(x) = x sin(x)^2 written by hand.
struct Compositions : testing::Test {
  static Array f(const Array& x) { return sin(x) * sin(x) * x; }
  static double derivative(double x) { return 2 * std::sin(x) * std::cos(x) * x + std::sin(x) * std::sin(x); }
  static double second(double x) { return 2 * x * std::cos(2 * x) + 2 * std::sin(2 * x); }

  const std::vector<double> points = {-1.5, -0.3, 0.0, 0.8, 2.0};
  Array xs() const { return astype(Array::from(points, {5}), f32); }

  // Same as f, by a loop of two iterations.
  static Array looped(const Array& x) {
    return scan([x](Array c, Nothing) { return std::pair{c * sin(x), Nothing{}}; }, x, Nothing{}, {.length = 2}).first;
  }
  static Array chosen(const Array& x) {
    return cond(
        x < 10.f, [](Array y) { return f(y); }, [](Array y) { return y; }, x);
  }
  static Array by_hand(const Array& x) {
    return custom_vjp([](Array y) { return f(y); },
                      [](Array y) {
                        return std::pair{f(y), y};
                      },
                      [](Array y, Array ct) { return ct * (2.f * sin(y) * cos(y) * y + sin(y) * sin(y)); })(x);
  }

  template <class F>
  void check(const char* what, F batched, double (*wanted)(double)) {
    SCOPED_TRACE(what);
    const std::vector<double> got = batched(xs()).template to_vector<double>();
    ASSERT_EQ(got.size(), points.size());
    for (size_t i = 0; i < points.size(); ++i) EXPECT_NEAR(got[i], wanted(points[i]), 2e-5) << "x = " << points[i];
  }

  template <class F>
  void check_all(const char* name, F g) {
    SCOPED_TRACE(name);
    const auto total = [](auto h) { return [h](Array x) { return sum(vmap(h)(x)); }; };
    check("vmap(grad)", vmap(grad(g)), derivative);
    check("vmap(jit(grad))", vmap(jit(grad(g))), derivative);
    check("jit(vmap(grad))", jit(vmap(grad(g))), derivative);
    check("vmap(grad(jit))", vmap(grad(jit(g))), derivative);
    check("vmap(grad(remat))", vmap(grad(remat(g))), derivative);
    check("vmap(remat(grad))", vmap(remat(grad(g))), derivative);
    check("jit(remat(vmap(grad(remat))))", jit(remat(vmap(grad(remat(g))))), derivative);
    check("grad(sum(vmap))", grad(total(g)), derivative);
    check("jit(grad(sum(vmap)))", jit(grad(total(g))), derivative);
    check("grad(sum(vmap(remat)))", grad(total(remat(g))), derivative);
    check("grad(remat(sum(vmap(jit))))", grad(remat(total(jit(g)))), derivative);
    check("vmap(grad(grad))", vmap(grad(grad(g))), second);
    check("jit(vmap(grad(jit(grad(remat)))))", jit(vmap(grad(jit(grad(remat(g)))))), second);
    check("grad(sum(vmap(grad)))", grad(total(grad(g))), second);
    check("vmap(grad(remat(grad)))", vmap(grad(remat(grad(g)))), second);
    const auto scanned = [](auto h) {
      return [h](Array x) {
        return scan([h](Nothing, Array e) { return std::pair{Nothing{}, h(e)}; }, Nothing{}, x).second;
      };
    };
    check("scan(grad)", scanned(grad(g)), derivative);
    check("jit(scan(grad))", jit(scanned(grad(g))), derivative);
    check("scan(grad(grad))", scanned(grad(grad(g))), second);
    check("grad(sum(scan))", grad([&](Array x) { return sum(scanned(g)(x)); }), derivative);
    check("grad(sum(scan(remat)))", grad([&](Array x) { return sum(scanned(remat(g))(x)); }), derivative);
    check("jit(grad(sum(scan(grad))))", jit(grad([&](Array x) { return sum(scanned(grad(g))(x)); })), second);
  }
};

TEST_F(Compositions, OfAPlainFunction) { check_all("plain", f); }
TEST_F(Compositions, OfAScan) { check_all("scan", looped); }
TEST_F(Compositions, OfACond) { check_all("cond", chosen); }
TEST_F(Compositions, OfACustomGradient) { check_all("custom_vjp", by_hand); }

}  // namespace
}  // namespace lockstep
