// SharedGroup: one rank in a group on one host: its operations under way, and the work on them. Operations go through
// the slots of the board round by round, all of them in the order of their numbers; each rank does its own part of the
// work, on its own memory. It is done by the thread that waits; a helper thread does it for operations that others may
// be held up by while this rank computes, and sleeps otherwise.
//
// Threads: as Comm says; fail() and abort() may be called by any.
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
#include <thread>
#include <utility>
#include <vector>

#include "comm/operation.h"
#include "comm/shared/board.h"
#include "comm/shared/transfer.h"

namespace lockstep::detail {

class SharedGroup {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::nanoseconds;

  struct Pending {
    Transfer transfer;
    uint64_t number = 0;
    int64_t put = 0, taken = 0;  // rounds
    bool agreed = false;
    bool done = false;
  };

  // `members`: of a group that was split off, the rank in the first group of every rank here; `origin` is the name of
  // that first group. `above`: the boards of the groups it was split from, whose failure is its own.
  struct Ancestry {
    std::vector<int> members = {};
    std::string origin = {};
    std::vector<std::shared_ptr<Board>> above = {};
  };
  SharedGroup(std::shared_ptr<Board> board, std::string name, Ancestry ancestry);

  // The rank is gone: it will start nothing more. REQUIRES: nothing is under way.
  ~SharedGroup();

  const std::shared_ptr<Board>& board() const { return board_; }
  const Ancestry& ancestry() const { return ancestry_; }
  std::string label(int rank) const;

  // What Comm promises of its operations. `waits`: the caller will wait at once.
  Pending* start(const Operation& operation, bool waits);
  void finish(Pending* pending, Duration timeout);
  void abandon(Pending* pending, Duration timeout) noexcept;

  void fail(Cause cause, const std::string& message) { board_->fail(cause, message); }
  // The process of that rank has ended: the group fails.
  void mourn(int rank);
  // Throws what this group or one above it failed with, if one has.
  void check_failure(std::string_view operation, uint64_t number) const;

 private:
  // Who holds the work up; -1: nobody.
  struct Blockers {
    int put = -1, taken = -1;
    bool operator==(const Blockers&) const = default;
  };
  class Patience;
  class Turn;

  Pending& pending(uint64_t number) { return *ring_[number & (ring_.size() - 1)]; }
  Pending* take_free();
  bool advance();
  bool advance_soon();
  bool try_put();
  bool try_take();
  void agree_on(Pending& pending);
  void write_head(const Pending& pending, std::byte* slot) const;
  // What another rank asked for. Nothing when it makes no sense, whatever that rank wrote.
  std::optional<Operation> read_head(const std::byte* slot, int64_t& rounds) const;
  void drive(Pending& pending, Duration timeout);
  void rest(Patience& patience);
  void check_peers(const Pending& pending);
  void look_after_peers(const Pending& pending);
  [[noreturn]] void stop(const Pending& pending);
  void stop_at(const Pending& pending);
  [[noreturn]] void time_out(const Pending& pending, Duration timeout);
  bool all_started(uint64_t number) const;
  bool ended(uint64_t number, int* who = nullptr) const;
  bool failed() const;
  void release(Pending* pending) { free_.push_back(pending); }
  bool needs_help() const;
  void call_helper();
  void help();

  const std::shared_ptr<Board> board_;
  const std::string name_;
  const Ancestry ancestry_;
  const int rank_, size_;
  bool spins_ = false;

  std::mutex mutex_;
  std::atomic<int> wanted_{0};  // by threads other than the helper

  uint64_t next_ = 1;                           // the next operation; 0 is the one that made the group
  uint64_t putting_ = 1, taking_ = 1;           // the first not put, not taken
  uint64_t end_ = ~uint64_t{0};                 // operations from here on are dead
  uint64_t put_rounds_ = 0, taken_rounds_ = 0;  // of all operations
  uint64_t free_rounds_ = 0;                    // rounds that are known to be taken by all
  int arrived_ = 0;                             // ranks before this one have put the round to be taken
  Blockers blockers_;
  bool disagreed_ = false;
  std::vector<Pending*> ring_;  // operation n under way is at n modulo the size
  std::vector<Pending*> free_;
  std::vector<std::unique_ptr<Pending>> all_;
  std::vector<const std::byte*> slots_;
  std::vector<const void*> inputs_;

  std::condition_variable called_;
  bool stop_ = false;
  std::thread helper_;
};

}  // namespace lockstep::detail
