// Several runtimes in one process, and the parts that they own.
#include "lockstep/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <vector>

#include "base/runtime_parts.h"
#include "base/runtime_settings.h"
#include "base/start_thread.h"
#include "base/throws.h"
#include "lockstep/error.h"
#include "support/variable.h"

namespace lockstep {
namespace {

using detail::runtime_option;
using detail::runtime_part;
using detail::RuntimeParts;

std::vector<std::string> part_log;  // of the parts below; used by one thread at a time

template <int number>
struct LoggedPart {
  LoggedPart() { part_log.push_back("+" + std::to_string(number)); }
  ~LoggedPart() { part_log.push_back("-" + std::to_string(number)); }
};

TEST(RuntimeParts, AreMadeOnceInEachRuntime) {
  struct Counter {
    int value = 0;
  };
  Runtime one, other;
  RuntimeParts::of(one).get<Counter>().value = 1;
  RuntimeParts::of(other).get<Counter>().value = 2;
  EXPECT_EQ(RuntimeParts::of(one).get<Counter>().value, 1);
  EXPECT_EQ(RuntimeParts::of(other).get<Counter>().value, 2);
  EXPECT_EQ(runtime_part<Counter>().value, 0);
  const RuntimeScope scope(one);
  EXPECT_EQ(runtime_part<Counter>().value, 1);
}

TEST(RuntimeParts, AreDestroyedInReverseOrderOfConstruction) {
  struct Outer : LoggedPart<3> {
    Outer() { runtime_part<LoggedPart<4>>(); }
  };
  part_log.clear();
  {
    Runtime runtime;
    const RuntimeScope scope(runtime);
    runtime_part<LoggedPart<2>>();
    runtime_part<Outer>();
    runtime_part<LoggedPart<1>>();
  }
  EXPECT_EQ(part_log, (std::vector<std::string>{"+2", "+3", "+4", "+1", "-1", "-3", "-4", "-2"}));
}

TEST(RuntimeParts, AreMadeAndDestroyedInTheirRuntime) {
  struct Part {
    explicit Part(Runtime& runtime) : owner(runtime), at_construction(&Runtime::current()) {}
    ~Part() { *at_destruction = &Runtime::current(); }
    Runtime& owner;
    Runtime* at_construction;
    Runtime** at_destruction = nullptr;
  };
  Runtime* at_destruction = nullptr;
  Runtime* address = nullptr;
  {
    Runtime runtime;
    address = &runtime;
    Part& part = RuntimeParts::of(runtime).get<Part>();  // not the current runtime
    part.at_destruction = &at_destruction;
    EXPECT_EQ(&part.owner, address);
    EXPECT_EQ(part.at_construction, address);
  }
  EXPECT_EQ(at_destruction, address);
}

TEST(RuntimeParts, ADestructorMayMakeOthers) {
  struct Late {
    ~Late() { runtime_part<LoggedPart<5>>(); }
  };
  part_log.clear();
  {
    Runtime runtime;
    RuntimeParts::of(runtime).get<Late>();
  }
  EXPECT_EQ(part_log, (std::vector<std::string>{"+5", "-5"}));
}

TEST(RuntimePartsDeathTest, AreAddedOnce) {
  struct Number {
    int value = 0;
  };
  Runtime runtime;
  RuntimeParts& parts = RuntimeParts::of(runtime);
  const Number& added = parts.add(std::make_unique<Number>(Number{7}));
  EXPECT_EQ(&parts.get<Number>(), &added);
  EXPECT_EQ(added.value, 7);
  EXPECT_DEATH(parts.add(std::make_unique<Number>()), "the runtime already has this part");
}

TEST(RuntimeParts, AConstructorThatThrowsIsCalledAgain) {
  static int attempts;
  attempts = 0;
  struct Fails {
    Fails() {
      if (++attempts == 1) throw Error("first attempt");
    }
  };
  Runtime runtime;
  EXPECT_THROWS(RuntimeParts::of(runtime).get<Fails>(), Error, "first attempt");
  RuntimeParts::of(runtime).get<Fails>();
  RuntimeParts::of(runtime).get<Fails>();
  EXPECT_EQ(attempts, 2);
}

TEST(RuntimeParts, ThreadsThatGetAPartTogetherMakeOne) {
  static std::atomic<int> constructed;
  constexpr int kThreads = 4;
  for (int round = 0; round < 100; ++round) {
    constructed = 0;
    struct Shared {
      Shared() {
        ++constructed;
        std::this_thread::yield();
      }
    };
    Runtime runtime;
    std::latch begin(kThreads);
    std::vector<std::future<Shared*>> found;
    for (int i = 0; i < kThreads; ++i)
      found.push_back(std::async(std::launch::async, [&] {
        begin.arrive_and_wait();
        return &RuntimeParts::of(runtime).get<Shared>();
      }));
    for (auto& each : found) EXPECT_EQ(each.get(), &RuntimeParts::of(runtime).get<Shared>());
    EXPECT_EQ(constructed, 1);
  }
}

// A thread may hold a lock that a constructor on another thread waits for, and get a part meanwhile.
TEST(RuntimeParts, AreMadeWhileAnotherThreadMakesOne) {
  static std::promise<void>* started;
  static std::future<void>* other_is_made;
  struct Waits {
    Waits() {
      started->set_value();
      finished = other_is_made->wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    }
    bool finished = false;
  };
  struct Other {};
  std::promise<void> start, made;
  std::future<void> is_made = made.get_future();
  started = &start;
  other_is_made = &is_made;
  Runtime runtime;
  auto waits = std::async(std::launch::async, [&] { return RuntimeParts::of(runtime).get<Waits>().finished; });
  start.get_future().wait();
  RuntimeParts::of(runtime).get<Other>();
  made.set_value();
  EXPECT_TRUE(waits.get());
}

TEST(RuntimePartsDeathTest, APartThatNeedsItselfIsABug) {
  struct Cycle {
    Cycle() { runtime_part<Cycle>(); }
  };
  Runtime runtime;
  EXPECT_DEATH(RuntimeParts::of(runtime).get<Cycle>(), "the constructor of a part gets the part itself");
}

TEST(Runtime, ScopesNest) {
  Runtime& of_process = Runtime::current();
  Runtime one, other;
  {
    const RuntimeScope outer(one);
    EXPECT_EQ(&Runtime::current(), &one);
    {
      const RuntimeScope inner(other);
      EXPECT_EQ(&Runtime::current(), &other);
      const RuntimeScope again(one);
      EXPECT_EQ(&Runtime::current(), &one);
    }
    EXPECT_EQ(&Runtime::current(), &one);
  }
  EXPECT_EQ(&Runtime::current(), &of_process);
}

TEST(Runtime, ThreadsOfTheLibraryInheritTheCurrentOne) {
  Runtime& of_process = Runtime::current();
  Runtime runtime;
  Runtime *inherited = nullptr, *of_second = nullptr, *of_plain = nullptr;
  {
    const RuntimeScope scope(runtime);
    start_thread([&] {
      inherited = &Runtime::current();
      start_thread([&] { of_second = &Runtime::current(); }).join();
    }).join();
    std::thread([&] { of_plain = &Runtime::current(); }).join();
  }
  EXPECT_EQ(inherited, &runtime);
  EXPECT_EQ(of_second, &runtime);
  EXPECT_EQ(of_plain, &of_process);
}

TEST(Runtime, HasItsOwnOptions) {
  const ScopedVariable variable("LOCKSTEP_CPU_LANES", "3");
  Runtime one, four({.cpu_lanes = 4});
  {
    const RuntimeScope scope(four);
    EXPECT_EQ(runtime_option(&RuntimeOptions::cpu_lanes), 4);
    EXPECT_THROWS(configure({.cpu_lanes = 2}), Error, "configure: cpu_lanes is \"2\", but it is already in use");
  }
  const RuntimeScope scope(one);
  configure({.cpu_lanes = 1});
  EXPECT_EQ(runtime_option(&RuntimeOptions::cpu_lanes), 1);
}

TEST(Runtime, RejectsInvalidOptions) {
  EXPECT_THROWS(Runtime({.cpu_lanes = 0}), Error,
                "runtime: cpu_lanes: \"0\" is not a whole number from 1 to 1024; change it, or leave it unset");
}

}  // namespace
}  // namespace lockstep
