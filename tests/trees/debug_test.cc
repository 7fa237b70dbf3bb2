// Prints, callbacks, checks and the search for NaN.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

std::string stdout_of(const std::function<void()>& f) {
  ::testing::internal::CaptureStdout();
  f();
  return ::testing::internal::GetCapturedStdout();
}

TEST(DebugPrint, FormatsValues) {
  EXPECT_EQ(stdout_of([] {
              debug::print("{} then {1} of {{{0}}}: {2:.2f}", 3, array({1, 2}), 1.2345);
              debug::print("y = {y}, x = {x}", {{"x", 1.5}, {"y", array({true})}});
              debug::print("nothing");
            }),
            "3 then i32[2] [1, 2] of {3}: 1.23\ny = bool[1] [true], x = 1.5\nnothing\n");
}

TEST(DebugPrint, RejectsFormatsThatDoNotFit) {
  EXPECT_THROWS(debug::print("{} {}", 1), Error,
                "debug::print: the format \"{} {}\" has more fields {} than the 1 values");
  EXPECT_THROWS(debug::print("x", 1), Error, "does not use value 0; add a field {} for it");
  EXPECT_THROWS(debug::print("{2}", 1), Error, "names value 2, but there are 1");
  EXPECT_THROWS(debug::print("{y}", {{"x", 1}}), Error, "names \"y\", which is not among the values");
  EXPECT_THROWS(debug::print("{", 1), Error, "has a { without }");
  EXPECT_THROWS(debug::print("}"), Error, "has a } without {");
}

TEST(DebugPrint, PrintsInEachCallOfACompiledFunctionInOrder) {
  const auto f = jit([](Array x) {
    debug::print("first {}", sum(x));
    const Array y = x * 2;
    debug::print("second {}", y);
    return x;
  });
  EXPECT_EQ(stdout_of([&] {
              f(array({1, 2}));
              f(array({3, 4}));
            }),
            "first 3\nsecond i32[2] [2, 4]\nfirst 7\nsecond i32[2] [6, 8]\n");
}

TEST(DebugPrint, PrintsForEachExampleAndIteration) {
  EXPECT_EQ(stdout_of([] {
              vmap(
                  [](Array x, Array y) {
                    debug::print("{} {}", x, y);
                    return x;
                  },
                  {.in_axes = {0, std::nullopt}})(array({1, 2}), 5);
            }),
            "1 5\n2 5\n");
  EXPECT_EQ(stdout_of([] {
              jit([](Array xs) {
                return scan(
                           [](Array c, Array x) {
                             debug::print("{}", c);
                             return std::pair{c + x, Nothing{}};
                           },
                           Array(0), xs)
                    .first;
              })(array({1, 2, 3}));
            }),
            "0\n1\n3\n");
}

TEST(DebugPrint, PrintsOnceInLoopsUnderLinearize) {
  const auto doubled = [](Array x) {
    return while_loop([](Array v) { return v < 5.f; },
                      [](Array v) {
                        debug::print("v {}", v);
                        return v * 2.f;
                      },
                      x);
  };
  EXPECT_EQ(stdout_of([&] { linearize(doubled, Array(2.f)); }), "v 2\nv 4\n");
}

TEST(DebugPrint, PrintsOnceUnderGradCondAndRemat) {
  const auto loss = [](Array x) {
    const auto inner = remat([](Array y) {
      debug::print("remat {}", y);
      return sin(y);
    });
    const Array z = cond(
        x > 0,
        [](Array y) {
          debug::print("positive {}", y);
          return y * y;
        },
        [](Array y) { return -y; }, x);
    return inner(x) + z;
  };
  EXPECT_EQ(stdout_of([&] { jit(grad(loss))(2.f); }), "positive 2\nremat 2\n");
  EXPECT_EQ(stdout_of([&] { jit(grad(loss))(-2.f); }), "remat -2\n");
  EXPECT_EQ(stdout_of([&] {
              jit(grad([](Array x) {
                return scan(
                           [](Array c, Nothing) {
                             debug::print("c {}", c);
                             return std::pair{c * c, Nothing{}};
                           },
                           x, Nothing{}, {.length = 2})
                    .first;
              }))(2.f);
            }),
            "c 2\nc 4\n");
}

