#include "comm/message_group.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// A rank that closes its links sets the cause before; only after a timeout it sets it later, once it knows the missing
// ranks.
constexpr auto kCauseTime = milliseconds(250);
constexpr auto kTimeoutCauseTime = std::chrono::seconds(5);
constexpr auto kMinReadTime = milliseconds(1);
// How long a rank that timed out waits for `started/R` of the others. Waiting ranks check for it about ten times a
// second.
constexpr auto kMinAnswerTime = milliseconds(400), kMaxAnswerTime = milliseconds(2000);

// A rank that is silent may also be one that the network does not reach.
constexpr std::string_view kMissingRemedy =
    "check whether they hang or have exited, and the network between the hosts; raise the timeout if they are only "
    "slow";
constexpr std::string_view kWaits = " waits";  // in `started/R`
constexpr std::string_view kMismatch = "mismatch\n", kAborted = "aborted\n";

}  // namespace

MessageGroup::MessageGroup(Identity identity, KeyStore& store, std::unique_ptr<Links> links)
    : identity_(std::move(identity)), store_(store), links_(std::move(links)) {}

std::optional<std::string> MessageGroup::read_key(const std::string& key, nanoseconds time) const noexcept {
  try {
    return store_.get(identity_.prefix + "/" + key, std::max<nanoseconds>(time, kMinReadTime));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool MessageGroup::set_key(const std::string& key, const std::string& text) const noexcept {
  try {
    store_.set(identity_.prefix + "/" + key, text);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void MessageGroup::fail(Cause cause, const std::string& reason) noexcept {
  {
    std::unique_lock lock(mutex_);
    if (state_ != State::ok) return changed_.wait(lock, [&] { return state_ == State::failed; });
    state_ = State::failing;
  }
  std::string first = std::string(cause == Cause::mismatch ? kMismatch : kAborted) + reason;
  if (!set_key("abort", first)) first = read_key("abort", kCauseTime).value_or(first);
  std::vector<std::weak_ptr<MessageGroup>> children;
  {
    const std::lock_guard lock(mutex_);
    cause_ = first.starts_with(kMismatch) ? Cause::mismatch : Cause::aborted;
    reason_ = first.substr(std::min(first.size(), first.find('\n') + 1));
    state_ = State::failed;
    children = children_;
    changed_.notify_all();
  }
  links_->close();
  for (const std::weak_ptr<MessageGroup>& child : children)
    if (const std::shared_ptr<MessageGroup> group = child.lock()) group->fail(cause_, reason_);
}

void MessageGroup::throw_failure(std::string_view operation, int64_t number) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::failed; });
  if (cause_ == Cause::mismatch) throw Error(reason_);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", operation, number,
                                identity_.name, label(identity_.rank), identity_.size, reason_));
}

void MessageGroup::publish_started(int64_t started, bool waits) const noexcept {
  set_key(fmt::format("started/{}", identity_.rank), fmt::format("{}{}", started, waits ? kWaits : ""));
}

void MessageGroup::fail_broken_link(const LinkBroken& broken, int64_t started, bool waits) noexcept {
  {
    std::unique_lock lock(mutex_);
    if (timing_out_ || state_ != State::ok) return changed_.wait(lock, [&] { return state_ == State::failed; });
  }
  publish_started(started, waits);
  if (!read_key("abort", kCauseTime) && read_key("timed_out", kMinReadTime)) read_key("abort", kTimeoutCauseTime);
  const std::string peer = broken.peer < 0 ? "the other ranks" : "rank " + label(broken.peer);
  const bool has_remedy = broken.what.find("network") != std::string::npos;
  fail(Cause::aborted, fmt::format("rank {} lost its connection to {}: {}{}", label(identity_.rank), peer, broken.what,
                                   has_remedy ? "" : "; it has exited, or the network between the hosts is down"));
}

std::exception_ptr MessageGroup::fail_timeout(std::string_view operation, int64_t number, int64_t started,
                                              nanoseconds waited) noexcept {
  try {
    {
      std::unique_lock lock(mutex_);
      if (timing_out_ || state_ != State::ok) {
        changed_.wait(lock, [&] { return state_ == State::failed; });
        lock.unlock();
        throw_failure(operation, number);
      }
      timing_out_ = true;
    }
    set_key("timed_out", std::to_string(identity_.rank));
    publish_started(started, true);
    links_->close();
    const auto end = Clock::now() + std::clamp<nanoseconds>(waited / 2, kMinAnswerTime, kMaxAnswerTime);
    std::vector<int> missing;
    bool blocked = false;
    for (int rank = 0; rank < identity_.size; ++rank) {
      if (rank == identity_.rank) continue;
      const std::string started_text = read_key(fmt::format("started/{}", rank), end - Clock::now()).value_or("");
      int64_t last = -1;
      std::from_chars(started_text.data(), started_text.data() + started_text.size(), last);
      if (last >= number) continue;
      // A rank that waits in an earlier operation, which this rank has completed, lacks data that was sent.
      if (started_text.ends_with(kWaits))
        blocked = true;
      else
        missing.push_back(rank);
    }
    const std::string message = timeout_message(operation, number, waited, missing, blocked);
    fail(Cause::aborted, message);
    {
      const std::lock_guard lock(mutex_);
      if (reason_ == message) throw CommTimeout(message);
    }
    throw_failure(operation, number);
  } catch (...) {
    return std::current_exception();
  }
}

void MessageGroup::add_child(const std::shared_ptr<MessageGroup>& child) {
  bool too_late = false;
  {
    std::unique_lock lock(mutex_);
    std::erase_if(children_, [](const std::weak_ptr<MessageGroup>& one) { return one.expired(); });
    children_.push_back(child);
    too_late = state_ != State::ok;
    if (too_late) changed_.wait(lock, [&] { return state_ == State::failed; });
  }
  if (too_late) child->fail(cause_, reason_);
}

std::string MessageGroup::label(int rank) const {
  if (identity_.origin_ranks.empty()) return std::to_string(rank);
  return fmt::format("{} ({} of \"{}\")", rank, identity_.origin_ranks[static_cast<size_t>(rank)],
                     identity_.origin_name);
}

std::string MessageGroup::label(const std::vector<int>& ranks) const {
  std::vector<std::string> labels;
  for (const int rank : ranks) labels.push_back(label(rank));
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(labels, ", "));
}

std::string MessageGroup::timeout_message(std::string_view operation, int64_t number, nanoseconds waited,
                                          const std::vector<int>& missing, bool blocked) const {
  const std::string what =
      fmt::format("{} {} on \"{}\": rank {} of {} waited {:.3g} s for ", operation, number, identity_.name,
                  label(identity_.rank), identity_.size, std::chrono::duration<double>(waited).count());
  if (missing.empty())
    return what + fmt::format("data of the other ranks, which {}; check the network between the hosts",
                              blocked ? "wait for data themselves" : "have all started the operation");
  return what + label(missing) + fmt::format("; {}", kMissingRemedy);
}

}  // namespace lockstep::detail
