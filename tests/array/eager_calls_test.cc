// Operations outside of traces: those that were called before with the same types are found without making their program.
#include <cmath>
#include <thread>

#include "array/eager_calls.h"
#include "array/near.h"
#include "lockstep/lockstep.h"
#include "program/host_function.h"

namespace lockstep {
namespace {

// Each is called twice: the second call is a known one.
TEST(EagerCalls, KnownOnesDependOnTypesNumbersAndEqualOperands) {
  const Array x = array({1.f, 2.f}), y = array({10.f, 20.f}), n = array({3, 4}), s = full({}, 5.f);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TEXT(x + y, "f32[2] [11, 22]");
    EXPECT_TEXT(x + x, "f32[2] [2, 4]");
    EXPECT_TEXT(y + x, "f32[2] [11, 22]");
    EXPECT_TEXT(y - x, "f32[2] [9, 18]");
    EXPECT_TEXT(x - y, "f32[2] [-9, -18]");
    EXPECT_TEXT(x + s, "f32[2] [6, 7]");
    EXPECT_TEXT(n + n, "i32[2] [6, 8]");
    EXPECT_TEXT(n + x, "f32[2] [4, 6]");
    EXPECT_TEXT(x + 1, "f32[2] [2, 3]");
    EXPECT_TEXT(x + 2, "f32[2] [3, 4]");
    EXPECT_TEXT(n + 2, "i32[2] [5, 6]");
    EXPECT_TEXT(n + 2.5, "f32[2] [5.5, 6.5]");
    EXPECT_TEXT(2 - x, "f32[2] [1, 0]");
    EXPECT_TEXT(x - 2, "f32[2] [-1, 0]");
    EXPECT_TEXT(x < y, "bool[2] [true, true]");
    EXPECT_TEXT(x >= y, "bool[2] [false, false]");
    EXPECT_TEXT(where(x < 2, x, y), "f32[2] [1, 20]");
    EXPECT_TEXT(where(x < 2, y, x), "f32[2] [10, 2]");
    EXPECT_TEXT(clip(x, 0, 1), "f32[2] [1, 1]");
    EXPECT_TEXT(astype(x, i32), "i32[2] [1, 2]");
    EXPECT_TEXT(astype(x, f64), "f64[2] [1, 2]");
    EXPECT_TEXT(-n, "i32[2] [-3, -4]");
    EXPECT_TEXT(abs(-n), "i32[2] [3, 4]");
    EXPECT_TEXT(sqrt(array({4, 9})), "f32[2] [2, 3]");
    EXPECT_TEXT(Array(2) + Array(3), "i32[] 5");
  }
}

TEST(EagerCalls, KnownOnesKeepShardings) {
  Runtime runtime({.cpu_lanes = 1});
  const RuntimeScope scope(runtime);
  set_platform(Platform::cpu);
  set_cpu_devices(2);
  const Mesh mesh = make_mesh({{"i", 2}});
  const Array x = arange(4.f), sharded = device_put(x, NamedSharding(mesh, P("i")));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((sharded + sharded).sharding(), NamedSharding(mesh, P("i")));
    EXPECT_EQ((sharded + x).sharding(), NamedSharding(mesh, P("i")));
    EXPECT_EQ((x + x).sharding(), x.sharding());
    EXPECT_TEXT(sharded + x, "f32[4] [0, 2, 4, 6]");
  }
}

TEST(EagerCalls, OperandsThatCannotBeReadAreRejectedByKnownOnes) {
  const Array x = array({1.f, 2.f}), gone = array({3.f, 4.f});
  EXPECT_TEXT(x + gone, "f32[2] [4, 6]");
  jit([](Array v) { return v * 2; }, {.donate = {0}})(gone);
  EXPECT_THROWS(x + gone, Error, "add: the array f32[2] was donated");
  Array kept;
  jit([&](Array v) { return kept = v + v; })(x);
  EXPECT_THROWS(kept + kept, Error, "that trace has ended");
  EXPECT_THROWS(x + Array(), Error, "the array is empty");
  EXPECT_THROWS(x + ones({3}), Error, "do not broadcast");
  EXPECT_THROWS(x + ones({3}), Error, "do not broadcast");
}

TEST(EagerCalls, KnownOnesAreSearchedForNan) {
  const Array x = array({-1.f});
  EXPECT_TRUE(std::isnan(log(x).item<float>()));
  debug::check_nans();
  EXPECT_THROWS(log(x), Error, "log: result f32[1] at [0] is NaN, computed from f32[1] [-1]");
  debug::check_nans(false);
}