TEST(DebugPrint, PrintsForEachDevice) {
  const Mesh mesh = make_mesh({{"i", 4}});
  const auto f = jit(shard_map(
      [](Array x) {
        debug::print("{}", x);
        debug::print("all");
        return x;
      },
      {.mesh = mesh, .in_specs = {P("i")}, .out_specs = {P("i")}}));
  std::string text = stdout_of([&] { f(device_put(arange(4), NamedSharding(mesh, P("i")))); });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  for (const char* line : {"i32[1] [0]\n", "i32[1] [1]\n", "i32[1] [2]\n", "i32[1] [3]\n", "all\n"})
    EXPECT_NE(text.find(line), text.npos) << text;
}

TEST(DebugPrint, LanesPrintEqualValuesOnce) {
  Runtime two({.cpu_lanes = 2});
  const RuntimeScope scope(two);
  set_cpu_devices(2);
  const Mesh mesh = make_mesh({{"i", 2}});
  const auto f = jit([](Array x) {
    debug::print("sum {}", sum(x));
    return scan(
               [](Array c, Nothing) {
                 debug::print("c {}", c);
                 return std::pair{c + 1, Nothing{}};
               },
               sum(x), Nothing{}, {.length = 2})
        .first;
  });
  EXPECT_EQ(stdout_of([&] { f(device_put(arange(8), NamedSharding(mesh, P("i")))); }), "sum 28\nc 28\nc 29\n");
}

TEST(DebugCallback, CallsTheHostWithTrees) {
  std::vector<float> seen;
  std::mutex mutex;
  const auto f = jit([&](Array x) {
    debug::callback(
        [&](const std::pair<Array, int>& p) {
          const std::lock_guard lock(mutex);
          seen.push_back(p.first.item<float>() + static_cast<float>(p.second));
        },
        std::pair{sum(x), 10});
    return x;
  });
  f(ones({3}));
  f(ones({3}) * 2);
  EXPECT_EQ(seen, (std::vector<float>{13, 16}));
}

TEST(DebugCallback, ErrorsOfTheHostEndTheCall) {
  const auto f = jit([](Array x) {
    debug::callback([](const Array&) { throw Error("host: no"); }, x);
    return x;
  });
  EXPECT_THROWS(f(1.f), Error, "host: no");
  const auto g = jit([](Array x) {
    debug::callback([](const Array& y) { (y + y).item<float>(); }, x);
    return x;
  });
  EXPECT_THROWS(g(1.f), Error, "call: a function of the host (debug::callback, pure_callback) computes with arrays");
  EXPECT_TEXT(jit([](Array x) { return x + 1; })(1.f), "f32[] 2");
}

Array host_square(const Array& x) {
  std::vector<float> out;
  for (float v : x.data<float>()) out.push_back(v * v);
  return Array::from(std::move(out), x.shape());
}

TEST(PureCallback, ComputesResultsOnTheHost) {
  const auto f = [](Array x) { return pure_callback(host_square, x, x) + 1; };
  EXPECT_TEXT(f(array({1., 2.})), "f32[2] [2, 5]");
  EXPECT_TEXT(jit(f)(array({1., 2.})), "f32[2] [2, 5]");
  EXPECT_TEXT(vmap(f)(array({{1., 2.}, {3., 4.}})), "f32[2,2] [[2, 5], [10, 17]]");
  const Mesh mesh = make_mesh({{"i", 2}});
  EXPECT_TEXT(shard_map(f, {.mesh = mesh, .in_specs = {P("i")}, .out_specs = {P("i")}})(array({1., 2., 3., 4.})),
              "f32[4] [2, 5, 10, 17]");
  EXPECT_THROWS(grad([&](Array x) { return sum(f(x)); })(array({1., 2.})), Error,
                "pure_callback: a function of the host has no gradient; wrap the call in custom_vjp");
  const auto unused = jit([](Array x) {
    pure_callback([](const Array&) -> Array { throw Error("called"); }, x, x);
    return x;
  });
  EXPECT_TEXT(unused(array({1.})), "f32[1] [1]");
}

