// BriefLock: a lock that is held for a few instructions. A thread that does not get it spins briefly, since the holder is
// usually about to unlock it, and then sleeps between its attempts: a holder without a processor costs the others no time.
// Unlocking is a plain store. A Lockable of the standard library.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace lockstep {

class BriefLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire))
      for (int attempt = 0; held_.load(std::memory_order_relaxed); ++attempt) wait(attempt);
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static void wait(int attempt) {
    constexpr int kSpins = 64, kYields = 8;
    if (attempt < kSpins)
      pause();
    else if (attempt < kSpins + kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<bool> held_ = false;
};

}  // namespace lockstep
