#include "lane/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lane/memory.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

TEST(Pool, RunsEveryTaskOnceWithThreadIndicesBelowItsCount) {
  for (const int threads : {1, 2, 3, 8}) {
    Pool pool({.threads = threads});
    for (const int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      std::atomic<bool> in_range = true;
      pool.parallel_for(tasks, [&](int64_t task, int thread) {
        ++runs[static_cast<size_t>(task)];
        if (thread < 0 || thread >= threads) in_range = false;
      });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
      EXPECT_TRUE(in_range);
    }
  }
}

TEST(Pool, ManyShortRegionsLoseNoTask) {
  Pool pool({.threads = 4});
  int64_t expected = 0;
  std::atomic<int64_t> sum = 0;
  for (int64_t region = 0; region < 70000; ++region) {  // more regions than fit the number in the state word
    const int64_t tasks = 2 + region % 3;
    expected += tasks * (tasks - 1) / 2;
    pool.parallel_for(tasks, [&](int64_t task, int) { sum.fetch_add(task, std::memory_order_relaxed); });
  }
  EXPECT_EQ(sum, expected);
}

TEST(Pool, SleepingWorkersWakeUp) {
  Pool pool({.threads = 2});
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // longer than workers spin; nothing waits on it
    std::atomic<int> arrived = 0;
    // Each task waits for the other: only two threads can finish them.
    pool.parallel_for(2, [&](int64_t, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
  }
}

TEST(Pool, AllSleepingWorkersWakeUp) {
  constexpr int kThreads = 6;
  Pool pool({.threads = kThreads});
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // longer than workers spin; nothing waits on it
    std::atomic<int> arrived = 0;
    pool.parallel_for(kThreads, [&](int64_t, int) {
      ++arrived;
      while (arrived < kThreads) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, kThreads);
    // Few tasks wake them as well, but only the first of them joins.
    std::atomic<int> runs = 0;
    pool.parallel_for(2, [&](int64_t, int thread) { runs += thread < 2 ? 1 : 100; });
    EXPECT_EQ(runs, 2);
  }
}

TEST(Pool, RangesDependOnTheGrainAlone) {
  for (const int threads : {1, 3}) {
    Pool pool({.threads = threads});
    std::vector<std::atomic<int64_t>> ends(4);
    pool.parallel_range(10, 3, [&](int64_t begin, int64_t end, int) { ends[static_cast<size_t>(begin / 3)] = end; });
    EXPECT_EQ(ends[0], 3);
    EXPECT_EQ(ends[2], 9);
    EXPECT_EQ(ends[3], 10);
  }
}

TEST(Pool, NestedRegionsRunInlineOnTheSameThread) {
  Pool pool({.threads = 3});
  std::atomic<int> inner_runs = 0;
  std::atomic<bool> same = true;
  pool.parallel_for(6, [&](int64_t, int outer) {
    pool.parallel_for(5, [&](int64_t, int inner) {
      ++inner_runs;
      if (inner != outer) same = false;
    });
  });
  EXPECT_EQ(inner_runs, 30);
  EXPECT_TRUE(same);
}

TEST(Pool, ExceptionReachesTheCallerAndThePoolStaysUsable) {
  for (const int threads : {1, 2, 4}) {
    Pool pool({.threads = threads});
    for (int round = 0; round < 50; ++round) {
      EXPECT_THROW(pool.parallel_for(100,
                                     [&](int64_t task, int) {
                                       if (task == 40) throw std::out_of_range("forty");
                                     }),
                   std::out_of_range);
    }
    std::atomic<int> runs = 0;
    pool.parallel_for(10, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 10);
  }
}

TEST(Pool, RegionsOfSeveralCallersRunOneAfterAnother) {
  Pool pool({.threads = 2});
  std::atomic<int> inside = 0, sum = 0;
  std::atomic<bool> mixed = false;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 500; ++round) {
        pool.parallel_for(4, [&](int64_t, int thread) {
          // Scratch is exclusive to the running task, whichever thread started the region.
          auto* const mine = static_cast<int*>(pool.scratch(thread, 0, 64));
          *mine = caller;
          if (++inside > 2) mixed = true;
          sum.fetch_add(1);
          if (*mine != caller) mixed = true;
          --inside;
        });
      }
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 500 * 4);
  EXPECT_FALSE(mixed);
}

TEST(Pool, ScratchIsAlignedPersistentAndSeparateForEachSlot) {
  Pool pool({.threads = 1});
  pool.parallel_for(1, [&](int64_t, int thread) {
    std::vector<void*> first;
    for (int slot = 0; slot < Pool::kScratchSlots; ++slot) first.push_back(pool.scratch(thread, slot, 1000));
    for (int slot = 0; slot < Pool::kScratchSlots; ++slot) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first[static_cast<size_t>(slot)]) % 64, 0u);
      EXPECT_EQ(pool.scratch(thread, slot, 500), first[static_cast<size_t>(slot)]);
      for (int other = 0; other < slot; ++other)
        EXPECT_NE(first[static_cast<size_t>(slot)], first[static_cast<size_t>(other)]);
    }
    auto* const large = static_cast<char*>(pool.scratch(thread, 0, 5 << 20));
    large[(5 << 20) - 1] = 1;
  });
}

TEST(Pool, DefaultIsOneThreadPerAvailableCpu) {
  EXPECT_EQ(Pool().threads(), available_cpus());
  EXPECT_GE(available_cpus(), 1);
  try {
    Pool pool({.threads = -1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "pool: -1 threads requested; use at least 1, or 0 for one per CPU");
  }
}

}  // namespace
}  // namespace lockstep
