// pause(): tells the CPU that this thread is spinning, so that other threads of its core run faster. Safe from any
// thread.
#pragma once

namespace lockstep {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace lockstep
