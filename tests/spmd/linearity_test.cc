// linearize through loops that have no gradient, and which functions count as linear.
#include <functional>

#include "array/near.h"
#include "lockstep/forward.h"
#include "lockstep/lockstep.h"

namespace lockstep::linearity {
namespace {

using Pair = std::pair<Array, Array>;

// 2^k x for the smallest k with which it is at least 5.
Array doubled(const Array& x) {
  return while_loop([](Array v) { return v < 5.f; }, [](Array v) { return v * 2.f; }, x);
}
// w^n, with a number of rounds that is not known when it is traced.
Array power_of(const Array& w, const Array& n) {
  return fori_loop(
      Array(0), n, [w](Array, Array c) { return c * w; }, ones_like(w));
}

TEST(Linearize, PassesThroughWhileLoops) {
  const auto [y, linear] = linearize(doubled, Array(1.f));
  EXPECT_TEXT(y, "f32[] 8");
  EXPECT_TEXT(linear(1.f), "f32[] 8");
  EXPECT_TEXT(linear(-0.5f), "f32[] -4");
  EXPECT_TEXT(jit([](Array x, Array t) { return linearize(doubled, x).second(t); })(2.f, 3.f), "f32[] 12");
  EXPECT_TEXT(vmap([&](Array t) { return linear(t); })(array({1.f, 2.f})), "f32[2] [8, 16]");
  EXPECT_TEXT(vmap([](Array x) { return linearize(doubled, x).second(ones_like(x)); })(array({1.f, 3.f, 6.f})),
              "f32[3] [8, 2, 1]");
  EXPECT_TEXT(jvp(linear, 1.f, 3.f).second, "f32[] 24");
}

TEST(Linearize, PassesThroughLoopsWithComputedBounds) {
  const auto [y, linear] = linearize(power_of, Array(3.f), Array(4));
  EXPECT_TEXT(y, "f32[] 81");
  EXPECT_TEXT(linear(1.f, 0), "f32[] 108");
  const auto again = [](Array w) { return linearize([](Array v) { return power_of(v, 4); }, w).second(Array(1.f)); };
  EXPECT_TEXT(jvp(again, 3.f, 1.f).second, "f32[] 108");  // 12 w^2
}

TEST(Linearize, PassesThroughLoopsInsideOtherEquations) {
  const auto in_scan = [](Array x) {
    return scan([](Array c, Array v) { return Pair{doubled(c / 4.f) * v, c}; }, x, array({1.f, 2.f})).first;
  };
  const auto in_branch = [](Array x) {
    return cond(
        x > 0.f, [](Array v) { return doubled(v); }, [](Array v) { return v; }, x);
  };
  const auto in_remat = [](Array x) { return remat([](Array v) { return doubled(v) * v; })(x); };
  for (const std::function<Array(Array)>& f : {std::function<Array(Array)>(in_scan), {in_branch}, {in_remat}}) {
    const auto [y, linear] = linearize(f, Array(1.5f));
    const auto [wanted, tangent] = jvp(f, Array(1.5f), Array(2.f));
    EXPECT_ELEMENTS(y, wanted.to_vector<double>(), 1e-6);
    EXPECT_ELEMENTS(linear(2.f), tangent.to_vector<double>(), 1e-6);
  }
}

TEST(Linearize, ComputesLoopsWithGradientsOnce) {
  const auto f = [](Array x) {
    return scan([](Array c, Array v) { return Pair{sin(c) * v, exp(c)}; }, x, array({1.f, 2.f, 3.f}));
  };
  const auto linear = linearize(f, Array(0.5f)).second;
  const std::string text = program_text([&](Array t) { return linear(t); }, Array(1.f));
  for (const char* op : {"sin", "exp", "cos"}) EXPECT_EQ(text.find(op), std::string::npos) << text;
}

TEST(Linearize, ReverseModeOfLoopsIsStillAnError) {
  EXPECT_THROWS(grad(doubled)(1.f), Error, "while_loop: has no reverse-mode gradient");
  const auto linear = linearize(doubled, Array(1.f)).second;
  EXPECT_THROWS(vjp([&](Array t) { return linear(t); }, Array(1.f)), Error, "while_loop: has no reverse-mode gradient");
}

template <class Tangent>
auto identity_with(Tangent tangent) {
  return custom_jvp([](Array x) { return x * 1.f; },
                    [tangent](Array x, Array t) {
                      return Pair{x * 1.f, tangent(x, t)};
                    });
}
template <class F>
auto gradient_of(F f) {
  return grad([f](Array x) { return sum(f(x)); })(array({1.f, 2.f}));
}

TEST(CustomJvp, RulesThatAreNotLinearHaveNoGradient) {
  const auto square = identity_with([](Array, Array t) { return t * t; });
  const auto sine = identity_with([](Array, Array t) { return sin(t); });
  for (const auto& gradient : {std::function<Array()>([&] { return gradient_of(square); }),
                               std::function<Array()>([&] { return gradient_of(sine); }),
                               std::function<Array()>([&] { return gradient_of(jit(vmap(square))); })})
    EXPECT_THROWS(gradient(), Error,
                  "custom_jvp: the rule is not linear in the tangents, so it has no gradient: the derivative of its "
                  "tangents depends on tangent 0, f32[2]; use each tangent only in sums and in products with values");
  EXPECT_TEXT(jvp(square, array({1.f, 2.f}), array({3.f, 4.f})).second, "f32[2] [9, 16]");
  EXPECT_TEXT(jit(vmap([&](Array x) { return jvp(square, x, 3.f * x).second; }))(array({1.f, 2.f})), "f32[2] [9, 36]");
}

TEST(CustomJvp, RulesWithAConstantPartHaveNoGradient) {
  for (const auto& tangent : std::vector<std::function<Array(Array, Array)>>{
           [](Array, Array t) { return sin(t) + 3.f; }, [](Array, Array t) { return 2.f * t + 3.f; },
           [](Array x, Array t) { return t - x; }, [](Array x, Array) { return ones_like(x); },
           [](Array x, Array t) { return where(x > 1.5f, t, 1.f); },
           [](Array, Array t) {
             return slice(concatenate({ones({1}), t}), {0}, {2});
           }})
    EXPECT_THROWS(
        gradient_of(identity_with(tangent)), Error,
        "custom_jvp: the rule is not linear in the tangents, so it has no gradient: tangent 0 of its result has "
        "a part that does not depend on them; leave that part out (zeros_like() for no derivative)");
}

TEST(CustomJvp, LinearRulesOfAnyFormHaveGradients) {
  const auto expect_gradient = [](const char* wanted, std::function<Array(Array, Array)> tangent) {
    EXPECT_TEXT(gradient_of(identity_with(tangent)), wanted);
    EXPECT_TEXT(jvp(grad([&](Array x) { return sum(identity_with(tangent)(x)); }), array({1.f, 2.f}), ones({2})).first,
                wanted);
  };
  expect_gradient("f32[2] [0, 0]", [](Array, Array t) { return zeros_like(t); });
  expect_gradient("f32[2] [0, 0]", [](Array x, Array) { return x * 0.f; });
  expect_gradient("f32[2] [3, 3]", [](Array x, Array t) { return 3.f * t + zeros_like(x); });
  expect_gradient("f32[2] [0, 1]", [](Array x, Array t) { return where(x > 1.5f, t, 0.f); });
  expect_gradient("f32[2] [2, 4]", [](Array x, Array t) { return jvp([](Array v) { return v * v; }, x, t).second; });
  expect_gradient("f32[2] [2, 4]", [](Array x, Array t) {
    return cond(
        sum(x) > 0.f, [](Array v, Array d) { return 2.f * v * d; }, [](Array, Array d) { return d; }, x, t);
  });
  expect_gradient("f32[2] [2, 4]",
                  [](Array x, Array t) { return remat([](Array v, Array d) { return 2.f * v * d; })(x, t); });
  // The derivative of a loop, of c -> c^2 twice.
  expect_gradient("f32[2] [4, 32]", [](Array x, Array t) {
    const auto loop = [](Array v) {
      return scan([](Array c, Nothing) { return std::pair{c * c, Nothing{}}; }, v, Nothing{}, {.length = 2}).first;
    };
    return jvp(loop, x, t).second;
  });
  // sin(c + 1) of the result of a loop: its value has a constant part, its tangent has none.
  EXPECT_NO_THROW(gradient_of(identity_with([](Array x, Array t) {
    const auto f = [](Array v) {
      return sin(scan(
                     [](Array c, Nothing) {
                       return std::pair{c * c, Nothing{}};
                     },
                     v, Nothing{}, {.length = 2})
                     .first +
                 1.f);
    };
    return jvp(f, x, t).second;
  })));
}

TEST(LinearTranspose, TakesFunctionsWithBranchesAndRemat) {
  const Array w = array({2.f, 3.f});
  const auto f = [&](Array t) {
    return remat([w](Array d) { return d * w; })(cond(
        sum(w) > 0.f, [w](Array d) { return d * w; }, [](Array d) { return d; }, t));
  };
  EXPECT_TEXT(std::get<0>(linear_transpose(f, zeros({2}))(ones({2}))), "f32[2] [4, 9]");
}

}  // namespace
}  // namespace lockstep::linearity
