#include "cluster/control.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/os/host_name.h"
#include "base/start_thread.h"
#include "cluster/naming.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr nanoseconds kLongestCall = std::chrono::hours(24 * 365);
constexpr nanoseconds kReconnectPause = std::chrono::milliseconds(50);
// How long connections may be refused before the coordinator counts as lost. A Kubernetes Service without an endpoint
// also refuses them for a moment.
constexpr nanoseconds kRefusedGrace = std::chrono::seconds(1);
constexpr nanoseconds kLeaveTimeout = std::chrono::seconds(1);
constexpr nanoseconds kFailureArrival = std::chrono::seconds(2);
constexpr nanoseconds kAnswerArrival = std::chrono::seconds(1);
constexpr size_t kMaxTextBytes = size_t{4} << 20;

uint64_t random_incarnation() {
  uint64_t value = 0;
  if (::getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value)))
    throw IoError(fmt::format("getrandom: {}", std::strerror(errno)));
  return value;
}

// REQUIRES: answer.outcome == Outcome::failed.
Failure failure_in(const Answer& answer) { return answer.failure.value_or(Failure{.message = answer.text}); }

ControlOptions completed(ControlOptions options) {
  if (options.host.empty()) options.host = own_host_name();
  return options;
}

}  // namespace

Control::Control(std::unique_ptr<ControlChannel> channel, ControlOptions options)
    : options_(completed(std::move(options))), incarnation_(random_incarnation()), channel_(std::move(channel)) {
  // The coordinator's timeout answer lists the missing processes, so the channel's own timeout must come later.
  const nanoseconds timeout = std::min(options_.initialization_timeout, kLongestCall);
  Answer answer = channel_->call(
      request(request::Register{
          .process_count = options_.process_count, .host = options_.host, .pid = ::getpid(), .timeout = timeout}),
      timeout + options_.heartbeat_timeout);
  switch (answer.outcome) {
    case Outcome::ok:
      break;
    case Outcome::timeout:
      throw IoError(answer.text);
    case Outcome::unreachable:
      throw IoError(
          fmt::format("register: process {} cannot reach process 0 (the coordinator at {}): {}; check that it "
                      "runs, and the network to it",
                      options_.process_id, channel_->coordinator(), answer.text));
    case Outcome::failed:
      throw CommAborted(fmt::format("register: the job has failed: {}", answer.text));
    default:
      throw Error(answer.text);
  }
  peers_ = std::move(answer.peers);
  thread_ = start_thread([this] { run(); });
}

Control::~Control() {
  bool leave;
  {
    const std::lock_guard lock(mutex_);
    leave = !over_ && !failure_;
  }
  if (leave) channel_->call(request(request::Leave{}), kLeaveTimeout);
  stop();
}

void Control::stop() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  channel_->close();
  if (thread_.joinable()) thread_.join();
}

Request Control::request(decltype(Request::what) what) const {
  return {.process = options_.process_id, .incarnation = incarnation_, .what = std::move(what)};
}

// Waits for the failure callback first, because the process may end after the exception. The callback itself may call.
void Control::throw_failure(std::unique_lock<std::mutex>& lock, const std::string& operation) {
  if (std::this_thread::get_id() != thread_.get_id())
    changed_.wait_for(lock, kFailureArrival, [this] { return callback_done_ || !has_callback_ || closing_; });
  throw CommAborted(fmt::format("{}: the job has failed: {}", operation, describe(*failure_)));
}

