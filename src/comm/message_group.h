// MessageGroup: one rank's failure handling for a MessageComm: whether and why the group has failed, the keys by which
// ranks tell each other, and the groups split from this one, which fail with it. message_comm.h lists the keys. Safe
// from any thread.
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

class MessageGroup {
 public:
  enum class Cause { aborted, mismatch };

  struct Identity {
    int rank = 0, size = 1;
    std::string name;
    // For a group that was split off: for each rank its rank in the first ("origin") group, and that group's name.
    std::vector<int> origin_ranks;
    std::string origin_name;
    std::string prefix;  // of the keys of this group
  };

  MessageGroup(Identity identity, KeyStore& store, std::unique_ptr<Links> links);

  const Identity& identity() const { return identity_; }
  Links& links() { return *links_; }
  KeyStore& store() const { return store_; }

  // Fails the group: sets the `abort` key, closes the links, and fails the groups split from this one. Of all ranks
  // only the first call sets the cause. Every call returns when the cause is known.
  void fail(Cause cause, const std::string& reason) noexcept;
  bool failed() const { return state_.load() != State::ok; }

  // Throws if this rank knows that the group has failed.
  void check(std::string_view operation, int64_t number) const {
    if (failed()) throw_failure(operation, number);
  }
  // Throws the failure of the group. REQUIRES: failed().
  [[noreturn]] void throw_failure(std::string_view operation, int64_t number) const;

  // Fails the group after a link broke: with the cause that another rank has set, or with the broken link when no rank
  // has. `started` is the number of the last operation that this rank has started; `waits`: it is in one of them.
  void fail_broken_link(const LinkBroken& broken, int64_t started, bool waits) noexcept;

  // Fails the group after this rank has waited too long for operation `number`. Collects from all ranks which operation
  // they have started, to name those that are missing. Returns the exception for the wait.
  std::exception_ptr fail_timeout(std::string_view operation, int64_t number, int64_t started,
                                  std::chrono::nanoseconds waited) noexcept;

  void add_child(const std::shared_ptr<MessageGroup>& child);

  // The name of a rank in messages: `3`, or `1 (3 of "world")` in a group that was split off.
  std::string label(int rank) const;
  std::string label(const std::vector<int>& ranks) const;
  // `missing`: the ranks that have not started the operation; `blocked`: some of the others have not either, because they
  // wait for the data of an earlier one.
  std::string timeout_message(std::string_view operation, int64_t number, std::chrono::nanoseconds waited,
                              const std::vector<int>& missing, bool blocked = false) const;

  // Reads a key of this group, waiting for at most `time`; nullopt when it is not set by then.
  std::optional<std::string> read_key(const std::string& key, std::chrono::nanoseconds time) const noexcept;
  // Sets a key of this group. False when the key is already set, or the store fails.
  bool set_key(const std::string& key, const std::string& text) const noexcept;

 private:
  enum class State { ok, failing, failed };

  void publish_started(int64_t started, bool waits) const noexcept;

  const Identity identity_;
  KeyStore& store_;
  const std::unique_ptr<Links> links_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<State> state_{State::ok};  // changed with the lock held
  bool timing_out_ = false;              // fail_timeout() is determining the cause
  Cause cause_ = Cause::aborted;
  std::string reason_;
  std::vector<std::weak_ptr<MessageGroup>> children_;
};

}  // namespace lockstep::detail
