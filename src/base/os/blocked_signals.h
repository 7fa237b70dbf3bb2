// BlockedSignals blocks all signals of the calling thread for a scope. Threads that start in the scope inherit that, so
// that signals are delivered to the threads of the program. An object belongs to one thread.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace lockstep {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace lockstep