Answer Control::call_coordinator(decltype(Request::what) what, const std::string& operation, Timeout timeout) {
  {
    std::unique_lock lock(mutex_);
    if (failure_) throw_failure(lock, operation);
    ++pending_calls_;
  }
  Answer answer;
  {
    struct Done {
      Control& self;
      ~Done() {
        const std::lock_guard lock(self.mutex_);
        --self.pending_calls_;
        self.changed_.notify_all();
      }
    } done{*this};
    answer = channel_->call(request(std::move(what)),
                            std::clamp(timeout, nanoseconds(0), kLongestCall) + options_.heartbeat_timeout);
  }
  switch (answer.outcome) {
    case Outcome::ok:
    case Outcome::absent:
    case Outcome::text_requested:
      return answer;
    case Outcome::timeout:
      throw CommTimeout(answer.text);
    case Outcome::failed: {
      // Remember the failure: the coordinator may exit before a heartbeat receives it.
      std::unique_lock lock(mutex_);
      if (!failure_) failure_ = failure_in(answer);
      changed_.notify_all();
      throw_failure(lock, operation);
    }
    case Outcome::unreachable:
      break;
    case Outcome::over:
    case Outcome::refused:
    case Outcome::taken:
      throw Error(answer.text);
  }
  // A coordinator that exits reports the reason, but the answer to the heartbeat may still be in transit.
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kFailureArrival, [this] { return failure_ || closing_; });
  if (failure_) throw_failure(lock, operation);
  throw CommError(
      fmt::format("{}: no answer from the coordinator, {}, at {}: {}; it has exited, or the network to it is down",
                  operation, peers_.empty() ? process_label(0, "", 0) : process_label(0, peers_[0].host, peers_[0].pid),
                  channel_->coordinator(), answer.text));
}

void Control::set(const std::string& key, const std::string& value) {
  call_coordinator(request::Set{key, value, false}, "set", {});
}

void Control::overwrite(const std::string& key, const std::string& value) {
  call_coordinator(request::Set{key, value, true}, "set", {});
}

std::string Control::get(const std::string& key, Timeout timeout) {
  return call_coordinator(request::Get{key, true, timeout}, "get", timeout).text;
}

std::optional<std::string> Control::try_get(const std::string& key) {
  Answer answer = call_coordinator(request::Get{key, false, {}}, "get", {});
  if (answer.outcome == Outcome::absent) return std::nullopt;
  return std::move(answer.text);
}

int64_t Control::increment(const std::string& key, int64_t by) {
  return call_coordinator(request::Increment{key, by}, "increment", {}).number;
}

std::vector<std::pair<std::string, std::string>> Control::list(const std::string& directory) {
  return call_coordinator(request::List{directory}, "list", {}).entries;
}

int64_t Control::remove(const std::string& key) { return call_coordinator(request::Remove{key}, "remove", {}).number; }

void Control::barrier(const std::string& name, Timeout timeout, const std::vector<int>& participants) {
  call_coordinator(request::Barrier{name, timeout, participants}, fmt::format("barrier \"{}\"", name), timeout);
}

void Control::agree(const std::string& name, uint64_t hash, const std::function<std::string()>& text, Timeout timeout,
                    const std::string& line_word) {
  const std::string operation = fmt::format("agree \"{}\"", name);
  // Processes that are not asked for their text wait for those that are: allow twice the time.
  const Answer answer =
      call_coordinator(request::Agree{name, hash, timeout}, operation, std::min(timeout, kLongestCall) * 2);
  if (answer.outcome != Outcome::text_requested) return;
  call_coordinator(request::Explain{name, text().substr(0, kMaxTextBytes), line_word}, operation, timeout);
}

