#include "base/brief_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(BriefLock, OneThreadAtATimeHoldsIt) {
  BriefLock lock;
  int64_t count = 0;  // not atomic
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const std::lock_guard held(lock);
        ++count;
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(count, 8 * 20000);
}

// The state of a thread in /proc: R runs, S sleeps.
char state_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name = text.rfind(')');
  return name + 2 < text.size() ? text[name + 2] : '?';
}

TEST(BriefLock, AThreadThatWaitsLongSleeps) {
  BriefLock lock;
  lock.lock();
  std::atomic<pid_t> waiting = 0;
  bool locked = false;
  std::thread waits([&] {
    waiting = gettid();
    const std::lock_guard held(lock);
    locked = true;
  });
  while (waiting == 0) std::this_thread::yield();
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  char state = 0;
  while ((state = state_of(waiting)) != 'S' && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(state, 'S');
  lock.unlock();
  waits.join();
  EXPECT_TRUE(locked);
}

}  // namespace
}  // namespace lockstep
