// Group: what the ranks of an in-process group share: the meetings of the operations under way, who waits, and how it
// failed. Any thread may call any method, each for its own rank.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/meeting.h"
#include "comm/operation.h"

namespace lockstep::detail {

class Group {
 public:
  using Duration = std::chrono::nanoseconds;

  // `members`: of a group that was split off, the rank in the first group of every rank here; `origin` is the name of
  // that first group. Empty: this is the first.
  Group(int size, std::string name, std::vector<int> members = {}, std::string origin = {});

  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // What Comm promises of its operations. The numbers of every rank count up without gaps.
  Meeting* start(int rank, int64_t number, const Operation& operation);
  void finish(int rank, Meeting* meeting, Duration timeout);
  void abandon(int rank, Meeting* meeting);
  void abort(int rank, const std::string& reason);

  // The rank is gone: it will never start operation `number`.
  void leave(int rank, int64_t number);

  // The group of these ranks of this group, made by the first of them who asks and shared by the others.
  std::shared_ptr<Group> join(int rank, const std::vector<int>& ranks, const std::string& name);

 private:
  enum class Cause { aborted, mismatch };
  struct Pending {
    std::vector<int> ranks;
    std::vector<int> absent;
    std::shared_ptr<Group> group;
  };

  Meeting& meeting(int64_t number);
  void check_agreement(const Meeting& meeting, int rank, const Operation& operation);
  void await(int rank, Meeting& meeting, Duration timeout);
  void complete(Meeting& meeting);
  void release(Meeting* meeting);
  void wake();
  template <class Ready>
  bool spin(Ready ready) const;
  std::unique_lock<std::mutex> lock();

  // Under the lock.
  void fail(Cause cause, const std::string& message);
  [[noreturn]] void throw_failure(int rank, std::string_view operation, int64_t number) const;
  std::string label(int rank) const;
  std::string missing(const Meeting& meeting) const;

  const int size_;
  const std::string name_;
  const std::vector<int> members_;
  const std::string origin_;
  const bool spins_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> failed_{false};
  Cause cause_ = Cause::aborted;
  std::string failure_;

  // Operation n under way is at n modulo the size, a power of two; null where there is none.
  std::vector<Meeting*> ring_;
  std::vector<Meeting*> free_;
  std::vector<std::unique_ptr<Meeting>> meetings_;

  bool somebody_left_ = false;
  std::vector<int64_t> left_at_;  // the first operation a rank will never start
  std::vector<Pending> pending_;
  std::vector<std::weak_ptr<Group>> children_;
};

}  // namespace lockstep::detail
