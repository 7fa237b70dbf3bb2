#include <thread>

#include "array/lane_memory.h"
#include "array/near.h"
#include "lockstep/lockstep.h"
#include "plan/lanes.h"

namespace lockstep {
namespace {

enum class Mode { add, multiply };

struct Config {
  Mode mode = Mode::add;
  std::string name = {};
  int repeats = 1;
};

struct Pair {
  Array a, b;
};

// The memory that computations on `a` use.
const void* memory(const Array& a) {
  return detail::main_lane_buffer(Lanes::current().main(), a, a.type(), "a test")->data();
}

TEST(Jit, CompilesOnceForEachShapeAndElementType) {
  const auto f = jit([](Array x) { return x + x; });
  for (int i = 0; i < 3; ++i) EXPECT_TEXT(f(array({1.f, 2.f})), "f32[2] [2, 4]");
  EXPECT_EQ(f.compiled(), 1u);
  EXPECT_TEXT(f(array({1.f, 2.f, 3.f})), "f32[3] [2, 4, 6]");
  EXPECT_TEXT(f(array({1, 2})), "i32[2] [2, 4]");
  EXPECT_TEXT(f(zeros({0})), "f32[0] []");
  EXPECT_EQ(f.compiled(), 4u);
  f(array({5.f, 6.f}));
  EXPECT_EQ(f.compiled(), 4u);
}

TEST(Jit, NewValuesOfNumbersPassedForArraysDoNotRecompile) {
  const auto f = jit([](Array x) { return x * 2; });
  EXPECT_EQ(f(3).item<int>(), 6);
  EXPECT_EQ(f(4).item<int>(), 8);
  EXPECT_EQ(f.compiled(), 1u);
  EXPECT_EQ(f(1.5).item<float>(), 3.f);
  EXPECT_EQ(f.compiled(), 2u);
}

// In a transformed function a number adapts its element type as it does outside.
TEST(Jit, NumbersPassedForArraysAdaptTheirType) {
  const auto product = [](Array x, Array by) { return x * by; };
  const auto scaled = jit(product);
  const Array x = astype(array({1.f, 2.f}), bf16);
  EXPECT_TEXT(scaled(x, 2.5), "bf16[2] [2.5, 5]");
  EXPECT_TEXT(scaled(x, array({2.5f})), "f32[2] [2.5, 5]");  // arrays do not
  EXPECT_TEXT(scaled(x, full({}, 2.5f)), "f32[2] [2.5, 5]");
  EXPECT_EQ(scaled.compiled(), 3u);
  EXPECT_TEXT(scaled(array({1, 2}), 2), "i32[2] [2, 4]");
  EXPECT_TEXT(scaled(array({1, 2}), 2.5), "f32[2] [2.5, 5]");
  EXPECT_TEXT(vmap(product, {.in_axes = {0, {}}})(x, 2.5), "bf16[2] [2.5, 5]");
  EXPECT_TEXT(remat(product)(x, 2.5), "bf16[2] [2.5, 5]");
  const auto inner = jit([](Array rows, Array by) {  // also in a nested function
    return vmap([by](Array row) { return row * by; })(rows) + where(by > 2, by, rows);
  });
  EXPECT_TEXT(inner(x, 2.5), "bf16[2] [5, 7.5]");
  const auto slope = grad([](Array by, Array row) { return astype(sum(row * by), f32); });
  EXPECT_TEXT(jit(slope)(2.5, x), "f32[] 3");
}

TEST(Jit, StaticValuesArePartOfTheKey) {
  const auto f = jit([](Array x, Config c) {
    for (int i = 0; i < c.repeats; ++i) x = c.mode == Mode::add ? x + 3 : x * 3;
    return c.name == "negative" ? -x : x;
  });
  const Array x = array({1, 2});
  EXPECT_TEXT(f(x, Config{}), "i32[2] [4, 5]");
  EXPECT_TEXT(f(x, Config{.mode = Mode::multiply}), "i32[2] [3, 6]");
  EXPECT_TEXT(f(x, Config{.name = "negative"}), "i32[2] [-4, -5]");
  EXPECT_TEXT(f(x, Config{.repeats = 2}), "i32[2] [7, 8]");
  EXPECT_EQ(f.compiled(), 4u);
  EXPECT_TEXT(f(x, Config{.repeats = 2}), "i32[2] [7, 8]");
  EXPECT_EQ(f.compiled(), 4u);
}

TEST(Jit, StructureIsPartOfTheKey) {
  const auto total = jit([](std::vector<Array> xs, std::optional<Array> scale) {
    Array sum = 0.f;
    for (const Array& x : xs) sum = sum + x;
    return scale ? sum * *scale : sum;
  });
  EXPECT_EQ(total(std::vector<Array>{1.f, 2.f}, std::optional<Array>{}).item<float>(), 3);
  EXPECT_EQ(total(std::vector<Array>{1.f}, std::optional<Array>{2.f}).item<float>(), 2);
  EXPECT_EQ(total(std::vector<Array>{}, std::optional<Array>{2.f}).item<float>(), 0);
  EXPECT_EQ(total.compiled(), 3u);
}

TEST(Jit, TheFunctionIsTracedOncePerKey) {
  int traces = 0;
  const auto f = jit([&traces](Array x) {
    ++traces;
    return x + 1;
  });
  for (int i = 0; i < 5; ++i) f(array({i}));
  EXPECT_EQ(traces, 1);
}

TEST(Jit, PrepareCompilesWithoutACall) {
  int traced = 0;
  const auto f = jit(
      [&](Array x, Array y) {
        ++traced;
        return std::pair{x * y + 1.f, sum(x)};
      },
      {.donate = {0}});
  const Array x = arange(6.f), y = full({6}, 2.f);
  f.prepare(x, y);
  EXPECT_EQ(f.compiled(), 1u);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));  // not donated
  f.prepare(x, y);
  const auto [product, total] = f(x, y);
  EXPECT_EQ(traced, 1);
  EXPECT_EQ(f.compiled(), 1u);
  EXPECT_EQ(product.to_vector<float>(), (std::vector<float>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(total.item<float>(), 15.f);
  f.prepare(arange(3.f), full({3}, 2.f));
  EXPECT_EQ(f.compiled(), 2u);
}

TEST(Jit, CopiesShareCompiledVersions) {
  const auto f = jit([](Array x) { return x; });
  const auto g = f;
  g(1);
  EXPECT_EQ(f.compiled(), 1u);
}

TEST(Jit, CapturedArraysAreConstants) {
  Array offset = array({10, 20});
  const auto f = jit([&offset](Array x) { return x + offset; });
  EXPECT_TEXT(f(array({1, 2})), "i32[2] [11, 22]");
  offset = array({100, 200});
  EXPECT_TEXT(f(array({1, 2})), "i32[2] [11, 22]");
}

TEST(Jit, CapturedArraysSurviveDonationElsewhere) {
  Array offset = array({10.f, 20.f});
  const auto f = jit([&offset](Array x) { return x + offset; });
  EXPECT_TEXT(f(array({1.f, 2.f})), "f32[2] [11, 22]");
  const auto twice = jit([](Array x) { return x + x; }, {.donate = {0}});
  EXPECT_TEXT(twice(offset), "f32[2] [20, 40]");
  EXPECT_TEXT(f(array({1.f, 2.f})), "f32[2] [11, 22]");
}

TEST(Jit, ProgramsPrint) {
  const auto f = jit([](Array x) {
    static_cast<void>(x * 3.f);
    return tanh(x);
  });
  const Array x = zeros({3});
  EXPECT_NE(f.program(x).find("tanh"), std::string::npos) << f.program(x);
  EXPECT_NE(f.program(x).find("mul"), std::string::npos) << f.program(x);
  EXPECT_NE(f.lowered(x).find("tanh"), std::string::npos) << f.lowered(x);
  EXPECT_EQ(f.lowered(x).find("mul"), std::string::npos) << f.lowered(x);
  EXPECT_NE(f.plan(x).find("f32[3]@in0 -> f32[3]@out0"), std::string::npos) << f.plan(x);
  if (platform() == Platform::cuda)
    EXPECT_NE(f.schedule(x).find("library kernel(%0:f32[3]) {\n    %1:f32[3] = tanh %0\n"), std::string::npos)
        << f.schedule(x);
  else
    EXPECT_EQ(f.schedule(x), f.plan(x));
  EXPECT_NE(program_text([](Array y) { return sin(y); }, x).find("sin"), std::string::npos);
  EXPECT_EQ(f.compiled(), 1u);
}

TEST(Donation, ResultsReuseTheMemoryOfDonatedArguments) {
  const auto step = jit([](Pair p, Array g) { return Pair{p.a - g, p.b * g}; }, {.donate = {0}});
  Pair p{full({1000}, 5.f), full({1000}, 2.f)};
  const void *a = memory(p.a), *b = memory(p.b);
  const Array g = full({1000}, 3.f);
  for (int i = 0; i < 3; ++i) {
    p = step(p, g);
    EXPECT_EQ(memory(p.a), a);
    EXPECT_EQ(memory(p.b), b);
  }
  EXPECT_EQ(at(p.a, 999).item<float>(), -4);
  EXPECT_EQ(at(p.b, 999).item<float>(), 54);
}

TEST(Donation, ResultsOfAnotherShapeReuseTheMemory) {
  const auto f = jit([](Array x) { return reshape(x + 1.f, {2, 3}); }, {.donate = {0}});
  const Array x = arange(6, f32);
  const void* before = memory(x);
  const Array y = f(x);
  EXPECT_EQ(memory(y), before);
  EXPECT_TEXT(y, "f32[2,3] [[1, 2, 3], [4, 5, 6]]");
}

TEST(Donation, NeverChangesResults) {
  // Each function reads its donated argument again after the first result could have overwritten it.
  const auto check = [](auto f) {
    const auto plain = jit(f);
    const auto donating = jit(f, {.donate = {0, 1}});
    auto make = [](float from) { return reshape(arange(16, f32) + from, {4, 4}); };
    const std::pair<Array, Array> wanted = plain(make(0), make(3));
    const std::pair<Array, Array> got = donating(make(0), make(3));
    EXPECT_EQ(wanted.first.to_string(), got.first.to_string());
    EXPECT_EQ(wanted.second.to_string(), got.second.to_string());
  };
  check([](Array x, Array y) { return std::pair{y, x}; });
  check([](Array x, Array) { return std::pair{x, x}; });
  check([](Array x, Array y) { return std::pair{x + y, x - y}; });
  check([](Array x, Array y) { return std::pair{dot(x, y), dot(y, x)}; });
  check([](Array x, Array y) { return std::pair{transpose(x), transpose(x) + y}; });
  check([](Array x, Array y) { return std::pair{transpose(transpose(x)), flip(y, 0)}; });
  check([](Array x, Array y) { return std::pair{x * sum(x), y * sum(x)}; });
  check([](Array x, Array y) {
    return std::pair{cumsum(x, 0), concatenate({slice(y, {2}, {4}), slice(x, {0}, {2})})};
  });
  check([](Array x, Array y) { return std::pair{dynamic_update_slice(x, slice(x, {1}, {2}), {0, 0}), x + y}; });
  check([](Array x, Array y) { return std::pair{sort(x, 0, true), take(y, array({3, 2, 1, 0}))}; });
  check([](Array x, Array y) {
    const auto [last, all] = scan([](Array c, Array r) { return std::pair{c + r, c * r}; }, at(x, 0), y);
    return std::pair{broadcast_to(last, {4, 4}), all};
  });
  check([](Array x, Array y) {
    return std::pair{cond(
                         sum(x) > 0, [](Array a, Array b) { return a - b; }, [](Array a, Array) { return a; }, x, y),
                     x};
  });
}

TEST(Donation, AnArrayPassedTwiceGivesRightResults) {
  const auto f = jit([](Array x, Array y) { return std::pair{x + 1.f, y * 2.f}; }, {.donate = {0, 1}});
  const Array x = array({1.f, 2.f});
  const auto [a, b] = f(x, x);
  EXPECT_TEXT(a, "f32[2] [2, 3]");
  EXPECT_TEXT(b, "f32[2] [2, 4]");
  EXPECT_NE(memory(a), memory(b));
  EXPECT_THROWS(x + 1.f, Error, "was donated");
}

TEST(Donation, AnArrayDonatedAndReadGivesRightResults) {
  const auto f = jit([](Array x, Array y) { return std::pair{x + 1.f, y * x}; }, {.donate = {0}});
  const Array x = array({3.f, 4.f});
  const auto [a, b] = f(x, x);
  EXPECT_TEXT(a, "f32[2] [4, 5]");
  EXPECT_TEXT(b, "f32[2] [9, 16]");
}

TEST(Donation, InvalidatesEveryHandle) {
  const auto f = jit([](Array x) { return x + 1.f; }, {.donate = {0}});
  const Array x = array({1.f, 2.f}), other = x;
  EXPECT_TEXT(f(x), "f32[2] [2, 3]");
  EXPECT_THROWS(other.to_vector<float>(), Error, "was donated");
  EXPECT_EQ(other.shape(), Shape{2});
  EXPECT_TEXT(other, "f32[2] (donated)");
}

TEST(Donation, NumbersMayBeDonated) {
  const auto f = jit([](Array x) { return x + 1.f; }, {.donate = {0}});
  const Array x = 1.f;
  EXPECT_EQ(f(x).item<float>(), 2);
  EXPECT_EQ(f(x).item<float>(), 2);
}

TEST(Donation, FailedCallLeavesArgumentsValid) {
  const auto f = jit([](Array x, Array y) { return x + y; }, {.donate = {0, 1}});
  const Array gone = array({1.f}), x = array({2.f});
  const void* before = memory(x);
  f(gone, array({5.f}));
  EXPECT_THROWS(f(x, gone), Error, "was donated");
  EXPECT_TEXT(x, "f32[1] [2]");
  EXPECT_EQ(memory(f(x, array({3.f}))), before);
}

TEST(Jit, ResultsMayBeArgumentsAndDuplicates) {
  const auto f = jit([](Array x, Array y) { return std::array<Array, 4>{y, x, x, x + y}; });
  const Array x = array({1.f}), y = array({2.f});
  const auto r = f(x, y);
  EXPECT_TEXT(r[0], "f32[1] [2]");
  EXPECT_TEXT(r[1], "f32[1] [1]");
  EXPECT_TEXT(r[2], "f32[1] [1]");
  EXPECT_TEXT(r[3], "f32[1] [3]");
  // Results are separate arrays: donating one leaves the others valid.
  jit([](Array a) { return a * 5.f; }, {.donate = {0}})(r[1]);
  EXPECT_TEXT(r[2], "f32[1] [1]");
  EXPECT_TEXT(x, "f32[1] [1]");
}

TEST(Jit, ResultsMayBeConstantsNumbersAndCaptures) {
  const Array outside = array({7, 8});
  const auto f =
      jit([outside](Array) { return std::tuple{Array(3), zeros({2}), outside, outside, 2.5, std::string("s")}; });
  const auto r = f(1);
  EXPECT_TEXT(std::get<0>(r), "i32[] 3");
  EXPECT_TEXT(std::get<1>(r), "f32[2] [0, 0]");
  EXPECT_TEXT(std::get<2>(r), "i32[2] [7, 8]");
  EXPECT_TEXT(std::get<3>(r), "i32[2] [7, 8]");
  EXPECT_EQ(std::get<4>(r), 2.5);
  EXPECT_EQ(std::get<5>(r), "s");
}

TEST(Jit, FunctionsMayReturnNothingAndTakeNothing) {
  const auto nothing = jit([](Array x) {
    static_cast<void>(x + 1);
    return std::tuple<>{};
  });
  EXPECT_EQ(nothing(1), std::tuple<>{});
  const auto constant = jit([] { return arange(3); });
  EXPECT_TEXT(constant(), "i32[3] [0, 1, 2]");
}

TEST(Jit, AcceptsManyLeaves) {
  const auto f =
      jit([](std::vector<Array> xs) { return tree_map([](Array x) { return x + 1.f; }, xs); }, {.donate = {0}});
  std::vector<Array> xs;
  for (int i = 0; i < 200; ++i) xs.push_back(full({i % 7}, static_cast<float>(i)));
  for (int round = 0; round < 3; ++round) xs = f(xs);
  ASSERT_EQ(xs.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(sum(xs[static_cast<size_t>(i)]).item<int>(), (i % 7) * (i + 3));
  EXPECT_EQ(f.compiled(), 1u);
}

TEST(Jit, CallsFromSeveralThreadsAgree) {
  const auto f = jit([](Array x, Array w) { return sum(tanh(dot(x, w))); });
  const Array x = random::normal(random::key(0), {16, 16}), w = random::normal(random::key(1), {16, 16});
  const auto wanted = sum(tanh(dot(x, w))).item<float>();
  std::vector<std::thread> threads;
  std::array<int, 4> right{};
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        // Different shapes compile while other threads run.
        const int copies = 1 + i % 2;
        right[t] += std::abs(f(tile(x, {copies, 1}), w).item<float>() - static_cast<float>(copies) * wanted) < 1e-3f;
      }
    });
  for (std::thread& t : threads) t.join();
  for (int r : right) EXPECT_EQ(r, 50);
  EXPECT_EQ(f.compiled(), 2u);
}