TEST(EagerCalls, RuntimesHaveTheirOwn) {
  const auto sums = [] {
    const Array x = arange(4.f);
    for (int i = 0; i < 3; ++i) EXPECT_TEXT(x + x, "f32[4] [0, 2, 4, 6]");
  };
  sums();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      Runtime other({.cpu_lanes = 1});
      const RuntimeScope scope(other);
      set_platform(Platform::cpu);
      sums();
    });
  for (std::thread& each : threads) each.join();
  sums();
}

TEST(CallKey, ThatIsTooLongIsEmpty) {
  EXPECT_EQ(detail::CallKey().bytes(), "");
  EXPECT_NE(detail::CallKey("f", 1).bytes(), detail::CallKey("f", 2).bytes());
  EXPECT_EQ(detail::CallKey("f", std::vector<int64_t>{1, 2}).bytes().size(), 4 * sizeof(int64_t));
  EXPECT_EQ(detail::CallKey("f", std::vector<int64_t>(40)).bytes(), "");
}

// Doubles its operand on the host.
Array doubled(const Array& x) {
  std::vector<float> out;
  for (const float each : x.data<float>()) out.push_back(2 * each);
  return Array::from(std::move(out), x.shape());
}

TEST(HostFunctions, GoWithThePrograms) {
  const size_t before = HostFunction::count();
  {
    int calls = 0;
    const auto f = jit([&](Array x) {
      debug::callback([&calls](const Array&) { ++calls; }, x);
      debug::print("twice");
      return pure_callback([&calls](const Array& y) { return ++calls, doubled(y); }, x, x);
    });
    ::testing::internal::CaptureStdout();
    for (int i = 0; i < 3; ++i) EXPECT_TEXT(f(array({1.f, 2.f})), "f32[2] [2, 4]");
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "twice\ntwice\ntwice\n");
    EXPECT_EQ(calls, 6);
    EXPECT_EQ(HostFunction::count(), before + 3);
  }
  EXPECT_EQ(HostFunction::count(), before);
}

TEST(HostFunctions, AreCalledWithoutAProgramOutsideOfTraces) {
  const size_t before = HostFunction::count();
  const auto held = std::make_shared<int>(0);
  const Array x = array({1.f, 2.f});
  for (int i = 0; i < 100; ++i) {
    const auto add_call = [held](const Array& y) {
      ++*held;
      return doubled(y);
    };
    EXPECT_TEXT(pure_callback(add_call, x, x), "f32[2] [2, 4]");
    debug::callback([held](const Array&) { ++*held; }, x);
  }
  EXPECT_EQ(*held, 200);
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(HostFunction::count(), before);
  EXPECT_TEXT(pure_callback([](const Array& y) { return doubled(y); }, ones({}), 1.5f), "f32[] 3");
}

TEST(HostFunctions, OutsideOfTracesResultsAreArraysOfTheirOwn) {
  const Array x = array({1.f, 2.f});
  const Array y = pure_callback([](const Array& v) { return v; }, x, x);
  jit([](Array v) { return v * 2; }, {.donate = {0}})(y);
  EXPECT_TEXT(x, "f32[2] [1, 2]");
  EXPECT_THROWS(pure_callback([](const Array& v) { return v; }, zeros({3}), x), Error,
                "pure_callback: result 0 of the function is f32[2], but `like` has f32[3]; return that type");
  EXPECT_THROWS(pure_callback([](const Array& v) { return v + 1; }, x, x), Error,
                "call: a function of the host (debug::callback, pure_callback) computes with arrays");
  EXPECT_THROWS(pure_callback([](const Array& v) { return v; }, x, Array()), Error, "empty Array");
  EXPECT_TEXT(x + 1, "f32[2] [2, 3]");
}

TEST(HostFunctions, WithoutStateAreTheSameInEveryTrace) {
  const auto f = [](Array x) {
    return pure_callback(doubled, x, x) + pure_callback([](const Array& y) { return doubled(y); }, x, x);
  };
  const Array x = array({1.f, 2.f});
  const auto first = jit(f), second = jit(f);
  EXPECT_EQ(first.program(x), second.program(x));
  float factor = 3;
  const auto with_state = [&](Array v) {
    return pure_callback(
        [factor](const Array& y) { return Array::from(std::vector<float>{factor * y.item<float>()}, {1}); }, v, v);
  };
  const auto third = jit(with_state), fourth = jit(with_state);
  EXPECT_NE(third.program(ones({1})), fourth.program(ones({1})));
}

}  // namespace
}  // namespace lockstep
