#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

struct CustomLayer {
  Array w, b;
};

// x^2 with a gradient that is wrong on purpose: 100 x.
const auto marked = custom_vjp([](Array x) { return x * x; },
                               [](Array x) {
                                 return std::pair{x * x, x};
                               },
                               [](Array x, Array ct) { return 100.f * x * ct; });

TEST(CustomVjp, ReplacesTheGradientButNotTheValue) {
  EXPECT_EQ(marked(3.f).item<float>(), 9);
  EXPECT_EQ(grad(marked)(3.f).item<float>(), 300);
  EXPECT_EQ(grad([](Array x) { return 2.f * marked(x * 2.f); })(3.f).item<float>(), 2400);
}

TEST(CustomVjp, UnderJitAndVmap) {
  const Array x = array({1.f, 2.f});
  EXPECT_TEXT(jit(vmap(marked))(x), "f32[2] [1, 4]");
  EXPECT_EQ(jit(grad(marked))(3.f).item<float>(), 300);
  EXPECT_TEXT(vmap(grad(marked))(x), "f32[2] [100, 200]");
  EXPECT_TEXT(grad([](Array y) { return sum(vmap(marked)(y)); })(x), "f32[2] [100, 200]");
  EXPECT_TEXT(jit(grad([](Array y) { return sum(jit(vmap(jit(marked)))(y)); }))(x), "f32[2] [100, 200]");
}

TEST(CustomVjp, SecondDerivativeDifferentiatesTheGivenGradient) {
  EXPECT_EQ(grad(grad(marked))(3.f).item<float>(), 100);
}

TEST(CustomVjp, InsideScanCondAndRemat) {
  const auto in_scan = [](Array x) {
    return scan([](Array c, Nothing) { return std::pair{marked(c), Nothing{}}; }, x, Nothing{}, {.length = 2}).first;
  };
  EXPECT_EQ(in_scan(2.f).item<float>(), 16);
  EXPECT_EQ(grad(in_scan)(2.f).item<float>(), 400 * 200);
  EXPECT_EQ(grad([](Array x) {
              return cond(
                  x > 0.f, marked, [](Array y) { return y; }, x);
            })(3.f)
                .item<float>(),
            300);
  EXPECT_EQ(grad(remat([](Array x) { return marked(x) + x; }))(3.f).item<float>(), 301);
}

TEST(CustomVjp, CapturedArraysHaveNoGradient) {
  const Array x = array({1.f, 2.f});
  const auto loss = [&](Array w, bool stops) {
    const Array factor = stops ? stop_gradient(w) : w;
    const auto f = custom_vjp([&](Array a) { return a * factor; },
                              [&](Array a) {
                                return std::pair{a * factor, a};
                              },
                              [&](Array, Array ct) { return ct * factor; });
    return sum(f(x)) + w;
  };
  EXPECT_THROWS(grad([&](Array w) { return loss(w, false); })(3.f), Error,
                "custom_vjp: the function is differentiated with respect to a captured value of type f32[]");
  EXPECT_EQ(grad([&](Array w) { return loss(w, true); })(3.f).item<float>(), 1);
  EXPECT_EQ(loss(3.f, false).item<float>(), 12);
}

TEST(CustomVjp, ResidualsMayBeAnyTree) {
  struct Saved {
    std::vector<Array> values;
    int power;
  };
  const auto f = custom_vjp([](Array x, Array y) { return x * y; },
                            [](Array x, Array y) {
                              return std::pair{x * y, Saved{{x, y, array({1, 2})}, 3}};
                            },
                            [](Saved s, Array ct) {
                              return std::tuple{ct * s.values[1] * static_cast<float>(s.power),
                                                ct * s.values[0] * astype(sum(s.values[2]), f32)};
                            });
  const auto [gx, gy] = grad<0, 1>(f)(5.f, 7.f);
  EXPECT_EQ(gx.item<float>(), 21);
  EXPECT_EQ(gy.item<float>(), 15);
}

TEST(CustomVjp, TreesOfArgumentsAndResults) {
  const auto f = custom_vjp(
      [](CustomLayer l) {
        return std::pair{sum(l.w), l.b};
      },
      [](CustomLayer l) {
        return std::pair{std::pair{sum(l.w), l.b}, l};
      },
      [](CustomLayer l, std::pair<Array, Array> ct) {
        return CustomLayer{broadcast_to(ct.first, l.w.shape()) * 7.f, ct.second * 11.f};
      });
  const CustomLayer g = grad([&f](CustomLayer l) {
    auto [a, b] = f(l);
    return a + sum(b);
  })(CustomLayer{ones({2}), ones({3})});
  EXPECT_TEXT(g.w, "f32[2] [7, 7]");
  EXPECT_TEXT(g.b, "f32[3] [11, 11, 11]");
}