TEST(Jit, ThreadsTraceIndependently) {
  std::vector<std::thread> threads;
  std::array<float, 4> results{};
  for (size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&results, t] {
      const auto scale = static_cast<float>(t);
      for (int i = 0; i < 20; ++i)
        results[t] =
            jit([scale](Array x) { return grad([scale](Array y) { return scale * y * y; })(x); })(3.f).item<float>();
    });
  for (std::thread& t : threads) t.join();
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], 6 * static_cast<float>(t));
}

TEST(Jit, InsideJitIsPartOfTheOuterFunction) {
  const auto inner = jit([](Array x) { return x * x; }, {.donate = {0}});
  const auto outer = jit([inner](Array x) { return inner(x) + inner(x + 1) + x; });
  EXPECT_EQ(outer(3).item<int>(), 9 + 16 + 3);
  EXPECT_EQ(inner.compiled(), 0u);
  EXPECT_EQ(outer.compiled(), 1u);
}

Array power(const Array& x, int n);
const auto& compiled_power() {
  static const auto f = jit([](Array x, int n) { return power(x, n); });
  return f;
}
Array power(const Array& x, int n) { return n == 0 ? Array(1.f) : x * compiled_power()(x, n - 1); }

TEST(Jit, RecursionOverAStaticArgumentUnrolls) {
  EXPECT_EQ(compiled_power()(2.f, 10).item<float>(), 1024);
  EXPECT_EQ(compiled_power()(2.f, 3).item<float>(), 8);
}

TEST(Jit, AnExceptionInTheFunctionLeavesEverythingUsable) {
  bool fail = true;
  const auto f = jit([&fail](Array x) {
    if (fail) throw Error("not today");
    return x + 1;
  });
  EXPECT_THROWS(f(1), Error, "not today");
  EXPECT_FALSE(detail::tracing());
  EXPECT_EQ(f.compiled(), 0u);
  fail = false;
  EXPECT_EQ(f(1).item<int>(), 2);
  const auto nested = jit([](Array x) {
    try {
      grad([](Array) -> Array { throw Error("inner"); })(x);
    } catch (const Error&) {
    }
    return x * 2;
  });
  EXPECT_EQ(nested(2.f).item<float>(), 4);
}

TEST(Jit, RejectsOptionsForMissingArguments) {
  const auto f = jit([](Array x) { return x; }, {.donate = {1}});
  EXPECT_THROWS(f(1), Error, "jit: donate names argument 1, but the call has 1 arguments; positions start at 0");
}

}  // namespace
}  // namespace lockstep
