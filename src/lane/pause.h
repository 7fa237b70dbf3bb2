// pause(): what a spinning thread does between two looks, so that the other threads of its core get on.
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
