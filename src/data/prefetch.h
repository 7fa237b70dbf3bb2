// Prefetcher: a background thread that makes batches ahead of their use, in order. Not thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/loader.h"

namespace lockstep::detail {

struct PrefetchOptions {
  int64_t depth = 1;                   // maximum number of finished batches
  std::chrono::milliseconds deadline;  // for one wait
  std::string source;                  // the file, for messages
};

class Prefetcher {
 public:
  // `make` returns the next batch at each call. It is called and destroyed only in the background thread.
  Prefetcher(std::function<LoaderBatch()> make, PrefetchOptions options);
  // Waits for the current call of `make`. If that takes longer than the deadline, the thread is detached and ends by
  // itself later; it owns everything it uses.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch. An exception of `make` is rethrown here, after the batches made before it; then there are no
  // further batches. Throws IoError when no batch arrives within the deadline; the next call waits again.
  LoaderBatch next();

  // Whether next() has rethrown an exception of `make`.
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
