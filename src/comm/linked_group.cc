#include "comm/linked_group.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Whoever closes its links on purpose has left the reason before, or, where it asks who has come, soon after.
constexpr auto kSoon = milliseconds(250);
constexpr auto kReasonTime = std::chrono::seconds(5);
constexpr auto kNow = milliseconds(1);
// How long those who wait have to say that they do; they look up some ten times a second.
constexpr auto kLeastAnswerTime = milliseconds(400), kMostAnswerTime = milliseconds(2000);

constexpr std::string_view kMismatch = "mismatch\n", kAborted = "aborted\n";

}  // namespace

LinkedGroup::LinkedGroup(Identity identity, KeyStore& store, std::unique_ptr<Links> links)
    : identity_(std::move(identity)), store_(store), links_(std::move(links)) {}

std::optional<std::string> LinkedGroup::note(const std::string& key, nanoseconds time) const noexcept {
  try {
    return store_.get(identity_.prefix + "/" + key, std::max<nanoseconds>(time, kNow));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool LinkedGroup::leave(const std::string& key, const std::string& text) const noexcept {
  try {
    store_.set(identity_.prefix + "/" + key, text);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void LinkedGroup::fail(Cause cause, const std::string& reason) noexcept {
  {
    std::unique_lock lock(mutex_);
    if (state_ != State::well) return changed_.wait(lock, [&] { return state_ == State::failed; });
    state_ = State::failing;
  }
  std::string first = std::string(cause == Cause::mismatch ? kMismatch : kAborted) + reason;
  if (!leave("abort", first)) first = note("abort", kSoon).value_or(first);
  std::vector<std::weak_ptr<LinkedGroup>> children;
  {
    const std::lock_guard lock(mutex_);
    cause_ = first.starts_with(kMismatch) ? Cause::mismatch : Cause::aborted;
    reason_ = first.substr(std::min(first.size(), first.find('\n') + 1));
    state_ = State::failed;
    children = children_;
    changed_.notify_all();
  }
  links_->close();
  for (const std::weak_ptr<LinkedGroup>& child : children)
    if (const std::shared_ptr<LinkedGroup> group = child.lock()) group->fail(cause_, reason_);
}

void LinkedGroup::throw_failure(std::string_view operation, int64_t number) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::failed; });
  if (cause_ == Cause::mismatch) throw Error(reason_);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", operation, number,
                                identity_.name, label(identity_.rank), identity_.size, reason_));
}

void LinkedGroup::learn(const LinkBroken& broken, int64_t started) noexcept {
  {
    std::unique_lock lock(mutex_);
    if (asking_ || state_ != State::well) return changed_.wait(lock, [&] { return state_ == State::failed; });
  }
  leave(fmt::format("came/{}", identity_.rank), std::to_string(started));
  if (!note("abort", kSoon) && note("asking", kNow)) note("abort", kReasonTime);
  const std::string peer = broken.peer < 0 ? "the others" : "rank " + label(broken.peer);
  fail(Cause::aborted, fmt::format("rank {} lost its connection to {}: {}", label(identity_.rank), peer, broken.what));
}

std::exception_ptr LinkedGroup::expire(std::string_view operation, int64_t number, int64_t started,
                                       nanoseconds waited) noexcept {
  try {
    {
      std::unique_lock lock(mutex_);
      if (asking_ || state_ != State::well) {
        changed_.wait(lock, [&] { return state_ == State::failed; });
        lock.unlock();
        throw_failure(operation, number);
      }
      asking_ = true;
    }
    leave("asking", std::to_string(identity_.rank));
    leave(fmt::format("came/{}", identity_.rank), std::to_string(started));
    links_->close();
    const auto end = Clock::now() + std::clamp<nanoseconds>(waited / 2, kLeastAnswerTime, kMostAnswerTime);
    std::vector<int> missing;
    for (int rank = 0; rank < identity_.size; ++rank) {
      if (rank == identity_.rank) continue;
      const std::string came = note(fmt::format("came/{}", rank), end - Clock::now()).value_or("");
      int64_t last = -1;
      std::from_chars(came.data(), came.data() + came.size(), last);
      if (last < number) missing.push_back(rank);
    }
    const std::string message = timeout_message(operation, number, waited, missing);
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

void LinkedGroup::add(const std::shared_ptr<LinkedGroup>& child) {
  bool too_late = false;
  {
    std::unique_lock lock(mutex_);
    std::erase_if(children_, [](const std::weak_ptr<LinkedGroup>& one) { return one.expired(); });
    children_.push_back(child);
    too_late = state_ != State::well;
    if (too_late) changed_.wait(lock, [&] { return state_ == State::failed; });
  }
  if (too_late) child->fail(cause_, reason_);
}

std::string LinkedGroup::label(int rank) const {
  if (identity_.members.empty()) return std::to_string(rank);
  return fmt::format("{} ({} of \"{}\")", rank, identity_.members[static_cast<size_t>(rank)], identity_.origin);
}

std::string LinkedGroup::label(const std::vector<int>& ranks) const {
  std::vector<std::string> labels;
  for (const int rank : ranks) labels.push_back(label(rank));
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(labels, ", "));
}

std::string LinkedGroup::timeout_message(std::string_view operation, int64_t number, nanoseconds waited,
                                         const std::vector<int>& missing) const {
  const std::string what =
      fmt::format("{} {} on \"{}\": rank {} of {} waited {:.3g} s for ", operation, number, identity_.name,
                  label(identity_.rank), identity_.size, std::chrono::duration<double>(waited).count());
  if (missing.empty())
    return what + "values of the others, who have all come; see whether the network between them is well";
  return what + label(missing) +
         "; see there what they do or how they ended, or raise the timeout if they are only slow";
}

}  // namespace lockstep::detail
