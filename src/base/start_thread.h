// start_thread() starts the threads of the library. Only those that serve all runtimes (MPI's) or use no part of one
// (name look-ups, workers of a pool) are plain std::threads. Safe from any thread.
#pragma once

#include <thread>
#include <utility>

#include "lockstep/runtime.h"

namespace lockstep {

// Starts a thread that calls f(). The current runtime of the calling thread is also that of the new one. Throws as
// std::thread does.
template <class F>
std::thread start_thread(F f) {
  return std::thread([runtime = &Runtime::current(), f = std::move(f)]() mutable {
    const RuntimeScope scope(*runtime);
    f();
  });
}

}  // namespace lockstep
