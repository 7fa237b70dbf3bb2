// The versions of a compiled function: asking about them while the function is traced, several threads that need them, and
// those that are no longer kept.
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <thread>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

constexpr std::chrono::minutes kLong(2);

bool ends(std::future<void>& work) { return work.wait_for(kLong) == std::future_status::ready; }

TEST(JitVersions, AreCountedWhileTheFunctionIsTraced) {
  std::function<size_t()> count;
  std::vector<size_t> counted;
  const auto f = jit([&](Array x) {
    counted.push_back(count());
    return x * 2;
  });
  count = [&] { return f.compiled(); };
  f(ones({1}));
  f(ones({2}));
  EXPECT_EQ(counted, (std::vector<size_t>{0, 1}));
}

TEST(JitVersions, AFunctionThatAsksAboutTheVersionBeingTracedIsRejected) {
  std::function<void(const Array&)> ask;
  const auto f = jit([&](Array x) {
    if (ask) ask(x);
    return x * 2;
  });
  const std::string wanted = "jit: the function compiled at jit_versions_test.cc:" + std::to_string(__LINE__ - 4) +
                             " asks about itself, with arguments of the same types, while it is traced for them";
  for (const auto& each : std::vector<std::function<void(const Array&)>>{[&](const Array& x) { f.program(x); },
                                                                         [&](const Array& x) { f.plan(x); },
                                                                         [&](const Array& x) { f.prepare(x); }}) {
    ask = each;
    EXPECT_THROWS(f(ones({2})), Error, wanted);
    EXPECT_FALSE(detail::tracing());
    EXPECT_EQ(f.compiled(), 0u);
  }
  ask = {};
  EXPECT_TEXT(f(ones({2})), "f32[2] [2, 2]");
}

TEST(JitVersions, AFunctionMayAskAboutOtherVersionsWhileItIsTraced) {
  std::function<std::string()> text;
  std::string program;
  const auto f = jit([&](Array x) {
    if (x.size() == 2) program = text();
    return x * 2;
  });
  text = [&] { return f.program(ones({3})); };
  EXPECT_TEXT(f(ones({2})), "f32[2] [2, 2]");
  EXPECT_NE(program.find("f32[3] = mul"), program.npos) << program;
  EXPECT_EQ(f.compiled(), 2u);
}

TEST(JitVersions, ARecursionThatDoesNotEndIsRejected) {
  std::function<Array(Array)> again;
  int most = 1000000;
  const auto f = jit([&](Array x) { return --most > 0 ? again(x) + 1 : x; });
  const int line = __LINE__ - 1;
  const std::string wanted =
      "jit: the function compiled at jit_versions_test.cc:" + std::to_string(line) +
      " calls itself with arguments of the same types and static values, 100 calls deep; end the "
      "recursion by a static argument (int n), or use while_loop() or scan()";
  again = [&](Array x) { return f(x); };
  EXPECT_THROWS(f(1.f), Error, wanted);
  EXPECT_FALSE(detail::tracing());
  most = 10;  // one that ends
  EXPECT_EQ(f(1.f).item<float>(), 10);
}

TEST(JitVersions, CallsOfOneDoNotWaitForAnotherToBeCompiled) {
  std::promise<void> traced, called;
  const auto f = jit([&](Array x) {
    if (x.size() == 2) {
      traced.set_value();
      called.get_future().wait();
    }
    return x * 2;
  });
  EXPECT_TEXT(f(ones({1})), "f32[1] [2]");
  std::future<void> compiles = std::async(std::launch::async, [&] { EXPECT_TEXT(f(ones({2})), "f32[2] [2, 2]"); });
  traced.get_future().wait();
  std::future<void> calls = std::async(std::launch::async, [&] {
    EXPECT_TEXT(f(ones({1})), "f32[1] [2]");
    EXPECT_TEXT(f(ones({3})), "f32[3] [2, 2, 2]");
    EXPECT_EQ(f.compiled(), 2u);
  });
  EXPECT_TRUE(ends(calls));
  called.set_value();
  compiles.get();
  calls.get();
  EXPECT_EQ(f.compiled(), 3u);
}

TEST(JitVersions, SeveralThreadsCompileOneOnce) {
  constexpr int kThreads = 4;
  std::latch about_to_call(kThreads);
  std::atomic<int> traces = 0;
  const auto f = jit([&](Array x) {
    ++traces;
    about_to_call.wait();
    return x * 2;
  });
  std::vector<std::future<void>> calls;
  for (int i = 0; i < kThreads; ++i)
    calls.push_back(std::async(std::launch::async, [&] {
      about_to_call.count_down();
      EXPECT_TEXT(f(ones({2})), "f32[2] [2, 2]");
    }));
  for (auto& each : calls) EXPECT_TRUE(ends(each));
  EXPECT_EQ(traces, 1);
  EXPECT_EQ(f.compiled(), 1u);
}

