// Batches made ahead of their use by a thread of their own, in order, a few at a time. Used by one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/loader.h"

namespace lockstep::detail {

struct PrefetchOptions {
  int64_t depth = 1;                   // batches that may wait, finished
  std::chrono::milliseconds deadline;  // of one wait
  std::string source;                  // what is read, for messages
};

class Prefetcher {
 public:
  // `make` returns the next batch at each call; it runs on the thread only, one call at a time, and is destroyed there.
  Prefetcher(std::function<LoaderBatch()> make, PrefetchOptions options);
  // Waits for a call of `make` under way. One that takes longer than the deadline is left behind with all it holds, to
  // end when it can.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch. What `make` threw is thrown here, after the batches made before; there will be no further ones
  // then. Throws IoError when none has come within the deadline; another call waits on.
  LoaderBatch next();

  // Whether next() has thrown what `make` threw.
  bool failed() const { return failed_; }

 private:
  struct State;
  static void run(State& state, std::function<LoaderBatch()> make);

  PrefetchOptions options_;
  std::shared_ptr<State> state_;
  bool failed_ = false;
  std::thread thread_;
};

}  // namespace lockstep::detail
