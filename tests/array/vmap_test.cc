#include <cmath>
#include <functional>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

struct Point {
  Array x, y;
};

TEST(Vmap, MapsOverTheLeadingAxisOfEveryArgument) {
  const auto f = vmap([](Array a, Array b) { return dot(a, b); });
  EXPECT_TEXT(f(array({{1, 2}, {3, 4}}), array({{5, 6}, {7, 8}})), "i32[2] [17, 53]");
}

TEST(Vmap, TreesAreMappedLeafByLeaf) {
  const Point out = vmap([](Point p, int scale) {
    return Point{p.x * scale, p.x + p.y};
  })(Point{array({1, 2}), array({{10, 20}, {30, 40}})}, 3);
  EXPECT_TEXT(out.x, "i32[2] [3, 6]");
  EXPECT_TEXT(out.y, "i32[2,2] [[11, 21], [32, 42]]");
}

// Their names are also those of functions of the C library.
TEST(Vmap, TakesElementwiseFunctionsByName) {
  const Array x = array({0.5f, 2.f});
  EXPECT_EQ(vmap(log1p)(x).to_vector<float>(), log1p(x).to_vector<float>());
  EXPECT_EQ(jit(exp)(x).to_vector<float>(), exp(x).to_vector<float>());
  EXPECT_NEAR(grad(tanh)(0.5f).item<float>(), 1 - std::tanh(0.5) * std::tanh(0.5), 1e-6);
  EXPECT_EQ(value_and_grad(sqrt)(4.f).first.item<float>(), 2);
}

TEST(Vmap, AxesMayBeSelectedSharedAndNegative) {
  const auto f = [](Array row, Array m) { return row + m; };  // [3] + [3]
  const Array columns = array({{1, 2}, {3, 4}, {5, 6}}), shared = array({10, 20, 30});
  const char* wanted = "i32[2,3] [[11, 23, 35], [12, 24, 36]]";
  EXPECT_TEXT(vmap(f, {.in_axes = {1, std::nullopt}})(columns, shared), wanted);
  EXPECT_TEXT(vmap(f, {.in_axes = {-1, std::nullopt}})(columns, shared), wanted);
  EXPECT_TEXT(vmap(f, {.in_axes = {std::nullopt, 1}})(shared, columns), wanted);
  // Missing axes are 0.
  EXPECT_TEXT(vmap(f, {.in_axes = {1}})(columns, transpose(columns)), "i32[2,3] [[2, 6, 10], [4, 8, 12]]");
}

TEST(Vmap, ResultsAreBatchedAlongOutAxes) {
  const auto f = [](Array x) { return x * array({1, 10, 100}); };
  const Array x = array({1, 2});
  EXPECT_TEXT(vmap(f)(x), "i32[2,3] [[1, 10, 100], [2, 20, 200]]");
  EXPECT_TEXT(vmap(f, {.out_axes = 1})(x), "i32[3,2] [[1, 2], [10, 20], [100, 200]]");
  EXPECT_TEXT(vmap(f, {.out_axes = -1})(x), "i32[3,2] [[1, 2], [10, 20], [100, 200]]");
  EXPECT_TEXT(vmap(f, {.out_axes = -2})(x), "i32[2,3] [[1, 10, 100], [2, 20, 200]]");
}

TEST(Vmap, ResultsThatDoNotDependOnTheBatchAreRepeated) {
  const Array outside = array({7, 8});
  const auto [constant, captured, shared] = vmap(
      [&outside](Array, Array s) {
        return std::tuple{Array(3), outside, s};
      },
      {.in_axes = {0, std::nullopt}})(zeros({2}), 5);
  EXPECT_TEXT(constant, "i32[2] [3, 3]");
  EXPECT_TEXT(captured, "i32[2,2] [[7, 8], [7, 8]]");
  EXPECT_TEXT(shared, "i32[2] [5, 5]");
}

TEST(Vmap, BatchesMayBeEmptyOrOfOne) {
  const auto f = vmap([](Array x) { return sum(x) + 1.f; });
  EXPECT_TEXT(f(zeros({0, 3})), "f32[0] []");
  EXPECT_TEXT(f(ones({1, 3})), "f32[1] [4]");
}