void Control::progress(int64_t step, std::string_view operation, bool waiting) noexcept {
  std::array<uint64_t, kTextWords> words{};
  std::memcpy(words.data(), operation.data(), std::min(operation.size(), sizeof(words)));
  for (size_t i = 0; i < kTextWords; ++i) operation_[i].store(words[i], std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  waiting_.store(waiting, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_release);
}

Progress Control::current_progress() const {
  Progress out;
  out.count = count_.load(std::memory_order_acquire);
  out.step = step_.load(std::memory_order_relaxed);
  out.waiting = waiting_.load(std::memory_order_relaxed);
  std::array<uint64_t, kTextWords> words{};
  for (size_t i = 0; i < kTextWords; ++i) words[i] = operation_[i].load(std::memory_order_relaxed);
  std::array<char, sizeof(words)> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  out.operation.assign(text.begin(), std::find(text.begin(), text.end(), '\0'));
  return out;
}

void Control::on_failure(std::function<void(const Failure&)> callback) {
  const std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
  has_callback_ = true;
  changed_.notify_all();
}

std::optional<Failure> Control::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Control::report_failure(Failure failure, bool consequence) noexcept try {
  const Progress now = current_progress();
  if (failure.process < 0) failure.process = options_.process_id;
  if (failure.process == options_.process_id) {
    if (failure.host.empty()) failure.host = options_.host;
    if (failure.pid == 0) failure.pid = ::getpid();
  }
  if (failure.step < 0) failure.step = now.step;
  if (failure.operation.empty()) failure.operation = now.operation;
  channel_->call(request(request::Fail{std::move(failure), consequence}), options_.heartbeat_timeout);
} catch (const std::exception&) {
  // The coordinator will detect that this process is lost.
}

void Control::shutdown(Timeout timeout) {
  call_coordinator(request::Shutdown{timeout}, "shutdown", timeout);
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  stop();
}

// Waits. Returns whether this object is being destroyed.
bool Control::pause(Timeout timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return closing_; });
}

Control::JobEnd Control::coordinator_lost(const std::string& why) const {
  return {.failure = {.process = 0,
                      .host = peers_.empty() ? "" : peers_[0].host,
                      .pid = peers_.empty() ? 0 : peers_[0].pid,
                      .operation = fmt::format("coordinator at {}", channel_->coordinator()),
                      .message = why}};
}

std::optional<Control::JobEnd> Control::send_heartbeats_until_end() {
  Clock::time_point answered = Clock::now();
  constexpr Clock::time_point kNever = Clock::time_point::max();
  Clock::time_point refused_since = kNever;  // since when connections are refused
  while (true) {
    const nanoseconds left = answered + options_.heartbeat_timeout - Clock::now();
    const Answer answer = left > nanoseconds(0) ? channel_->call(request(request::Heartbeat{current_progress()}), left)
                                                : Answer{.outcome = Outcome::unreachable, .text = "no answer in time"};
    refused_since = answer.connection_refused ? std::min(refused_since, Clock::now()) : kNever;
    switch (answer.outcome) {
      case Outcome::over:
        return std::nullopt;
      case Outcome::failed:
        return JobEnd{failure_in(answer), true};
      case Outcome::unreachable: {
        if (pause({})) return std::nullopt;
        if (const auto known = failure()) return JobEnd{*known, true};
        if (Clock::now() - kRefusedGrace >= refused_since)
          return coordinator_lost(fmt::format("lost: it has refused connections for {}; it has exited, see its log",
                                              describe(kRefusedGrace)));
        if (Clock::now() - answered < options_.heartbeat_timeout) {
          if (pause(kReconnectPause)) return std::nullopt;
          break;
        }
        return coordinator_lost(
            fmt::format("lost: no answer for {} ({}); it has crashed, was suspended, or the network "
                        "to it is down",
                        describe(options_.heartbeat_timeout), answer.text));
      }
      case Outcome::refused:
        return coordinator_lost(
            fmt::format("it no longer knows this process ({}); it was probably restarted", answer.text));
      default:
        answered = Clock::now();
    }
  }
}

void Control::run() {
  const std::optional<JobEnd> found = send_heartbeats_until_end();
  if (!found) return;
  {
    std::unique_lock lock(mutex_);
    if (!failure_) failure_ = found->failure;
    changed_.notify_all();
    // Let pending calls receive their own answer, such as why they were refused, before the failure cancels them.
    if (found->from_coordinator)
      changed_.wait_for(lock, kAnswerArrival, [&] { return pending_calls_ == 0 || closing_; });
  }
  // Cancels pending calls.
  channel_->close();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return callback_ || closing_; });
  if (!callback_) return;
  const auto callback = std::exchange(callback_, nullptr);
  const Failure failure = *failure_;
  lock.unlock();
  callback(failure);
  lock.lock();
  callback_done_ = true;
  changed_.notify_all();
}

}  // namespace lockstep
