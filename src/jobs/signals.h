// SignalPipe: signals of this process as something to poll. One object at a time; used by the thread that made it, and
// written to by whichever thread the system lets handle a signal.
#pragma once

#include <signal.h>

#include <utility>
#include <vector>

#include "jobs/descriptor.h"

namespace lockstep {

class SignalPipe {
 public:
  // From now on these signals do nothing but come out of take(); those that were ignored stay so (nohup), but
  // SIGCHLD.
  explicit SignalPipe(const std::vector<int>& signals);
  // What they did before.
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  // Readable when there are signals.
  int fd() const { return reader_.get(); }

  // Those since the last call, in order. Never waits.
  std::vector<int> take();

 private:
  Descriptor reader_, writer_;
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace lockstep
