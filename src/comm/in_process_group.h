// InProcessGroup: the state that the ranks of an in-process group share: the operations in flight, the sleeping
// threads, and whether the group has failed. Any thread may call any method, each for its own rank.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/in_process_collective.h"
#include "comm/operation.h"

namespace lockstep::detail {

class InProcessGroup {
 public:
  using Duration = std::chrono::nanoseconds;

  // For a group that was split off, `origin_ranks` has for each rank its rank in the first ("origin") group, and
  // `origin_name` is the name of that group. Both are empty for the origin group itself.
  InProcessGroup(int size, std::string name, std::vector<int> origin_ranks = {}, std::string origin_name = {});

  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // The operations of Comm. The numbers of each rank count up without gaps.
  InProcessCollective* start(int rank, int64_t number, const Operation& operation);
  void finish(int rank, InProcessCollective* collective, Duration timeout);
  void abandon(int rank, InProcessCollective* collective);
  void abort(int rank, const std::string& reason);

  // The rank leaves the group: it will never start operation `number`.
  void leave(int rank, int64_t number);

  // Returns the new group of these ranks. The first rank that calls creates it; the others receive the same group.
  std::shared_ptr<InProcessGroup> join_split(int rank, const std::vector<int>& ranks, const std::string& name);

 private:
  enum class Cause { aborted, mismatch };
  struct PendingSplit {
    std::vector<int> ranks;
    std::vector<int> absent;  // ranks that have not called join_split() yet
    std::shared_ptr<InProcessGroup> group;
  };

  InProcessCollective& collective(int64_t number);
  void check_agreement(const InProcessCollective& collective, int rank, const Operation& operation);
  void wait_until_joined(int rank, InProcessCollective& collective, Duration timeout);
  void complete(InProcessCollective& collective);
  void release(InProcessCollective* collective);
  void wake();
  template <class Ready>
  bool spin(Ready ready) const;
  std::unique_lock<std::mutex> lock();

  // With the lock held.
  void fail(Cause cause, const std::string& message);
  [[noreturn]] void throw_failure(int rank, std::string_view operation, int64_t number) const;
  std::string label(int rank) const;
  std::string absent_ranks(const InProcessCollective& collective) const;

  const int size_;
  const std::string name_;
  const std::vector<int> origin_ranks_;
  const std::string origin_name_;
  const bool spins_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> failed_{false};
  Cause cause_ = Cause::aborted;
  std::string failure_;

  // The operations in flight: operation n is at n modulo the size, a power of two; null where there is none.
  std::vector<InProcessCollective*> ring_;
  std::vector<InProcessCollective*> free_;
  std::vector<std::unique_ptr<InProcessCollective>> collectives_;

  bool any_rank_left_ = false;
  std::vector<int64_t> left_at_;  // by rank: the first operation that it will never start
  std::vector<PendingSplit> pending_;
  std::vector<std::weak_ptr<InProcessGroup>> children_;
};

}  // namespace lockstep::detail