TEST(JitVersions, AThreadThatWaitsCompilesItselfIfTheOtherFails) {
  std::latch about_to_call(2);
  std::atomic<int> traces = 0, failures = 0;
  const auto f = jit([&](Array x) {
    about_to_call.wait();
    if (++traces == 1) throw Error("not today");
    return x * 2;
  });
  std::vector<std::future<void>> calls;
  for (int i = 0; i < 2; ++i)
    calls.push_back(std::async(std::launch::async, [&] {
      about_to_call.count_down();
      try {
        EXPECT_TEXT(f(ones({2})), "f32[2] [2, 2]");
      } catch (const Error& error) {
        ++failures;
        EXPECT_NE(std::string(error.what()).find("not today"), std::string::npos) << error.what();
      }
    }));
  for (auto& each : calls) EXPECT_TRUE(ends(each));
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(traces, 2);
  EXPECT_EQ(f.compiled(), 1u);
}

// Each function asks about the other when it is traced for the first time, by two threads at the same time.
TEST(JitVersions, ThreadsThatAskAboutEachOthersFunctionsDoNotWaitForEver) {
  std::latch both_traced(2);
  std::atomic<bool> f_asked = false, g_asked = false;
  std::function<void()> ask_f, ask_g;
  const auto f = jit([&](Array x) {
    if (!f_asked.exchange(true)) {
      both_traced.arrive_and_wait();
      ask_g();
    }
    return x * 2;
  });
  const auto g = jit([&](Array x) {
    if (!g_asked.exchange(true)) {
      both_traced.arrive_and_wait();
      ask_f();
    }
    return x * 3;
  });
  ask_f = [&] { EXPECT_NE(f.program(ones({2})).find("mul"), std::string::npos); };
  ask_g = [&] { EXPECT_NE(g.program(ones({2})).find("mul"), std::string::npos); };
  std::future<void> calls_f = std::async(std::launch::async, [&] { EXPECT_TEXT(f(ones({2})), "f32[2] [2, 2]"); });
  std::future<void> calls_g = std::async(std::launch::async, [&] { EXPECT_TEXT(g(ones({2})), "f32[2] [3, 3]"); });
  EXPECT_TRUE(ends(calls_f));
  EXPECT_TRUE(ends(calls_g));
  EXPECT_EQ(f.compiled(), 1u);
  EXPECT_EQ(g.compiled(), 1u);
}

TEST(JitVersions, OfManyEachIsFound) {
  int traces = 0;
  const auto f = jit([&](Array x, int n) {
    ++traces;
    return x + n;
  });
  constexpr int kMany = 300;
  const Array x = array({1.f});
  ::testing::internal::CaptureStderr();  // the warning about static numbers
  for (int round = 0; round < 2; ++round)
    for (int n = 0; n < kMany; ++n) EXPECT_EQ(f(x, n).item<float>(), static_cast<float>(1 + n));
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(traces, kMany);
  EXPECT_EQ(f.compiled(), static_cast<size_t>(kMany));
}

TEST(JitVersions, TheLeastRecentlyUsedOnesAreReplaced) {
  std::vector<int64_t> traced;
  const auto f = jit(
      [&](Array x) {
        traced.push_back(x.size());
        return x * 2;
      },
      {.max_versions = 2});
  for (const int64_t n : {1, 2, 1, 3, 1, 2, 3}) EXPECT_EQ(sum(f(ones({n}))).item<int64_t>(), 2 * n);
  EXPECT_EQ(traced, (std::vector<int64_t>{1, 2, 3, 2, 3}));
  EXPECT_EQ(f.compiled(), 2u);
  EXPECT_THROWS(jit([](Array x) { return x; }, {.max_versions = 0}), Error,
                "jit: max_versions is 0; keep at least one version");
}

TEST(JitVersions, OneMayBeReplacedWhileItRuns) {
  std::promise<void> runs, replaced;
  const auto f = jit(
      [&](Array x) {
        if (x.size() == 1)
          debug::callback(
              [&](const Array&) {
                runs.set_value();
                replaced.get_future().wait();
              },
              x);
        return x * 2;
      },
      {.max_versions = 1});
  const Array one = ones({1}), two = ones({2});
  std::future<void> call = std::async(std::launch::async, [&] { EXPECT_TEXT(f(one), "f32[1] [2]"); });
  runs.get_future().wait();
  std::future<void> replaces = std::async(std::launch::async, [&] {
    f.prepare(two);
    EXPECT_EQ(f.compiled(), 1u);
  });
  EXPECT_TRUE(ends(replaces));
  replaced.set_value();
  EXPECT_TRUE(ends(call));
  EXPECT_TEXT(f(two), "f32[2] [2, 2]");
}

TEST(JitVersions, GoWithTheirRuntime) {
  const auto f = jit([](Array x) { return x * 2; });
  f(ones({1}));
  for (int i = 0; i < 3; ++i) {
    Runtime other({.cpu_lanes = 1});
    const RuntimeScope scope(other);
    set_platform(Platform::cpu);
    EXPECT_TEXT(f(ones({1})), "f32[1] [2]");
    EXPECT_EQ(f.compiled(), 2u);
  }
  EXPECT_EQ(f.compiled(), 1u);
}

}  // namespace
}  // namespace lockstep
