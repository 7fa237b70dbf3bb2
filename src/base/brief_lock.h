// BriefLock: a lock that is held for a few instructions. A thread that does not get it spins briefly, since the holder is
// usually about to unlock it, and then sleeps: a holder without a processor costs the others no time. A Lockable of the
// standard library.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep {

class BriefLock {
 public:
  void lock() {
    for (int i = 0; i < kSpins; ++i) {
      uint32_t expected = kFree;
      if (state_.compare_exchange_weak(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed)) return;
      pause();
    }
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr int kSpins = 64;
  static constexpr uint32_t kFree = 0, kHeld = 1, kAwaited = 2;  // awaited: held, and a thread may sleep

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<uint32_t> state_ = kFree;
};

}  // namespace lockstep