TEST(CustomVjp, SharedOperandsUnderVmapSumTheirGradients) {
  const auto f = custom_vjp([](Array w, Array x) { return w * x; },
                            [](Array w, Array x) {
                              return std::pair{w * x, std::pair{w, x}};
                            },
                            [](std::pair<Array, Array> s, Array ct) {
                              return std::pair{10.f * ct * s.second, ct * s.first};
                            });
  const auto total = [&f](Array w, Array x) { return sum(vmap(f, {.in_axes = {std::nullopt, 0}})(w, x)); };
  const auto [gw, gx] = grad<0, 1>(total)(2.f, array({1.f, 2.f, 3.f}));
  EXPECT_TEXT(gw, "f32[] 60");
  EXPECT_TEXT(gx, "f32[3] [2, 2, 2]");
}

TEST(CustomVjp, MayCaptureArrays) {
  const Array scale = full({2}, 3.f);
  const auto f = custom_vjp([&](Array x) { return x * scale; },
                            [&](Array x) {
                              return std::pair{x * scale, Nothing{}};
                            },
                            [&](Nothing, Array ct) { return ct * scale * scale; });
  EXPECT_TEXT(f(ones({2})), "f32[2] [3, 3]");
  EXPECT_TEXT(grad([&f](Array x) { return sum(f(x)); })(ones({2})), "f32[2] [9, 9]");
}

TEST(CustomVjp, WrongShapesAreErrors) {
  const auto value = [](Array x) { return sum(x); };
  const auto with = [&](auto forward, auto backward) { return custom_vjp(value, forward, backward); };
  const auto forward = [](Array x) { return std::pair{sum(x), x}; };
  EXPECT_THROWS(with(
                    [](Array x) {
                      return std::pair{x, x};
                    },
                    [](Array x, Array) { return x; })(ones({2})),
                Error, "custom_vjp: forward returns other result types than the function");
  EXPECT_THROWS(with(forward, [](Array, Array ct) { return ct; })(ones({2})), Error,
                "custom_vjp: gradient 0 is f32[], but the argument is f32[2]; a gradient has its argument's type");
  EXPECT_THROWS(with(forward,
                     [](Array x, Array) {
                       return std::pair{x, x};
                     })(ones({2})),
                Error, "custom_vjp: backward returns 2 arrays for 1 argument arrays");
}

// The backward function may return what all devices share for an argument of which each has its own.
TEST(CustomVjp, SharedGradientsBelongToEachDevice) {
  const auto f = custom_vjp([](Array x) { return psum(x, "i"); },
                            [](Array x) {
                              return std::pair{psum(x, "i"), Nothing{}};
                            },
                            [](Nothing, Array ct) { return 3.f * ct; });
  const VmapOptions shared{.in_axes = {0, std::nullopt}, .out_axes = std::nullopt, .axis_name = "i"};
  EXPECT_TEXT(vmap([&](Array, Array x) { return f(x); }, shared)(arange(4), Array(2.f)), "f32[] 8");
  EXPECT_TEXT(vmap(grad(f), {.axis_name = "i"})(array({1.f, 2.f})), "f32[2] [3, 3]");
  EXPECT_TEXT(jit(vmap(grad(f), {.axis_name = "i"}))(array({1.f, 2.f})), "f32[2] [3, 3]");
}

// Each device has its own gradient of an argument that all share: an error where it is used.
TEST(CustomVjp, GradientsThatVaryAreErrorsWhereTheyAreUsed) {
  const auto with = [](auto backward) {
    return custom_vjp([](Array w) { return 2.f * w; }, [](Array w) { return std::pair{2.f * w, Nothing{}}; }, backward);
  };
  const auto own = [](Nothing, Array ct) { return ct * astype(axis_index("i") + 1, f32); };
  const Array w = full({}, 3.f);
  const auto on_devices = [](auto f) { return vmap(f, {.axis_name = "i"})(arange(2)); };
  EXPECT_TEXT(on_devices([&](Array) { return with(own)(w); }), "f32[2] [6, 6]");
  EXPECT_THROWS(
      on_devices([&](Array) { return grad(with(own))(w); }), Error,
      "custom_vjp: gradient 0 is f32[]{i}, but the argument is f32[]: braces name the mesh axes along which each "
      "device has its own value, and the argument has one value for all devices along i; return psum of the "
      "gradient over i, or pass pvary of the argument");
  const auto summed = [&](Nothing none, Array ct) { return psum(own(none, ct), "i"); };
  EXPECT_TEXT(on_devices([&](Array) { return grad(with(summed))(w); }), "f32[2] [3, 3]");
  EXPECT_TEXT(on_devices([&](Array) { return grad(with(own))(pvary(w, "i")); }), "f32[2] [1, 2]");
}

}  // namespace
}  // namespace lockstep
