// LinkedGroup: what is known of a group of LinkedComms on one rank beyond its operations: whether and how it failed,
// and the groups split from it, which fail with it. Safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/key_store.h"
#include "comm/links.h"

namespace lockstep::detail {

class LinkedGroup {
 public:
  enum class Cause { aborted, mismatch };

  struct Identity {
    int rank = 0, size = 1;
    std::string name;
    std::vector<int> members;  // of a group that was split off, the rank in the first group of every rank here
    std::string origin;        // the name of that first group
    std::string prefix;        // of its keys
  };

  LinkedGroup(Identity identity, KeyStore& store, std::unique_ptr<Links> links);

  const Identity& identity() const { return identity_; }
  Links& links() { return *links_; }
  KeyStore& store() const { return store_; }

  // The first call counts, of all ranks: it leaves the reason for the others, closes the links and fails the groups
  // split from this one. All calls return when the reason is known.
  void fail(Cause cause, const std::string& reason) noexcept;
  bool failed() const { return state_.load() != State::well; }

  // Throws as Comm says unless the group is well. Looks only at what is known here.
  void check(std::string_view operation, int64_t number) const {
    if (failed()) throw_failure(operation, number);
  }
  // The group has failed: what an operation throws.
  [[noreturn]] void throw_failure(std::string_view operation, int64_t number) const;

  // A link broke, `started` operations having been started here. Fails the group with what the others say or, when they
  // say nothing, with that.
  void learn(const LinkBroken& broken, int64_t started) noexcept;

  // This rank has waited too long for an operation: asks who has come, and fails the group. What that wait is to throw.
  std::exception_ptr expire(std::string_view operation, int64_t number, int64_t started,
                            std::chrono::nanoseconds waited) noexcept;

  void add(const std::shared_ptr<LinkedGroup>& child);

  // "3", or "1 (3 of "world")" in a group that was split off.
  std::string label(int rank) const;
  std::string label(const std::vector<int>& ranks) const;
  std::string timeout_message(std::string_view operation, int64_t number, std::chrono::nanoseconds waited,
                              const std::vector<int>& missing) const;

  // What somebody has left under a key of this group, in time.
  std::optional<std::string> note(const std::string& key, std::chrono::nanoseconds time) const noexcept;
  // Leaves something; false when there is something already, or it cannot be left.
  bool leave(const std::string& key, const std::string& text) const noexcept;

 private:
  enum class State { well, failing, failed };

  const Identity identity_;
  KeyStore& store_;
  const std::unique_ptr<Links> links_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<State> state_{State::well};  // changed with the lock held
  bool asking_ = false;                    // expire() is about to find the reason
  Cause cause_ = Cause::aborted;
  std::string reason_;
  std::vector<std::weak_ptr<LinkedGroup>> children_;
};

}  // namespace lockstep::detail
