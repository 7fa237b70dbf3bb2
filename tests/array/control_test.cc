#include <array>
#include <cmath>
#include <functional>

#include "array/near.h"
#include "lockstep/lockstep.h"

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

namespace lockstep {
namespace {

struct State {
  Array sum, product;
};

const auto add_up = [](Array c, Array x) { return std::pair{c + x, c * x}; };

TEST(Scan, CarriesAndStacks) {
  const auto [last, ys] = scan(add_up, Array(10), array({1, 2, 3}));
  EXPECT_TEXT(last, "i32[] 16");
  EXPECT_TEXT(ys, "i32[3] [10, 22, 39]");
}

TEST(Scan, ReverseKeepsThePositionsOfResults) {
  const auto [last, ys] = scan(add_up, Array(10), array({1, 2, 3}), {.reverse = true});
  EXPECT_TEXT(last, "i32[] 16");
  EXPECT_TEXT(ys, "i32[3] [15, 26, 30]");
}

// A number as the initial carry adapts its element type, as numbers do everywhere.
TEST(Scan, NumbersInTheInitialCarryAdaptTheirType) {
  const Array xs = array({1, 2, 3});
  EXPECT_TEXT(scan(add_up, Array(0), astype(xs, f32)).first, "f32[] 6");
  EXPECT_TEXT(scan(add_up, Array(0.5f), astype(xs, bf16)).first, "bf16[] 6.5");
  EXPECT_TEXT(scan(add_up, zeros({}), astype(xs, bf16)).first, "f32[] 6");
  const auto later = [](std::pair<Array, Array> c, Array x) {  // the second widens only after the first
    return std::pair{std::pair{c.first + x, c.second + c.first}, Nothing{}};
  };
  const auto last = scan(later, std::pair{Array(0), Array(0)}, astype(xs, f32)).first;
  EXPECT_TEXT(last.first, "f32[] 6");
  EXPECT_TEXT(last.second, "f32[] 4");
  const auto slope = grad([](Array c, Array x) { return astype(scan(add_up, c, x).first, f32) * 2.f; });
  EXPECT_TEXT(slope(0.5f, astype(xs, bf16)), "f32[] 2");
}

TEST(Scan, WithoutXsTakesALength) {
  const auto doubled = [](Array c, Nothing) { return std::pair{c * 2, c}; };
  const auto [last, ys] = scan(doubled, Array(1), Nothing{}, {.length = 5});
  EXPECT_TEXT(last, "i32[] 32");
  EXPECT_TEXT(ys, "i32[5] [1, 2, 4, 8, 16]");
}

TEST(Scan, TakesTrees) {
  const auto [last, ys] = scan(
      [](State s, std::pair<Array, Array> x) {
        State next{s.sum + x.first, s.product * x.second};
        return std::pair{next, std::vector<Array>{next.sum, next.product}};
      },
      State{0, 1}, std::pair{array({1, 2, 3}), array({2, 3, 4})});
  EXPECT_TEXT(last.sum, "i32[] 6");
  EXPECT_TEXT(last.product, "i32[] 24");
  EXPECT_TEXT(ys.at(0), "i32[3] [1, 3, 6]");
  EXPECT_TEXT(ys.at(1), "i32[3] [2, 6, 24]");
}

TEST(Scan, OfLengthZeroReturnsTheInitialCarry) {
  const auto [last, ys] = scan(
      [](Array c, Array x) {
        return std::pair{c + sum(x), c};
      },
      full({2}, 7.f), zeros({0, 3}));
  EXPECT_TEXT(last, "f32[2] [7, 7]");
  EXPECT_TEXT(ys, "f32[0,2] []");
  const auto g = grad([](Array c, Array xs) { return sum(scan(add_up, c, xs).first) * 2.f; })(3.f, zeros({0}));
  EXPECT_TEXT(g, "f32[] 2");
}

TEST(Scan, OfLengthOneAndTwo) {
  EXPECT_TEXT(scan(add_up, Array(1), array({5})).first, "i32[] 6");
  EXPECT_TEXT(scan(add_up, Array(1), array({5, 6})).first, "i32[] 12");
}

TEST(Scan, BodyMayCaptureValues) {
  const Array step = array({1.f, 2.f});
  const auto f = [&step](Array scale) {
    return scan(
               [&](Array c, Nothing) {
                 return std::pair{c + step * scale, Nothing{}};
               },
               zeros({2}), Nothing{}, {.length = 3})
        .first;
  };
  EXPECT_TEXT(f(2.f), "f32[2] [6, 12]");
  EXPECT_TEXT(jit(f)(2.f), "f32[2] [6, 12]");
  EXPECT_TEXT(grad([&f](Array s) { return sum(f(s)); })(2.f), "f32[] 9");
}

TEST(Scan, Nests) {
  // Row sums by an inner loop, summed by an outer one.
  const auto total = [](Array m) {
    return scan(
               [](Array outer, Array row) {
                 const Array inner = scan(
                                         [outer](Array c, Array x) {
                                           return std::pair{c + x * outer, c};
                                         },
                                         Array(0.f), row)
                                         .first;
                 return std::pair{outer + inner, inner};
               },
               Array(1.f), m)
        .first;
  };
  const Array m = array({{1.f, 2.f}, {3.f, 4.f}});
  EXPECT_TEXT(total(m), "f32[] 32");  // 1 -> 1 + 3 = 4 -> 4 + 28
  EXPECT_TEXT(jit(total)(m), "f32[] 32");
  EXPECT_TEXT(grad(total)(m), "f32[2,2] [[8, 8], [4, 4]]");
}

// A recurrent network by scan and unrolled.
struct Cell {
  Array w, u;
};
Array unrolled(const Cell& cell, const Array& h, const Array& xs, bool reverse) {
  Array state = h, total = 0.f;
  for (int64_t i = 0; i < xs.shape(0); ++i) {
    const Array x = at(xs, reverse ? xs.shape(0) - 1 - i : i);
    state = tanh(dot(state, cell.w) + dot(x, cell.u));
    total = total + sum(square(state)) * static_cast<float>(1 + i);
  }
  return total + sum(state);
}
Array looped(const Cell& cell, const Array& h, const Array& xs, bool reverse) {
  const auto [last, ys] = scan(
      [&cell](std::pair<Array, Array> carry, Array x) {
        const Array state = tanh(dot(carry.first, cell.w) + dot(x, cell.u));
        return std::pair{std::pair{state, carry.second + 1}, sum(square(state)) * astype(carry.second, f32)};
      },
      std::pair{h, Array(1)}, xs, {.reverse = reverse});
  return sum(ys) + sum(last.first);
}

TEST(Scan, GradientsEqualThoseOfTheUnrolledLoop) {
  const auto [a, b, c, d] = random::split<4>(random::key(0));
  const Cell cell{random::normal(a, {3, 3}), random::normal(b, {2, 3})};
  const Array h = random::normal(c, {3}), xs = random::normal(d, {5, 2});
  for (bool reverse : {false, true}) {
    const auto wanted = value_and_grad<0, 1, 2>(unrolled)(cell, h, xs, reverse);
    const auto check = [&](const auto& result) {
      EXPECT_NEAR(result.first.template item<double>(), wanted.first.item<double>(), 1e-4);
      const auto got = tree_leaves(result.second), want = tree_leaves(wanted.second);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_ELEMENTS(got[i], want[i].to_vector<double>(), 2e-4);
    };
    check(value_and_grad<0, 1, 2>(looped)(cell, h, xs, reverse));
    check(jit(value_and_grad<0, 1, 2>(looped))(cell, h, xs, reverse));
    check(jit(value_and_grad<0, 1, 2>(remat(looped)))(cell, h, xs, reverse));
  }
}

TEST(Scan, SecondDerivative) {
  // x^4 by a loop: the second derivative is 12 x^2.
  const auto power = [](Array x) {
    return scan(
               [x](Array c, Nothing) {
                 return std::pair{c * x, Nothing{}};
               },
               Array(1.f), Nothing{}, {.length = 4})
        .first;
  };
  EXPECT_EQ(grad(power)(2.f).item<float>(), 32);
  EXPECT_EQ(grad(grad(power))(2.f).item<float>(), 48);
  EXPECT_EQ(jit(grad(grad(grad(power))))(2.f).item<float>(), 48);
}

TEST(Scan, UnrolledEqualsRolled) {
  const auto step = [](Array c, std::pair<Array, Array> x) {
    const Array next = c * x.first + x.second;
    return std::pair{next, std::pair{next, c}};
  };
  const Array a = array({1, 2, 3, 4, 5, 6, 7}), b = array({3, -1, 4, 1, -5, 9, 2});
  const auto text = [](const auto& result) {
    return result.first.to_string() + result.second.first.to_string() + result.second.second.to_string();
  };
  for (bool reverse : {false, true}) {
    const auto wanted = text(scan(step, Array(1), std::pair{a, b}, {.reverse = reverse}));
    for (int64_t unroll : {2, 3, 4, 6, 7, 100}) {
      const ScanOptions options{.reverse = reverse, .unroll = unroll};
      EXPECT_EQ(text(scan(step, Array(1), std::pair{a, b}, options)), wanted) << unroll;
      EXPECT_EQ(text(jit([&](Array x, Array y) {
                  return scan(step, Array(1), std::pair{x, y}, options);
                })(a, b)),
                wanted);
    }
  }
  const auto power = [](Array x, int64_t unroll) {
    const auto times = [x](Array c, Nothing none) { return std::pair{c * x, none}; };
    return scan(times, Array(1.f), Nothing{}, {.length = 5, .unroll = unroll}).first;
  };
  for (int64_t unroll : {1, 2, 5}) {
    EXPECT_TEXT(grad([&](Array x) { return power(x, unroll); })(2.f), "f32[] 80");
    const std::string program = program_text([&](Array x) { return power(x, unroll); }, Array(2.f));
    EXPECT_EQ(program.find("scan") == std::string::npos, unroll == 5) << program;
  }
  EXPECT_TEXT(vmap([&](Array x) { return power(x, 2); })(array({1.f, 2.f})), "f32[2] [1, 32]");
  EXPECT_TEXT(scan(add_up, Array(1), zeros({0}), {.unroll = 4}).second, "f32[0] []");
  EXPECT_ERROR(scan(add_up, Array(1), array({1}), {.unroll = 0}),
               "scan: unroll is 0; give the number of iterations in each round, at least 1");
}

TEST(Scan, OneCompiledBodyServesAnyLength) {
  const auto f = jit([](Array x) {
    return scan([](Array c, Nothing) { return std::pair{sin(c), Nothing{}}; }, x, Nothing{}, {.length = 1000}).first;
  });
  const std::string text = f.program(1.f);
  EXPECT_EQ(text.find("sin"), text.rfind("sin")) << text;
  float wanted = 1;
  for (int i = 0; i < 1000; ++i) wanted = std::sin(wanted);
  EXPECT_NEAR(f(1.f).item<float>(), wanted, 1e-4);
}

Array choose(const Array& p, const Array& x) {
  return cond(
      p, [](Array y) { return y * y; }, [](Array y) { return -y; }, x);
}

TEST(ForiLoop, CountsFromTheLowerBound) {
  const auto powers = [](Array i, Array c) { return c * 2 + i; };
  EXPECT_TEXT(fori_loop(3, 6, powers, Array(1)), "i32[] 33");  // ((1*2 + 3)*2 + 4)*2 + 5
  EXPECT_TEXT(fori_loop(3, 3, powers, Array(7)), "i32[] 7");
  EXPECT_TEXT(fori_loop(6, 3, powers, array({7.f})), "f32[1] [7]");
  const auto fibonacci = jit([] {
    return fori_loop(
        0, 10,
        [](Array, std::pair<Array, Array> c) {
          return std::pair{c.second, c.first + c.second};
        },
        std::pair{Array(0), Array(1)});
  });
  EXPECT_TEXT(fibonacci().first, "i32[] 55");
  const auto cubed = [](Array x) {
    return fori_loop(
        0, 3, [x](Array, Array c) { return c * x; }, 1.f);
  };
  EXPECT_TEXT(cubed(2.f), "f32[] 8");
  EXPECT_TEXT(grad(cubed)(2.f), "f32[] 12");
  EXPECT_TEXT(vmap(cubed)(array({1.f, 2.f})), "f32[2] [1, 8]");
}

TEST(Cond, TakesEitherBranch) {
  EXPECT_EQ(choose(true, 3.f).item<float>(), 9);
  EXPECT_EQ(choose(false, 3.f).item<float>(), -3);
  const auto compiled = jit(choose);
  EXPECT_EQ(compiled(true, 3.f).item<float>(), 9);
  EXPECT_EQ(compiled(false, 3.f).item<float>(), -3);
  EXPECT_EQ(compiled.compiled(), 1u);
}

TEST(Cond, GradientIsThatOfTheBranchTaken) {
  const auto f = [](Array x) { return choose(x > 0.f, x); };
  for (const auto& g : {grad(f)(3.f), jit(grad(f))(3.f)}) EXPECT_EQ(g.item<float>(), 6);
  EXPECT_EQ(grad(f)(-3.f).item<float>(), -1);
  EXPECT_TEXT(vmap(grad(f))(array({3.f, -3.f})), "f32[2] [6, -1]");
}

TEST(Cond, NanInTheOtherBranchDoesNotReachTheGradient) {
  const auto f = [](Array x) {
    return cond(
        x > 0.f, [](Array y) { return log(y); }, [](Array) { return Array(0.f); }, x);
  };
  EXPECT_EQ(grad(f)(0.f).item<float>(), 0);
  EXPECT_EQ(grad(f)(4.f).item<float>(), 0.25f);
}

TEST(Cond, NumbersTakeTheTypeOfTheOtherBranch) {
  const auto positive = [](Array x) {
    return cond(
        x > 0, [](Array v) { return v; }, [](Array) { return Array(0); }, x);
  };
  EXPECT_TEXT(positive(full({}, 2.5f)), "f32[] 2.5");
  EXPECT_TEXT(jit(positive)(full({}, -2.5f, bf16)), "bf16[] 0");
  EXPECT_TEXT(grad(positive)(full({}, 2.5f)), "f32[] 1");
  EXPECT_THROW(cond(
                   true, [](Array v) { return v; }, [](Array) { return Array(0.5); }, full({}, 1, i32)),
               Error);
}

TEST(Cond, BranchesMayCaptureDifferentValues) {
  const Array a = array({1.f, 2.f}), b = array({10.f, 20.f});
  const auto f = [&](Array p, Array scale) {
    return cond(
        p, [&] { return a * scale; }, [&] { return b + scale; });
  };
  EXPECT_TEXT(f(true, 3.f), "f32[2] [3, 6]");
  EXPECT_TEXT(f(false, 3.f), "f32[2] [13, 23]");
  EXPECT_TEXT(jit(f)(false, 3.f), "f32[2] [13, 23]");
  EXPECT_TEXT(grad<1>([&](Array p, Array s) { return sum(f(p, s)); })(true, 3.f), "f32[] 3");
  EXPECT_TEXT(grad<1>([&](Array p, Array s) { return sum(f(p, s)); })(false, 3.f), "f32[] 2");
}

TEST(Cond, TreesAndNesting) {
  const auto sign_of = [](Array x) {
    return cond(
        x > 0,
        [](Array) {
          return std::pair{Array(1), std::string("kept")};
        },
        [](Array y) {
          return cond(
              y < 0,
              [](Array) {
                return std::pair{Array(-1), std::string("kept")};
              },
              [](Array) {
                return std::pair{Array(0), std::string("kept")};
              },
              y);
        },
        x);
  };
  EXPECT_EQ(sign_of(5).first.item<int>(), 1);
  EXPECT_EQ(sign_of(-5).first.item<int>(), -1);
  EXPECT_EQ(sign_of(0).first.item<int>(), 0);
  EXPECT_EQ(sign_of(0).second, "kept");
  EXPECT_TEXT(vmap([&](Array x) { return sign_of(x).first; })(array({5, -5, 0})), "i32[3] [1, -1, 0]");
}

TEST(SwitchCase, RunsTheBranchOfTheClampedIndex) {
  const auto f = [](Array i, Array x) {
    return switch_case(
        i, std::tuple{[](Array v) { return v; }, [](Array v) { return v * v; }, [](Array v) { return -v; }}, x);
  };
  const auto compiled = jit(f);
  const std::pair<int, float> wanted[] = {{-5, 3}, {0, 3}, {1, 9}, {2, -3}, {9, -3}};
  for (const auto& [i, y] : wanted) {
    EXPECT_EQ(f(i, 3.f).item<float>(), y);
    EXPECT_EQ(compiled(i, 3.f).item<float>(), y);
    for (DType type : {i64, u32}) EXPECT_EQ(f(full({}, std::max(i, 0), type), 3.f).item<float>(), y);
    EXPECT_EQ(grad<1>(f)(i, 3.f).item<float>(), y == 9 ? 6 : y / 3);
  }
  EXPECT_EQ(f(full({}, int64_t{1} << 40, i64), 3.f).item<float>(), -3);
  EXPECT_EQ(f(full({}, -(int64_t{1} << 40) + 1, i64), 3.f).item<float>(), 3);
  EXPECT_EQ(compiled.compiled(), 1u);
  EXPECT_TEXT(vmap(f, {.in_axes = {0, std::nullopt}})(array({-1, 0, 1, 2, 3}), 3.f), "f32[5] [3, 3, 9, -3, -3]");
  EXPECT_TEXT(vmap(f, {.in_axes = {std::nullopt, 0}})(1, array({2.f, 3.f})), "f32[2] [4, 9]");
  EXPECT_TEXT(vmap(grad<1>(f), {.in_axes = {0, 0}})(array({1, 2}), array({2.f, 3.f})), "f32[2] [4, -1]");
}

TEST(SwitchCase, TakesAListOfFunctionsAndNumbers) {
  std::vector<std::function<Array(Array)>> powers;
  for (int n = 0; n < 12; ++n)
    powers.push_back([n](Array x) {
      Array y = 1.f;
      for (int i = 0; i < n; ++i) y = y * x;
      return y;
    });
  const auto f = jit([powers](Array i, Array x) { return switch_case(i, powers, x); });
  EXPECT_TEXT(f(0, 2.f), "f32[] 1");
  EXPECT_TEXT(f(11, 2.f), "f32[] 2048");
  EXPECT_TEXT(f(10, full({}, 2.f, bf16)), "bf16[] 1024");
  EXPECT_TEXT(switch_case(0, std::array{powers[3]}, 2.f), "f32[] 8");
  powers.clear();
  EXPECT_ERROR(switch_case(0, powers, 2.f), "switch_case: has no branches; give at least one");
  const auto same = std::tuple{[](Array x) { return x; }, [](Array x) { return x * 2; }};
  EXPECT_ERROR(switch_case(Array(0.5f), same, 2.f),
               "switch_case: the index is f32[]; it must be an integer scalar, the number of one of 2 branches");
  EXPECT_ERROR(switch_case(true, same, 2.f), "switch_case: the index is bool[]");
  EXPECT_ERROR(switch_case(array({0}), same, 2.f), "switch_case: the index is i32[1]");
  const auto other = std::tuple{[](Array x) { return x; }, [](Array x) { return stack({x, x}); }};
  EXPECT_ERROR(switch_case(0, other, ones({})),
               "switch_case: result 0 is f32[] in one branch and f32[2] in the other; the branches must agree");
}

TEST(Cond, InsideScan) {
  // Collatz: the number of steps from 6 to 1 is 8.
  const auto step = [](std::pair<Array, Array> s, Nothing) {
    auto [n, steps] = s;
    const Array next = cond(
        n % 2 == 0, [](Array m) { return floor_divide(m, 2); },
        [](Array m) {
          return cond(
              m == 1, [](Array k) { return k; }, [](Array k) { return 3 * k + 1; }, m);
        },
        n);
    return std::pair{std::pair{next, steps + astype(n != 1, i32)}, next};
  };
  const auto f = jit([step](Array n) { return scan(step, std::pair{n, Array(0)}, Nothing{}, {.length = 20}); });
  const auto [last, path] = f(6);
  EXPECT_EQ(last.first.item<int>(), 1);
  EXPECT_EQ(last.second.item<int>(), 8);
  EXPECT_EQ(f.compiled(), 1u);
}

}  // namespace
}  // namespace lockstep