TEST(PureCallback, ResultsMustHaveTheTypesOfLike) {
  const auto f = jit([](Array x) { return pure_callback(host_square, zeros({3}), x); });
  EXPECT_THROWS(f(array({1., 2.})), Error,
                "pure_callback: result 0 of the function is f32[2], but `like` has f32[3]; return that type");
  const auto g = jit([](Array x) {
    return pure_callback([](const Array& y) { return std::vector<Array>{y, y}; }, std::vector<Array>{x}, x)[0];
  });
  EXPECT_THROWS(g(array({1.})), Error, "pure_callback: the function returned 2 arrays and `like` has 1");
}

TEST(Checks, ThrowAtTheEndOfTheCallWithTheirLine) {
  const auto f = jit([](Array x) {
    check(all(x > 0), "the smallest of {} values is {}", x.size(), min(x));
    return log(x);
  });
  const int line = __LINE__ - 3;
  EXPECT_TEXT(f(ones({2})), "f32[2] [0, 0]");
  const std::string where = "check at debug_test.cc:" + std::to_string(line) + ": ";
  EXPECT_THROWS(f(array({1., -2.})), Error, where + "the smallest of 2 values is -2");
  EXPECT_TEXT(f(ones({2})), "f32[2] [0, 0]");
  EXPECT_THROWS(check(array({1, 0}) == 1, "eager"), Error, ": eager");
  EXPECT_THROWS(check(true, "{}"), Error, "check: the format \"{}\" has more fields");
  EXPECT_THROWS(vmap([](Array x) {
                  check(x < 2, "x is {}", x);
                  return x;
                })(array({1, 2, 3})),
                Error, "x is 2\ncheck at");
}

TEST(Checks, LanesReportTheSameFailureOnce) {
  Runtime two({.cpu_lanes = 2});
  const RuntimeScope scope(two);
  set_cpu_devices(2);
  const auto f = jit([](Array x) {
    check(sum(x) < 5, "too large: {}", sum(x));
    return x;
  });
  const Array x = device_put(arange(8), NamedSharding(make_mesh({{"i", 2}}), P("i")));
  EXPECT_THROWS(f(x), Error, "too large: 28");
  EXPECT_TEXT(sum(f(x * 0)), "i32[] 0");
}

class NanSearch : public testing::Test {
  void SetUp() override { debug::check_nans(); }
  void TearDown() override { debug::check_nans(false); }
};

TEST_F(NanSearch, NamesTheFirstOperationAndItsOperands) {
  const std::string at = "debug_test.cc:" + std::to_string(__LINE__ + 1) + ": ";
  const auto f = jit([](Array x, Array y) { return sum(sqrt(x - y) * 2) + sum(x); }, {.donate = {0}});
  EXPECT_THROWS(
      f(array({1., 2.}), array({0., 3.})), Error,
      at + "sqrt: result f32[2] at [1] is NaN, computed from f32[2] [1, -1]; check the range of the operands");
  EXPECT_EQ(f(array({1., 4.}), 0).item<float>(), 11);
  EXPECT_THROWS(log(array({-1.})), Error, "log: result f32[1] at [0] is NaN, computed from f32[1] [-1]");
  EXPECT_THROWS(
      jit([](Array x) { return x + 1; })(array({double(NAN)})), Error,
      "add: result f32[1] at [0] is NaN, computed from f32[1] [nan], f32[1] [1]; an operand has a NaN already");
}

}  // namespace
}  // namespace lockstep