TEST(Vmap, Nests) {
  const auto product = [](Array a, Array b) { return a * b; };
  const auto outer = vmap(vmap(product, {.in_axes = {std::nullopt, 0}}), {.in_axes = {0, std::nullopt}});
  EXPECT_TEXT(outer(array({1, 2}), array({3, 4, 5})), "i32[2,3] [[3, 4, 5], [6, 8, 10]]");
  const auto inner = vmap(vmap(product, {.in_axes = {0, std::nullopt}}), {.in_axes = {std::nullopt, 0}});
  EXPECT_TEXT(inner(array({1, 2}), array({3, 4, 5})), "i32[3,2] [[3, 6], [4, 8], [5, 10]]");
  // The inner function captures a value that the outer one maps over.
  const auto captured = vmap([](Array a) { return vmap([a](Array b) { return a - b; })(array({1, 2})); });
  EXPECT_TEXT(captured(array({10, 20})), "i32[2,2] [[9, 8], [19, 18]]");
}

TEST(Vmap, OfGradGivesAGradientPerExample) {
  const auto loss = [](Array w, Array x) { return square(dot(w, x)); };
  const Array g = vmap(grad(loss), {.in_axes = {std::nullopt, 0}})(array({1.f, 2.f}), array({{1.f, 0.f}, {1.f, 1.f}}));
  EXPECT_TEXT(g, "f32[2,2] [[2, 0], [6, 6]]");
}

TEST(Vmap, UnderGradSumsOverTheBatch) {
  const auto loss = [](Array w, Array x) { return square(dot(w, x)); };
  const Array g = grad([&](Array w, Array x) {
    return sum(vmap(loss, {.in_axes = {std::nullopt, 0}})(w, x));
  })(array({1.f, 2.f}), array({{1.f, 0.f}, {1.f, 1.f}}));
  EXPECT_TEXT(g, "f32[2] [8, 6]");
}

TEST(Vmap, OfJitAndInsideJit) {
  const auto f = [](Array x) { return sum(x * x); };
  const Array x = array({{1, 2}, {3, 4}});
  EXPECT_TEXT(vmap(jit(f))(x), "i32[2] [5, 25]");
  const auto compiled = jit(vmap(f));
  EXPECT_TEXT(compiled(x), "i32[2] [5, 25]");
  EXPECT_TEXT(compiled(x), "i32[2] [5, 25]");
  EXPECT_EQ(compiled.compiled(), 1u);
}

TEST(Vmap, OfScanEqualsALoop) {
  const auto f = [](Array start, Array xs) {
    return scan([](Array c, Array x) { return std::pair{c * 2 + x, c}; }, start, xs);
  };
  const Array starts = array({1, 2}), xs = array({{1, 2, 3}, {4, 5, 6}});
  const auto both = vmap(f)(starts, xs);
  const auto shared_xs = vmap(f, {.in_axes = {0, std::nullopt}})(starts, at(xs, 0));
  const auto shared_start = vmap(f, {.in_axes = {std::nullopt, 0}})(Array(1), xs);
  for (int64_t i = 0; i < 2; ++i) {
    const auto [carry, ys] = f(at(starts, i), at(xs, i));
    EXPECT_EQ(at(both.first, i).to_string(), carry.to_string());
    EXPECT_EQ(at(both.second, i).to_string(), ys.to_string());
    const auto [carry2, ys2] = f(at(starts, i), at(xs, 0));
    EXPECT_EQ(at(shared_xs.first, i).to_string(), carry2.to_string());
    EXPECT_EQ(at(shared_xs.second, i).to_string(), ys2.to_string());
    const auto [carry3, ys3] = f(Array(1), at(xs, i));
    EXPECT_EQ(at(shared_start.first, i).to_string(), carry3.to_string());
    EXPECT_EQ(at(shared_start.second, i).to_string(), ys3.to_string());
  }
}

TEST(Vmap, OfCondChoosesPerExample) {
  const auto f = [](Array p, Array x) {
    return cond(
        p, [](Array y) { return y * 2; }, [](Array y) { return y - 1; }, x);
  };
  EXPECT_TEXT(vmap(f)(array({true, false, true}), array({1, 2, 3})), "i32[3] [2, 1, 6]");
  EXPECT_TEXT(vmap(f, {.in_axes = {std::nullopt, 0}})(true, array({1, 2, 3})), "i32[3] [2, 4, 6]");
  EXPECT_TEXT(vmap(f, {.in_axes = {0, std::nullopt}})(array({true, false}), 5), "i32[2] [10, 4]");
}

TEST(Vmap, OfRandomDrawsPerKey) {
  const Array keys = random::split(random::key(3), 4);
  const auto draw = [](Array k) {
    return std::tuple{random::normal(k, {3}), random::permutation(k, 5), random::bits(random::fold_in(k, 7), {2})};
  };
  const auto [normals, orders, bits] = vmap(draw)(keys);
  for (int64_t i = 0; i < 4; ++i) {
    const auto [normal, order, bit] = draw(at(keys, i));
    EXPECT_EQ(at(normals, i).to_string(), normal.to_string());
    EXPECT_EQ(at(orders, i).to_string(), order.to_string());
    EXPECT_EQ(at(bits, i).to_string(), bit.to_string());
  }
}

