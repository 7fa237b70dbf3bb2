// while_loop, fori_loop with computed bounds, map and associative_scan.
#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

namespace lockstep {
namespace {

// Newton's iteration for a square root, until it converges.
Array root(const Array& a) {
  return while_loop([a](Array x) { return abs(x * x - a) > 1e-5f * a; }, [a](Array x) { return (x + a / x) * 0.5f; },
                    a);
}

// The number of Collatz steps to 1.
Array collatz(const Array& n) {
  const auto step = [](std::pair<Array, Array> s) {
    const Array next = where(s.first % 2 == 0, floor_divide(s.first, 2), 3 * s.first + 1);
    return std::pair{next, s.second + 1};
  };
  return while_loop([](std::pair<Array, Array> s) { return s.first != 1; }, step, std::pair{n, Array(0)}).second;
}

TEST(WhileLoop, RunsUntilTheConditionIsFalse) {
  EXPECT_NEAR(root(2.f).item<float>(), std::sqrt(2.f), 1e-5);
  const auto compiled = jit(root);
  EXPECT_NEAR(compiled(2.f).item<float>(), std::sqrt(2.f), 1e-5);
  EXPECT_NEAR(compiled(100.f).item<float>(), 10, 1e-4);
  EXPECT_EQ(compiled.compiled(), 1u);
  EXPECT_TEXT(jit(collatz)(27), "i32[] 111");
}

TEST(WhileLoop, WithoutRoundsReturnsTheInitialCarry) {
  const auto f = [](Array x) {
    return while_loop([](Array) { return Array(false); }, [](Array y) { return y + 1; }, x);
  };
  EXPECT_TEXT(f(array({1, 2})), "i32[2] [1, 2]");
  EXPECT_TEXT(jit(f)(array({1, 2})), "i32[2] [1, 2]");
  EXPECT_TEXT(vmap(f)(array({1, 2})), "i32[2] [1, 2]");
}

TEST(WhileLoop, EveryNumberOfRoundsIsExact) {
  const auto powers = jit([](Array n) {
    using State = std::tuple<Array, Array, Array>;  // swapped in every round
    return while_loop([n](State s) { return std::get<0>(s) < n; },
                      [](State s) {
                        return State{std::get<0>(s) + 1, std::get<2>(s) * 2, std::get<1>(s)};
                      },
                      State{Array(0), array({1, 3}), array({5, 7})});
  });
  EXPECT_TEXT(std::get<1>(powers(0)), "i32[2] [1, 3]");
  EXPECT_TEXT(std::get<1>(powers(1)), "i32[2] [10, 14]");
  EXPECT_TEXT(std::get<1>(powers(2)), "i32[2] [2, 6]");
  EXPECT_TEXT(std::get<2>(powers(2)), "i32[2] [10, 14]");
  EXPECT_TEXT(std::get<1>(powers(7)), "i32[2] [80, 112]");
}

struct Search {
  Array at, found;
  std::vector<Array> path;
  int kept = 3;
};

TEST(WhileLoop, TakesTreesOfSeveralTypesAndCapturesArrays) {
  const Array data = array({5.f, 1.f, 7.f, 2.f}), wanted = array({7.f});
  const auto search = [&](Array limit) {  // stops early
    const auto more = [&](Search s) { return logical_and(s.at < limit, logical_not(at(s.found, 0))); };
    const auto look = [&](Search s) {
      const Array x = at(data, s.at);
      return Search{s.at + 1, x == wanted, {s.path[0] + x}};
    };
    return while_loop(more, look, Search{Array(0), array({false}), {zeros({})}});
  };
  const Search all = jit(search)(4), none = search(2);
  EXPECT_TEXT(all.at, "i32[] 3");
  EXPECT_TEXT(all.found, "bool[1] [true]");
  EXPECT_TEXT(all.path[0], "f32[] 13");
  EXPECT_EQ(all.kept, 3);
  EXPECT_TEXT(none.at, "i32[] 2");
  EXPECT_TEXT(none.found, "bool[1] [false]");
}

TEST(WhileLoop, NumbersInTheInitialCarryAdaptTheirType) {
  const auto doubled = [](Array limit) {
    return while_loop([limit](Array c) { return c < limit; }, [](Array c) { return c * full({}, 2.f, bf16); }, 1);
  };
  EXPECT_TEXT(doubled(full({}, 100.f, bf16)), "bf16[] 128");
}

TEST(WhileLoop, NestsWithScanCondAndItself) {
  // A loop in a scan: the sum of all Collatz steps of the elements. A scan in a loop: sums until they are large.
  const auto steps = jit([](Array xs) {
    return scan([](Array c, Array x) { return std::pair{c + collatz(x), collatz(x)}; }, Array(0), xs);
  });
  const auto [total, each] = steps(array({6, 1, 27}));
  EXPECT_TEXT(total, "i32[] 119");
  EXPECT_TEXT(each, "i32[3] [8, 0, 111]");
  const auto sums = jit([](Array xs) {
    const auto twice = [](Array x) {
      return scan([](Array c, Array v) { return std::pair{c + v, c + v}; }, Array(0), x).second;
    };
    return while_loop([](Array x) { return max(x) < 50; }, twice, xs);
  });
  EXPECT_TEXT(sums(array({1, 2, 3})), "i32[3] [1, 10, 55]");
  const auto maybe = jit([](Array p, Array n) {
    return cond(
        p, [](Array x) { return collatz(x); }, [](Array x) { return -x; }, n);
  });
  EXPECT_TEXT(maybe(true, 6), "i32[] 8");
  EXPECT_TEXT(maybe(false, 6), "i32[] -6");
  // The first number from n on that takes more than 100 steps.
  const auto first = jit(
      [](Array n) { return while_loop([](Array x) { return collatz(x) <= 100; }, [](Array x) { return x + 1; }, n); });
  EXPECT_TEXT(first(20), "i32[] 27");
}

TEST(WhileLoop, BatchRunsUntilAllExamplesAreDone) {
  EXPECT_TEXT(vmap(collatz)(array({6, 1, 27, 2})), "i32[4] [8, 0, 111, 1]");
  EXPECT_TEXT(jit(vmap(collatz))(array({6, 1, 27, 2})), "i32[4] [8, 0, 111, 1]");
  EXPECT_TEXT(vmap(vmap(collatz))(array({{6, 1}, {27, 2}})), "i32[2,2] [[8, 0], [111, 1]]");
  EXPECT_TEXT(vmap(collatz)(zeros({0}, i32)), "i32[0] []");
  const Array roots = vmap(root)(array({1.f, 2.f, 100.f}));
  EXPECT_ELEMENTS(roots, {1, std::sqrt(2.), 10}, 1e-4);
  // What a finished example would compute in more rounds does not matter.
  const auto count_down = [](Array n) {
    return while_loop([](std::pair<Array, Array> s) { return s.first > 0; },
                      [](std::pair<Array, Array> s) {
                        return std::pair{s.first - 1, s.second / astype(s.first, f32)};
                      },
                      std::pair{n, Array(24.f)})
        .second;
  };
  EXPECT_TEXT(vmap(count_down)(array({0, 1, 3, 4})), "f32[4] [24, 24, 4, 1]");
}

// A condition that is the same for all examples stays one bool.
TEST(WhileLoop, BatchOfTheBodyKeepsTheCondition) {
  const auto f = [](Array x) {
    return while_loop([](std::pair<Array, Array> s) { return s.first < 3; },
                      [](std::pair<Array, Array> s) {
                        return std::pair{s.first + 1, s.second * 2};
                      },
                      std::pair{Array(0), x});
  };
  const auto [rounds, y] = vmap(f, {.out_axes = 0})(array({1, 5}));
  EXPECT_TEXT(y, "i32[2] [8, 40]");
  EXPECT_TEXT(rounds, "i32[2] [3, 3]");
  const std::string text = program_text(vmap([f](Array x) { return f(x).second; }), array({1, 5}));
  EXPECT_EQ(text.find("reduce_or"), std::string::npos) << text;
  EXPECT_EQ(text.find("select"), std::string::npos) << text;
}

TEST(WhileLoop, BatchAsText) {
  const auto f = [](Array x) { return while_loop([](Array y) { return y < 10; }, [](Array y) { return y * 2; }, x); };
  EXPECT_EQ(program_text(vmap(f), array({1, 3})), R"(program(%0:i32[2]) {
  %1:i32[] = full[dtype=i32, shape=[], value=10]
  %2:i32[2] = broadcast[dims=[], shape=[2]] %1
  %3:bool[2] = lt %0 %2
  %4:bool[2], %5:i32[2] = while_loop[body=program(%0:bool[2], %1:i32[2]) {
      %2:i32[] = full[dtype=i32, shape=[], value=2]
      %3:i32[2] = broadcast[dims=[], shape=[2]] %2
      %4:i32[2] = mul %1 %3
      %5:bool[2] = broadcast[dims=[0], shape=[2]] %0
      %6:i32[2] = select %5 %4 %1
      %7:i32[] = full[dtype=i32, shape=[], value=10]
      %8:i32[2] = broadcast[dims=[], shape=[2]] %7
      %9:bool[2] = lt %6 %8
      return %9 %6
    }, cond=program(%0:bool[2], %1:i32[2]) {
      %2:bool[] = reduce_or[axes=[0]] %0
      return %2
    }] %3 %0
  return %5
}
)");
}

TEST(WhileLoop, ValuesThatItDoesNotChangeHaveGradients) {
  const auto f = [](Array x) {
    const Array n = while_loop([x](Array i) { return astype(i, f32) < x; }, [](Array i) { return i + 1; }, Array(0));
    return x * x * astype(n, f32);
  };
  EXPECT_TEXT(grad(f)(2.5f), "f32[] 15");
  const auto g = [](Array x) {  // only the condition reads x
    return x * while_loop([x](Array i) { return i < x; }, [](Array i) { return i + 1.f; }, zeros({}));
  };
  EXPECT_TEXT(grad(g)(2.5f), "f32[] 3");
  EXPECT_TEXT(grad([](Array x) { return x * stop_gradient(root(x)); })(4.f), "f32[] 2");
}

TEST(WhileLoop, ExplainsItsErrors) {
  const auto less = [](Array x) { return x < 10; };
  EXPECT_ERROR(while_loop(
                   less,
                   [](Array x) {
                     return stack({x, x});
                   },
                   Array(1)),
               "while_loop: the body receives array 0 of the carry as i32[] and returns i32[2]; it must keep the type");
  EXPECT_ERROR(while_loop(
                   less, [](Array x) { return astype(x, f32); }, full({}, 1, i32)),
               "while_loop: the body receives array 0 of the carry as i32[] and returns f32[]");
  EXPECT_ERROR(
      while_loop([](Array x) { return x; }, [](Array x) { return x; }, Array(1)),
      "while_loop: the condition returns i32[]; it must return a bool scalar: compare, or reduce with any() or "
      "all()");
  EXPECT_ERROR(while_loop([](Array x) { return x < 3; }, [](Array x) { return x; }, ones({2})),
               "while_loop: the condition returns bool[2]");
  EXPECT_ERROR(while_loop([](std::vector<Array> x) { return x[0] < 3; },
                          [](std::vector<Array> x) {
                            return std::vector<Array>{x[0], x[0]};
                          },
                          std::vector<Array>{1}),
               "while_loop: the body receives a carry of 1 arrays and returns one of 2");
  EXPECT_ERROR(
      while_loop([](std::pair<Array, int> x) { return x.first < 3; },
                 [](std::pair<Array, int> x) {
                   return std::pair{x.first, x.second + 1};
                 },
                 std::pair{Array(0), 0}),
      "while_loop: at 1: 0 in the initial carry and 1 in the returned carry; a value that changes between rounds "
      "must be an Array");
  EXPECT_ERROR(grad(root)(2.f),
               "while_loop: has no reverse-mode gradient, because the number of rounds is unknown when the function is "
               "traced; use scan, or fori_loop with integers as bounds, or define the gradient with custom_vjp");
}

TEST(ForiLoop, TakesComputedBounds) {
  const auto powers = [](Array i, Array c) { return c * 2 + i; };
  const auto f = jit([&](Array lower, Array upper) { return fori_loop(lower, upper, powers, Array(1)); });
  EXPECT_TEXT(f(3, 6), "i32[] 33");
  EXPECT_TEXT(f(3, 3), "i32[] 1");
  EXPECT_TEXT(f(6, 3), "i32[] 1");
  EXPECT_TEXT(jit([&](Array n) { return fori_loop(0, n, powers, Array(1)); })(3), "i32[] 12");
  EXPECT_TEXT(fori_loop(full({}, 3), full({}, 6), powers, Array(1)), "i32[] 33");
  EXPECT_TEXT(vmap([&](Array n) { return fori_loop(0, n, powers, Array(1)); })(array({0, 1, 3})), "i32[3] [1, 2, 12]");
  // Bounds that are not traced are as good as integers: the loop has a gradient.
  const Array three = full({}, 3);
  const auto cubed = [&](Array x) {
    return fori_loop(
        Array(0), three, [x](Array, Array c) { return c * x; }, 1.f);
  };
  EXPECT_TEXT(grad(cubed)(2.f), "f32[] 12");
  EXPECT_TEXT(fori_loop(
                  0, full({}, 3, i64), [](Array i, Array c) { return c + i; }, zeros({}, i64)),
              "i64[] 3");
  EXPECT_ERROR(fori_loop(Array(0), Array(1.5f), powers, Array(1)),
               "fori_loop: a bound is f32[]; bounds must be integer scalars");
  EXPECT_ERROR(fori_loop(0, array({3}), powers, Array(1)), "fori_loop: a bound is i32[1]");
}

TEST(Map, EqualsALoop) {
  const auto f = [](Array x) { return std::pair{sum(x) * 2, x * x}; };
  const Array xs = reshape(arange(10), {5, 2});
  for (int64_t size : {1, 2, 3, 5, 9}) {
    const auto [sums, squares] = jit([&](Array x) { return map(f, x, {.batch_size = size}); })(xs);
    EXPECT_TEXT(sums, "i32[5] [2, 10, 18, 26, 34]") << size;
    EXPECT_TEXT(squares, "i32[5,2] [[0, 1], [4, 9], [16, 25], [36, 49], [64, 81]]") << size;
  }
  EXPECT_TEXT(map(f, zeros({0, 2}), {.batch_size = 2}).first, "f32[0] []");
  EXPECT_TEXT(map(f, zeros({0, 2})).first, "f32[0] []");
  EXPECT_TEXT(
      map([](std::pair<Array, Array> p) { return p.first * p.second; }, std::pair{array({1, 2}), array({3, 4})}),
      "i32[2] [3, 8]");
  const auto loss = [](Array x) { return sum(map([](Array v) { return v * v * v; }, x, {.batch_size = 2})); };
  EXPECT_TEXT(grad(loss)(array({1.f, 2.f, 3.f})), "f32[3] [3, 12, 27]");
  EXPECT_ERROR(map(f, xs, {.batch_size = 0}), "map: batch_size is 0; give the number of elements to compute together");
  EXPECT_ERROR(map(f, Array(1)), "map: arrays are i32[] and i32[]; all must have one leading axis to map over");
  EXPECT_ERROR(map([](std::vector<Array> x) { return x; }, std::vector<Array>()), "map: the argument has no arrays");
}

TEST(AssociativeScan, EqualsRunningResults) {
  const auto add = [](Array a, Array b) { return a + b; };
  for (int64_t n = 0; n < 18; ++n) {
    const Array x = arange(1, n + 1);
    EXPECT_EQ(associative_scan(add, x).to_string(), cumsum(x, 0).to_string());
    EXPECT_EQ(associative_scan(add, x, {.reverse = true}).to_string(), flip(cumsum(flip(x), 0)).to_string());
  }
  const Array m = reshape(arange(12), {3, 4});
  EXPECT_EQ(associative_scan(add, m, {.axis = -1}).to_string(), cumsum(m, 1).to_string());
  EXPECT_EQ(associative_scan(add, m, {.axis = 0}).to_string(), cumsum(m, 0).to_string());
  EXPECT_TEXT(associative_scan([](Array a, Array b) { return maximum(a, b); }, array({3, 1, 4, 1, 5})),
              "i32[5] [3, 3, 4, 4, 5]");
}

// h[t] = a[t] h[t - 1] + b[t]: the recurrence of state space models.
TEST(AssociativeScan, TakesTreesAndHasGradients) {
  using Step = std::pair<Array, Array>;
  const auto compose = [](Step first, Step then) {
    return Step{first.first * then.first, first.second * then.first + then.second};
  };
  const auto fast = [&](Array a, Array b) { return associative_scan(compose, Step{a, b}).second; };
  const auto slow = [](Array a, Array b) {
    const auto step = [](Array h, Step x) {
      const Array next = h * x.first + x.second;
      return std::pair{next, next};
    };
    return scan(step, zeros({}), Step{a, b}).second;
  };
  const auto [ka, kb] = random::split<2>(random::key(0));
  const Array a = random::uniform(ka, {7}), b = random::normal(kb, {7});
  const auto weighted = [](const auto& f) { return [f](Array x, Array y) { return sum(f(x, y) * arange(7)); }; };
  EXPECT_ELEMENTS(jit(fast)(a, b), slow(a, b).to_vector<double>(), 1e-5);
  const auto [ga, gb] = grad<0, 1>(weighted(fast))(a, b);
  const auto [wa, wb] = grad<0, 1>(weighted(slow))(a, b);
  EXPECT_ELEMENTS(ga, wa.to_vector<double>(), 1e-3);
  EXPECT_ELEMENTS(gb, wb.to_vector<double>(), 1e-3);
  EXPECT_ERROR(associative_scan(compose, Step{a, zeros({6})}),
               "associative_scan: arrays are f32[7] and f32[6]; all must have one extent along axis 0");
  EXPECT_ERROR(associative_scan([](Array x, Array) { return sum(x); }, a),
               "associative_scan: the function combines arrays 0 of type f32[3] to f32[]; it must keep the type");
  EXPECT_ERROR(associative_scan([](std::vector<Array> x, std::vector<Array>) { return x; }, std::vector<Array>()),
               "associative_scan: the argument has no arrays");
  EXPECT_ERROR(associative_scan([](Array x, Array) { return x; }, a, {.axis = 1}), "associative_scan: axis 1");
}

}  // namespace
}  // namespace lockstep
