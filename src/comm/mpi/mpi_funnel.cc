#include "comm/mpi/mpi_funnel.h"

#include <chrono>

#include "base/os/blocked_signals.h"
#include "lane/pause.h"

namespace lockstep {

namespace {

constexpr auto kFunnelSpin = std::chrono::microseconds(20);

}  // namespace

MpiFunnel::MpiFunnel() {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { work(); });
}

MpiFunnel::~MpiFunnel() {
  change(State::stop, requested_);
  thread_.join();
}

bool MpiFunnel::spin_while(State state) const {
  const auto end = std::chrono::steady_clock::now() + kFunnelSpin;
  for (int round = 1; state_.load() == state; ++round) {
    pause();
    if (round % 16 == 0 && std::chrono::steady_clock::now() >= end) return false;
  }
  return true;
}

void MpiFunnel::change(State state, std::condition_variable& waiter) {
  {
    const std::lock_guard lock(mutex_);
    state_.store(state);
  }
  waiter.notify_one();
}

int MpiFunnel::run(Function function, void* body) {
  const std::lock_guard turn(turn_);
  function_ = function;
  body_ = body;
  change(State::requested, requested_);
  if (!spin_while(State::requested)) {
    std::unique_lock lock(mutex_);
    completed_.wait(lock, [&] { return state_.load() == State::completed; });
  }
  return result_;
}

void MpiFunnel::work() {
  State seen = State::idle;
  while (true) {
    if (!spin_while(seen)) {
      std::unique_lock lock(mutex_);
      requested_.wait(lock, [&] { return state_.load() != seen; });
    }
    if (state_.load() == State::stop) return;
    result_ = function_(body_);
    change(State::completed, completed_);
    seen = State::completed;
  }
}

}  // namespace lockstep