// Results of branches and loops that do not depend on the batch are shared, also where the predicate does.
TEST(Vmap, UnchangedOperandsOfABatchedCondAreShared) {
  using Result = std::tuple<Array, Array, Array>;
  const VmapOptions options{.in_axes = {0, std::nullopt}, .out_axes = {0, std::nullopt, std::nullopt}};
  const auto branch = [](float by) { return [by](Array x, Array y) { return Result{x * by, y, zeros({2})}; }; };
  const auto two = [&](Array x, Array y) { return cond(x < 2.f, branch(2), branch(3), x, y); };
  const auto three = [&](Array x, Array y) {
    return switch_case(astype(x, i32), std::tuple{branch(2), branch(3), branch(4)}, x, y);
  };
  const auto nested = [&](Array x, Array y) {
    return cond(
        x < 2.f, two, [&](Array a, Array b) { return branch(3)(a, b); }, x, y);
  };
  const Array x = array({1.f, 2.f});
  for (const auto& f : std::vector<std::function<Result(Array, Array)>>{two, three, nested}) {
    const auto [first, second, third] = vmap(f, options)(x, full({}, 5.f));
    EXPECT_EQ(first.shape(), Shape{2});
    EXPECT_TEXT(second, "f32[] 5");
    EXPECT_TEXT(third, "f32[2] [0, 0]");
  }
  EXPECT_TEXT(std::get<0>(vmap(two, options)(x, 5.f)), "f32[2] [2, 6]");
  EXPECT_TEXT(std::get<0>(jit(vmap(three, options))(x, 5.f)), "f32[2] [3, 8]");
  // Operands that one of the branches swaps or replaces are not.
  const auto swapped = [](Array a, Array b, Array c) {
    return cond(
        a < 2.f,
        [](Array p, Array q) {
          return std::pair{p, q};
        },
        [](Array p, Array q) {
          return std::pair{q, p};
        },
        b, c);
  };
  EXPECT_THROWS(vmap(swapped, {.in_axes = {0, std::nullopt, std::nullopt}, .out_axes = std::nullopt})(x, 1.f, 2.f),
                Error, "vmap: result 0 depends on the mapped arguments");
  EXPECT_TEXT(vmap(swapped, {.in_axes = {0, std::nullopt, std::nullopt}})(x, 1.f, 2.f).second, "f32[2] [2, 1]");
}

TEST(Vmap, CarriesThatALoopDoesNotChangeAreShared) {
  using State = std::tuple<Array, Array, Array>;
  const Array w = array({{1.f, 1.f}, {0.f, 1.f}});
  const auto f = [](Array m, Array x, Array most) {
    const auto more = [most](State s) { return std::get<0>(s) < most; };
    const auto round = [](State s) {
      const auto& [count, vector, matrix] = s;
      return State{count + 1, matmul(matrix, vector), matrix};
    };
    const auto [i, v, same] = while_loop(more, round, State{Array(0), x, m});
    return std::pair{same, v};
  };
  const VmapOptions options{.in_axes = {std::nullopt, 0, 0}, .out_axes = {std::nullopt, 0}};
  const auto [same, v] = vmap(f, options)(w, ones({3, 2}), arange(3));
  EXPECT_TEXT(same, "f32[2,2] [[1, 1], [0, 1]]");
  EXPECT_TEXT(v, "f32[3,2] [[1, 1], [2, 1], [3, 1]]");
  // In a branch inside of the loop.
  const auto counted = [](Array y, Array n) {
    return fori_loop(
        Array(0), n,
        [](Array i, std::pair<Array, Array> c) {
          const auto add = [](Array a, Array b) { return std::pair{a + b, b}; };
          const auto subtract = [](Array a, Array b) { return std::pair{a - b, b}; };
          return cond(i % 2 == 0, add, subtract, c.first, c.second);
        },
        std::pair{zeros({}), y});
  };
  const VmapOptions shared{.in_axes = {std::nullopt, 0}, .out_axes = {0, std::nullopt}};
  const auto [sums, y] = vmap(counted, shared)(full({}, 2.f), array({1, 2, 3}));
  EXPECT_TEXT(sums, "f32[3] [2, 0, 2]");
  EXPECT_TEXT(y, "f32[] 2");
}

}  // namespace
}  // namespace lockstep
