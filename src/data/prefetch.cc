#include "data/prefetch.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "base/start_thread.h"
#include "lockstep/error.h"

namespace lockstep::detail {

// Shared with the thread, which may outlive the Prefetcher.
struct Prefetcher::State {
  explicit State(int64_t batches) : depth(static_cast<size_t>(batches)) {}

  const size_t depth;
  std::mutex mutex;
  std::condition_variable changed;  // signals changes of the members below, which the mutex guards
  std::deque<LoaderBatch> ready;
  std::exception_ptr error;
  bool stop = false;   // requests the thread to end
  bool ended = false;  // the thread no longer uses anything
};

Prefetcher::Prefetcher(std::function<LoaderBatch()> make, PrefetchOptions options)
    : options_(std::move(options)),
      state_(std::make_shared<State>(options_.depth)),
      thread_(start_thread([state = state_, make = std::move(make)]() mutable {
        run(*state, std::move(make));
        const std::lock_guard lock(state->mutex);
        state->ended = true;
        state->changed.notify_all();
      })) {}

void Prefetcher::run(State& state, std::function<LoaderBatch()> make) {
  constexpr std::chrono::seconds kPoll(1);  // every wait has a limit; correctness does not depend on it
  for (;;) {
    {
      std::unique_lock lock(state.mutex);
      while (!state.stop && state.ready.size() >= state.depth) state.changed.wait_for(lock, kPoll);
      if (state.stop) return;
    }
    LoaderBatch batch;
    std::exception_ptr error;
    try {
      batch = make();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(state.mutex);
    if (error) {
      state.error = std::move(error);
    } else {
      state.ready.push_back(std::move(batch));
    }
    state.changed.notify_all();
    if (state.error) return;
  }
}

Prefetcher::~Prefetcher() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, options_.deadline, [&] { return state_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

LoaderBatch Prefetcher::next() {
  std::unique_lock lock(state_->mutex);
  const auto available = [&] { return !state_->ready.empty() || state_->error; };
  if (!state_->changed.wait_for(lock, options_.deadline, available))
    throw IoError(fmt::format("loader: no batch of {} within {} s; check the disk or network file system",
                              options_.source, std::chrono::duration<double>(options_.deadline).count()));
  if (state_->ready.empty()) {
    failed_ = true;
    std::rethrow_exception(state_->error);
  }
  LoaderBatch batch = std::move(state_->ready.front());
  state_->ready.pop_front();
  state_->changed.notify_all();
  return batch;
}

}  // namespace lockstep::detail
