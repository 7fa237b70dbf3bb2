#include "cluster/coordinator_host.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/print_stderr.h"
#include "base/start_thread.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

// Bounds of the time to deliver a failure.
constexpr std::chrono::seconds kMinDelivery(1), kMaxDelivery(5);

class InProcessChannel : public ControlChannel {
 public:
  explicit InProcessChannel(std::shared_ptr<CoordinatorHost> host) : host_(std::move(host)) {}

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    const auto slot = std::make_shared<std::optional<Answer>>();
    const uint64_t call = host_->new_call();
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->closed) return unreachable("the channel was closed");
    }
    host_->submit(call, request, "", [slot, state = state_](const Answer& answer) {
      const std::lock_guard lock(state->mutex);
      *slot = answer;
      state->changed.notify_all();
    });
    std::unique_lock lock(state_->mutex);
    const bool done = state_->changed.wait_for(lock, timeout, [&] { return slot->has_value() || state_->closed; });
    if (slot->has_value()) return **slot;
    lock.unlock();
    host_->cancel(call);
    return unreachable(done ? "the channel was closed" : "no answer in time");
  }

  void close() override {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
  }

  std::string coordinator() const override { return "this process"; }

 private:
  // Shared with completions, which may outlive the channel.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool closed = false;
  };

  static Answer unreachable(const std::string& why) { return {.outcome = Outcome::unreachable, .text = why}; }

  const std::shared_ptr<CoordinatorHost> host_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

void log_to_stderr(const std::string& line) { print_stderr("lockstep: {}\n", line); }

std::unique_ptr<ControlChannel> in_process_channel(std::shared_ptr<CoordinatorHost> host) {
  return std::make_unique<InProcessChannel>(std::move(host));
}

CoordinatorHost::CoordinatorHost(CoordinatorOptions options)
    : coordinator_(std::move(options), Clock::now()), thread_(start_thread([this] { run(); })) {}

CoordinatorHost::~CoordinatorHost() {
  close("the coordinator has exited");
  thread_.join();
}

void CoordinatorHost::submit(uint64_t call, const Request& request, const std::string& address, Completion completion) {
  std::unique_lock lock(mutex_);
  completions_.emplace(call, std::move(completion));
  const auto before = coordinator_.next_deadline();
  coordinator_.handle(call, request, address, Clock::now());
  if (coordinator_.next_deadline() < before || coordinator_.failure()) changed_.notify_all();
  deliver(std::move(lock));
}

bool CoordinatorHost::cancel(uint64_t call) {
  std::unique_lock lock(mutex_);
  const bool prevented = completions_.erase(call) > 0;
  if (prevented) coordinator_.cancel(call, Clock::now());
  changed_.notify_all();
  deliver(std::move(lock));
  return prevented;
}

void CoordinatorHost::wait_failure_delivered() {
  std::unique_lock lock(mutex_);
  auto until = Clock::now() +
               std::clamp<std::chrono::nanoseconds>(coordinator_.heartbeat_interval(), kMinDelivery, kMaxDelivery);
  // Later callers share the deadline of the first.
  if (coordinator_.failure()) until = *(delivery_deadline_ ? delivery_deadline_ : delivery_deadline_ = until);
  changed_.wait_until(lock, until, [&] { return coordinator_.over() || coordinator_.failure_delivered(); });
}

void CoordinatorHost::close(const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (std::exchange(closed_, true)) return;
  coordinator_.close(reason);
  changed_.notify_all();
  deliver(std::move(lock));
}

void CoordinatorHost::deliver(std::unique_lock<std::mutex> lock) {
  std::vector<std::pair<Completion, Answer>> ready;
  for (Answer& answer : coordinator_.take_answers()) {
    const auto found = completions_.find(answer.call);
    if (found == completions_.end()) continue;
    ready.emplace_back(std::move(found->second), std::move(answer));
    completions_.erase(found);
  }
  lock.unlock();
  for (const auto& [completion, answer] : ready) completion(answer);
}

void CoordinatorHost::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    const auto next = coordinator_.next_deadline();
    if (next > Clock::now()) {
      if (next == Coordinator::Time::max())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, next);
      continue;
    }
    coordinator_.tick(Clock::now());
    deliver(std::move(lock));
    lock = std::unique_lock(mutex_);
  }
}

}  // namespace lockstep
