// SignalPipe: delivers this process's signals through a pipe, so that they can be polled. At most one object exists at
// a time. Used by the thread that created it; the signal handler may run on any thread.
#pragma once

#include <signal.h>

#include <utility>
#include <vector>

#include "base/os/descriptor.h"

namespace lockstep {

class SignalPipe {
 public:
  // Installs handlers for these signals. A signal that was ignored (nohup) stays ignored, except SIGCHLD.
  explicit SignalPipe(const std::vector<int>& signals);
  // Restores the previous handlers.
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  // Readable when signals are pending.
  int fd() const { return pipe_.reader.get(); }

  // The signals received since the last call, in order. Does not block.
  std::vector<int> take();

 private:
  Pipe pipe_;
  std::vector<std::pair<int, struct sigaction>> previous_;
};

}  // namespace lockstep
