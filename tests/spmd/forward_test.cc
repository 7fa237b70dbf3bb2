// Forward mode: jvp, linearize, linear_transpose and custom_jvp, compared with finite differences, with reverse
// mode and with closed forms, in every nesting with the other transforms.
#include "lockstep/forward.h"

#include <functional>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep::forward_mode {
namespace {

using Function = std::function<Array(const Array&)>;

Array doubles(const std::vector<double>& x) { return Array::from(x, {static_cast<int64_t>(x.size())}); }
Array start() { return doubles({0.5, -1.25, 2.0}); }
Array direction() { return doubles({1.0, 0.5, -0.75}); }
Array weights() { return doubles({0.25, -1.5, 2.0}); }

// From [3] to [3].
Array wave(const Array& x) { return sin(x) * sum(x * x) + tanh(x); }

Array along(const Function& f, const Array& x) { return jvp(f, x, direction()).second; }

Array difference_along(const Function& f, const Array& x, const Array& d) {
  constexpr double kStep = 1e-5;
  return (f(x + kStep * d) - f(x - kStep * d)) / (2 * kStep);
}

void expect_near(const Array& got, const Array& wanted, double tolerance) {
  ASSERT_EQ(to_string(got.type()), to_string(wanted.type()));
  EXPECT_ELEMENTS(got, wanted.to_vector<double>(), tolerance);
}

// A function from [3] to [3] inside a transform.
struct Nesting {
  const char* name;
  std::function<Function(Function)> wrap;
};

// A remainder of the carry keeps iterations of a loop different.
Function in_scan(const Function& f) {
  return [f](const Array& x) {
    const Array xs = stack({x, 2 * x});
    const auto body = [&](const Array& carry, const Array& each) {
      const Array next = 0.5 * carry + f(each + 0.1 * carry);
      return std::pair{next, f(carry)};
    };
    const auto [last, all] = scan(body, x, xs);
    return last + sum(all, 0);
  };
}

Function in_custom_jvp(const Function& f) {
  return [f](const Array& x) {
    const auto rule = [f](const Array& primal, const Array& tangent) { return jvp(f, primal, tangent); };
    return custom_jvp([f](const Array& v) { return f(v); }, rule)(x);
  };
}

const std::vector<Nesting>& nestings() {
  static const std::vector<Nesting> all{
      {"nothing", [](Function f) { return f; }},
      {"jit", [](Function f) -> Function { return jit(f); }},
      {"vmap",
       [](Function f) -> Function { return [f](const Array& x) {
                                      return sum(vmap(f)(stack({x, -x, x * x})), 0);
                                    }; }},
      {"scan", in_scan},
      {"reverse loop without xs",
       [](Function f) -> Function {
         return [f](const Array& x) {
           return fori_loop(
               0, 3, [&](const Array& i, const Array& v) { return f(v) * 0.1 + astype(i, f64); }, x);
         };
       }},
      {"cond",
       [](Function f) -> Function {
         return [f](const Array& x) {
           const auto yes = [&](const Array& v) { return f(v) * at(v, 0); };
           const auto no = [&](const Array& v) { return v; };
           return cond(sum(x) > 0, yes, no, x) + cond(sum(x) < 0, yes, no, x);
         };
       }},
      {"remat", [](Function f) -> Function { return remat(f); }},
      {"custom_jvp", in_custom_jvp},
      {"jvp", [](Function f) -> Function { return [f](const Array& x) { return jvp(f, x, x * x).second; }; }},
      {"grad", [](Function f) -> Function { return grad([f](const Array& x) { return sum(f(x) * f(x)); }); }},
      {"linearize",
       [](Function f) -> Function {
         return [f](const Array& x) {
           const auto [y, linear] = linearize(f, x);
           return y * linear(x) + linear(y);
         };
       }},
      {"jacfwd", [](Function f) -> Function { return [f](const Array& x) { return sum(jacfwd(f)(x), 0); }; }},
      {"jacrev", [](Function f) -> Function { return [f](const Array& x) { return sum(jacrev(f)(x), 1); }; }},
      {"shard_map",
       [](Function f) -> Function {
         const auto each = [f](const Array& x) {
           return psum(f(x + astype(axis_index("i"), f64)), "i") + x * pmean(x, "i") + pmax(x * x, "i");
         };
         return [each](const Array& x) {
           const Mesh mesh = make_mesh({{"i", 2}});
           return sum(reshape(shard_map(each, {.mesh = mesh, .in_specs = {P("i")}, .out_specs = {P("i")}})(
                                  concatenate({x, 2 * x})),
                              {2, 3}),
                      0);
         };
       }},
  };
  return all;
}

TEST(Jvp, OfEveryTransformMatchesFiniteDifferences) {
  for (const Nesting& n : nestings()) {
    SCOPED_TRACE(n.name);
    const Function f = n.wrap(wave);
    const auto [y, dy] = jvp(f, start(), direction());
    expect_near(y, f(start()), 1e-12);
    expect_near(dy, difference_along(f, start(), direction()), 1e-6);
    expect_near(jit([&](const Array& x) { return along(f, x); })(start()), dy, 1e-9);
  }
}

TEST(Jvp, InEveryTransformIsTheSameFunction) {
  const Function tangent = [](const Array& x) { return along(wave, x); };
  const Function closed = [](const Array& x) {
    const Array d = direction(), t = tanh(x);
    return cos(x) * d * sum(x * x) + sin(x) * 2 * sum(x * d) + (1 - t * t) * d;
  };
  for (const Nesting& n : nestings()) {
    SCOPED_TRACE(n.name);
    expect_near(n.wrap(tangent)(start()), n.wrap(closed)(start()), 1e-9);
  }
}

// The gradient of a tangent is the tangent of the gradient.
TEST(Jvp, CommutesWithGrad) {
  for (const Nesting& n : nestings()) {
    SCOPED_TRACE(n.name);
    const Function f = n.wrap(wave);
    const Function slope = grad([&](const Array& x) { return sum(weights() * f(x)); });
    const Array forward_over_reverse = along(slope, start());
    const Array reverse_over_forward = grad([&](const Array& x) { return sum(weights() * along(f, x)); })(start());
    expect_near(forward_over_reverse, reverse_over_forward, 1e-8);
    expect_near(forward_over_reverse, difference_along(slope, start(), direction()), 1e-5);
  }
}

TEST(Jvp, MapsUnderVmap) {
  const Array directions = eye(3, f64);
  const Array columns = vmap([](const Array& d) { return jvp(wave, start(), d).second; })(directions);
  expect_near(columns, transpose(jacrev(wave)(start())), 1e-12);
}

struct Line {
  Array weight;
  std::vector<Array> biases;
  int power = 2;
};

TEST(Jvp, TakesTreesAndSeveralArguments) {
  const auto f = [](const Line& line, const Array& x) {
    return std::pair{line.weight * x * static_cast<float>(line.power), line.biases};
  };
  const Line line{2.f, {3.f, 4.f}}, tangent{5.f, {6.f, 7.f}};
  const auto [y, dy] = jvp(f, std::tuple{line, Array(10.f)}, std::tuple{tangent, Array(1.f)});
  EXPECT_TEXT(y.first, "f32[] 40");
  EXPECT_TEXT(dy.first, "f32[] 104");
  EXPECT_TEXT(dy.second[0], "f32[] 6");
  EXPECT_TEXT(dy.second[1], "f32[] 7");
}

TEST(Jvp, ReturnsAux) {
  const auto f = [](const Array& x) { return std::pair{x * x, std::pair{x + 1.f, std::string("aux")}}; };
  const auto [y, dy, aux] = jvp(f, Array(3.f), Array(1.f), has_aux);
  EXPECT_TEXT(y, "f32[] 9");
  EXPECT_TEXT(dy, "f32[] 6");
  EXPECT_TEXT(aux.first, "f32[] 4");
  EXPECT_EQ(aux.second, "aux");
}

TEST(Jvp, IntegersHaveNoTangents) {
  const auto f = [](const Array& x, const Array& i) { return std::tuple{x * astype(i, f32), i + 1, x > 0}; };
  const auto [y, dy] = jvp(f, std::tuple{Array(3.f), array({1, 2})}, std::tuple{Array(1.f), array({100, 100})});
  EXPECT_TEXT(std::get<0>(dy), "f32[2] [1, 2]");
  EXPECT_TEXT(std::get<1>(y), "i32[2] [2, 3]");
  EXPECT_TEXT(std::get<1>(dy), "i32[2] [0, 0]");
  EXPECT_TEXT(std::get<2>(dy), "bool[] false");
}

TEST(Jvp, NumbersAdaptToTheArrays) {
  const auto square_of = [](const Array& x) { return x * x; };
  EXPECT_TEXT(jvp(square_of, 3.f, 2.f).second, "f32[] 12");
  EXPECT_TEXT(jvp(square_of, doubles({3}), doubles({2})).second, "f64[1] [12]");
  EXPECT_TEXT(jvp(square_of, zeros({}, f64) + 3, Array(2.f)).second, "f64[] 12");
}

TEST(Jvp, OfConstantsIsZero) {
  const auto f = [](const Array& x) { return std::pair{ones({2}), stop_gradient(x) + floor(x)}; };
  const auto [y, dy] = jvp(f, array({1.5f, 2.5f}), ones({2}));
  EXPECT_TEXT(dy.first, "f32[2] [0, 0]");
  EXPECT_TEXT(dy.second, "f32[2] [0, 0]");
}

TEST(Jvp, OfSortedValuesFollowsThem) {
  const auto f = [](const Array& x) { return std::pair{sort(x), max(x)}; };
  const auto [y, dy] = jvp(f, array({3.f, 1.f, 2.f}), array({30.f, 10.f, 20.f}));
  EXPECT_TEXT(dy.first, "f32[3] [10, 20, 30]");
  EXPECT_TEXT(dy.second, "f32[] 30");
}

TEST(Jvp, OfEmptyArrays) {
  const auto [y, dy] = jvp([](const Array& x) { return std::pair{sum(x * x), x}; }, zeros({0}), zeros({0}));
  EXPECT_TEXT(dy.first, "f32[] 0");
  EXPECT_TEXT(dy.second, "f32[0] []");
}

TEST(Jvp, WrongTangentsAreErrors) {
  const auto f = [](const Array& x) { return x * 2.f; };
  EXPECT_THROWS(
      jvp(f, ones({2}), ones({3})), Error,
      "jvp: array 0 of the tangents is f32[3], but its value is f32[2]; a tangent has its value's type: start "
      "with ones_like(value)");
  EXPECT_THROWS(jvp(f, ones({2}), ones({2}, f64)), Error, "jvp: array 0 of the tangents is f64[2]");
  const auto total = [](const std::vector<Array>& x) { return x[0]; };
  EXPECT_THROWS(jvp(total, std::vector<Array>{1.f, 2.f}, std::vector<Array>{1.f}), Error,
                "jvp: 2 elements in one tree and 1 element in another");
}

TEST(Jvp, OfCustomVjpIsAnError) {
  const auto f = custom_vjp([](Array x) { return x * x; },
                            [](Array x) {
                              return std::pair{x * x, x};
                            },
                            [](Array x, Array ct) { return 2.f * x * ct; });
  EXPECT_THROWS(jvp(f, Array(3.f), Array(1.f)), Error,
                "jvp: the function calls one whose gradient custom_vjp defines, which has no forward-mode derivative");
  EXPECT_TEXT(jvp(grad(f), Array(3.f), Array(1.f)).second, "f32[] 2");
  EXPECT_TEXT(linearize(f, Array(3.f)).second(Array(1.f)), "f32[] 6");
}

TEST(Linearize, ReturnsTheTangentWithoutAnotherComputation) {
  for (const Nesting& n : nestings()) {
    SCOPED_TRACE(n.name);
    const Function f = n.wrap(wave);
    const auto [y, linear] = linearize(f, start());
    expect_near(y, f(start()), 1e-12);
    expect_near(linear(direction()), along(f, start()), 1e-9);
    expect_near(linear(2 * direction()), 2 * along(f, start()), 1e-9);
  }
  const auto linear = linearize([](const Array& x) { return exp(sin(x)); }, start()).second;
  const std::string text = program_text([&](const Array& d) { return linear(d); }, direction());
  EXPECT_EQ(text.find("exp"), std::string::npos) << text;
  EXPECT_EQ(text.find("sin"), std::string::npos) << text;
  EXPECT_THROWS(linear(ones({2}, f64)), Error, "linearize: array 0 of the tangents is f64[2], but its value is f64[3]");
}

TEST(Linearize, TakesSeveralArgumentsAndIntegers) {
  const auto f = [](const Array& x, const Array& i) { return std::pair{x * astype(i, f32), i}; };
  const auto [y, linear] = linearize(f, Array(3.f), Array(2));
  EXPECT_TEXT(y.first, "f32[] 6");
  const auto tangent = linear(Array(5.f), Array(0));
  EXPECT_TEXT(tangent.first, "f32[] 10");
  EXPECT_TEXT(tangent.second, "i32[] 0");
}

TEST(LinearTranspose, MapsCotangentsBack) {
  const Array m = array({1.f, 2.f, 3.f, 4.f, 5.f, 6.f});
  const auto f = [&](const Array& x, const Array& y) { return std::pair{matmul(reshape(m, {2, 3}), x), cumsum(y, 0)}; };
  const auto [x, y] = linear_transpose(f, zeros({3}), zeros({2}))(std::pair{array({1.f, 10.f}), array({1.f, 10.f})});
  EXPECT_TEXT(x, "f32[3] [41, 52, 63]");
  EXPECT_TEXT(y, "f32[2] [11, 10]");
}

TEST(LinearTranspose, OfOtherFunctionsIsAnError) {
  EXPECT_THROWS(
      linear_transpose([](const Array& x) { return x * x; }, ones({2})), Error,
      "linear_transpose: the function is not linear: its derivative depends on array 0 of its arguments, f32[2]");
  EXPECT_THROWS(linear_transpose([](const Array& x) { return x; }, arange(2)), Error, "which has no gradient");
}

// x^2 with a tangent that is wrong on purpose: 100 x dx.
const auto marked = custom_jvp([](Array x) { return x * x; },
                               [](Array x, Array dx) {
                                 return std::pair{x * x, 100.f * x * dx};
                               });

TEST(CustomJvp, ReplacesTheDerivativeInBothModes) {
  EXPECT_TEXT(marked(3.f), "f32[] 9");
  EXPECT_TEXT(jvp(marked, 3.f, 1.f).first, "f32[] 9");
  EXPECT_TEXT(jvp(marked, 3.f, 2.f).second, "f32[] 600");
  EXPECT_TEXT(grad(marked)(3.f), "f32[] 300");
  EXPECT_TEXT(grad(grad(marked))(3.f), "f32[] 100");
  EXPECT_TEXT(hessian(marked)(3.f), "f32[] 100");
  EXPECT_TEXT(jit(grad([](Array x) { return 2.f * marked(2.f * x); }))(3.f), "f32[] 2400");
}

TEST(CustomJvp, InsideOtherTransforms) {
  const Array x = array({1.f, 2.f});
  EXPECT_TEXT(jit(vmap(marked))(x), "f32[2] [1, 4]");
  EXPECT_TEXT(vmap(grad(marked))(x), "f32[2] [100, 200]");
  EXPECT_TEXT(grad([](Array y) { return sum(vmap(marked)(y)); })(x), "f32[2] [100, 200]");
  EXPECT_TEXT(jvp(vmap(marked), x, x).second, "f32[2] [100, 400]");
  const auto in_loop = [](Array v) {
    return scan([](Array c, Nothing) { return std::pair{marked(c), Nothing{}}; }, v, Nothing{}, {.length = 2}).first;
  };
  EXPECT_TEXT(grad(in_loop)(2.f), "f32[] 80000");
  EXPECT_TEXT(jvp(in_loop, 2.f, 1.f).second, "f32[] 80000");
  const auto in_branch = [](Array v) {
    return cond(
        v > 0.f, marked, [](Array y) { return y; }, v);
  };
  EXPECT_TEXT(grad(in_branch)(3.f), "f32[] 300");
  EXPECT_TEXT(grad(remat([](Array v) { return marked(v) + v; }))(3.f), "f32[] 301");
}

TEST(CustomJvp, SharedArgumentsUnderVmap) {
  const auto product = custom_jvp([](Array w, Array x, Array i) { return w * x * astype(i, f32); },
                                  [](std::tuple<Array, Array, Array> p, std::tuple<Array, Array, Array> t) {
                                    const auto& [w, x, i] = p;
                                    const Array n = astype(i, f32);
                                    return std::pair{w * x * n, n * (10.f * std::get<0>(t) * x + w * std::get<1>(t))};
                                  });
  const auto total = [&](Array w, Array x) {
    return sum(vmap(product, {.in_axes = {std::nullopt, 0, std::nullopt}})(w, x, Array(1)));
  };
  const auto [gw, gx] = grad<0, 1>(total)(2.f, array({1.f, 2.f, 3.f}));
  EXPECT_TEXT(gw, "f32[] 60");
  EXPECT_TEXT(gx, "f32[3] [2, 2, 2]");
  const auto each = std::tuple{Array(2.f), array({1.f, 2.f, 3.f})};
  EXPECT_TEXT(jvp(total, each, each).second, "f32[] 132");
}

TEST(CustomJvp, TakesTreesAndCapturedArrays) {
  const Array scale = full({2}, 3.f);
  const auto f = custom_jvp(
      [&](std::pair<Array, Array> x) {
        return std::vector<Array>{x.first * scale, x.second};
      },
      [&](std::pair<Array, Array> x, std::pair<Array, Array> t) {
        return std::pair{std::vector<Array>{x.first * scale, x.second},
                         std::vector<Array>{t.first * scale * scale, t.first}};
      });
  const auto [y, dy] = jvp(f, std::pair{ones({2}), ones({2})}, std::pair{ones({2}), zeros({2})});
  EXPECT_TEXT(y[0], "f32[2] [3, 3]");
  EXPECT_TEXT(dy[0], "f32[2] [9, 9]");
  EXPECT_TEXT(dy[1], "f32[2] [1, 1]");
}

TEST(CustomJvp, WrongRulesAreErrors) {
  const auto value = [](Array x) { return sum(x); };
  const auto with = [&](auto rule) { return custom_jvp(value, rule)(ones({2})); };
  EXPECT_THROWS(with([](Array x, Array) {
                  return std::pair{sum(x), x};
                }),
                Error,
                "custom_jvp: tangent 0 of the rule is f32[2], but the function's result is f32[]; both have one type");
  EXPECT_THROWS(with([](Array x, Array) {
                  return std::pair{x, sum(x)};
                }),
                Error, "custom_jvp: result 0 of the rule is");
  EXPECT_THROWS(with([](Array x, Array t) {
                  return std::pair{std::pair{sum(x), x}, sum(t)};
                }),
                Error, "custom_jvp: the rule returns 3 arrays; it must return {result, tangent}, of 1 arrays each");
  const auto captures = [](Array w) {
    return custom_jvp([w](Array x) { return x * w; }, [w](Array x, Array t) { return std::pair{x * w, t * w}; })(2.f);
  };
  EXPECT_THROWS(grad(captures)(3.f), Error,
                "custom_jvp: the function is differentiated with respect to a captured value");
  EXPECT_THROWS(jvp(captures, 3.f, 1.f), Error, "but its rule returns only tangents for its arguments");
}

}  // namespace
}  // namespace lockstep::forward_mode
