// HierarchicalComm: see hierarchy.h. What it is made of: its levels and how it fails (hierarchy.cc), and its operations
// (hierarchy_operations.cc). Thread safety: as Comm.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/failure_monitor.h"
#include "comm/hierarchy.h"
#include "comm/level_failure.h"
#include "comm/queued.h"

namespace lockstep::detail {

class HierarchicalComm final : public QueuedComm {
 public:
  using Connect = decltype(HierarchyOptions::connect);
  using Hosts = std::vector<std::vector<int>>;
  using Kind = Operation::Kind;
  using nanoseconds = std::chrono::nanoseconds;

  // `above` are the ranks of the first group, where this is not that, and `origin` is its name.
  struct Place {
    Hosts hosts;
    int host;
    std::vector<int> above;
    std::string origin;
  };

  HierarchicalComm(Place place, std::unique_ptr<Comm> inner, Connect connect, const std::string& key,
                   const std::string& name, nanoseconds timeout);
  ~HierarchicalComm() override;

  // Connects the levels. `list` is what the ranks must agree on to be one group.
  void open(uint64_t list);

  void abort(const std::string& reason) override;

  std::optional<LevelCause> cause();

 private:
  static constexpr nanoseconds kLongest = std::chrono::hours(24 * 365);

  struct Child {
    std::recursive_mutex mutex;  // a group and those split from it tell each other
    HierarchicalComm* comm;      // null once it is gone
  };
  class Busy {
   public:
    explicit Busy(HierarchicalComm& comm) : comm_(comm) { comm.set_busy(true); }
    ~Busy() { comm_.set_busy(false); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    HierarchicalComm& comm_;
  };

  static int size_of_all(const Place& place);
  bool leads() const { return inner_->rank() == 0; }
  int origin_of(int rank) const { return place_.above.empty() ? rank : place_.above[static_cast<size_t>(rank)]; }
  std::string label(int rank) const;
  // For a delay that may be another host's: the rank that is to blame is named by those of its own host first.
  nanoseconds grace() const { return std::max<nanoseconds>(std::chrono::seconds(1), timeout() / 4); }

  double seconds() const { return std::chrono::duration<double>(timeout()).count(); }

  void fail(LevelCause cause);
  static void tell(Child& other, const LevelCause& cause);
  std::vector<std::weak_ptr<Child>> children();
  // What all ranks have started still completes: the operation under way here, which others may have done with, is
  // given a moment to.
  void hear_alarm(const std::string& what, const std::vector<int>& ranks);
  void set_busy(bool busy);
  // What a level says in the end, where ranks[i] is its rank i.
  void hear(const std::string& what, const std::vector<int>& ranks);

  void check_failure(Kind kind, int64_t number);
  [[noreturn]] void throw_cause(const LevelCause& cause, Kind kind, int64_t number) const;
  // `error` was thrown by a level.
  [[noreturn]] void rethrow(const std::exception& error, Kind kind, int64_t number);

  void run(const Operation& operation, int64_t number, Time deadline) override;
  // run() gives up by itself.
  std::exception_ptr on_timeout(const Operation&, int64_t) noexcept override { return nullptr; }

  Comm& within(nanoseconds patience);
  // REQUIRES: outer_.
  Comm& between(nanoseconds patience);
  nanoseconds long_patience() const { return std::min(timeout(), kLongest) + 2 * grace(); }

  // Gathers `bytes` of every rank, host by host, into gathered_. The first wait is for the ranks of this host.
  void gather_all(const void* data, int64_t bytes, nanoseconds patience);
  // Exchanges blocks of counts_ bytes between the hosts, in gathered_, and gives them to all ranks.
  void spread_blocks(int64_t before, int64_t all, nanoseconds patience);
  // The place of a rank in a list that goes host by host.
  int64_t position(int rank) const;

  // Whether all ranks show the same hash.
  bool roll_call(uint64_t hash, nanoseconds patience);

  [[noreturn]] void disagree(int64_t number, int a, const std::string& of_a, int b, const std::string& of_b);

  // The hashes differ: says what two ranks asked for.
  [[noreturn]] void explain(const Operation& operation, int64_t number);

  void move(const Operation& operation, int64_t number);
  void all_reduce_pieces(const Operation& operation);
  void scatter(const Operation& operation);
  void gather(const Operation& operation);
  void broadcast_levels(const Operation& operation);
  void exchange(const Operation& operation, int64_t number);
  // Of all_to_all and permute: what rank `from` gives `to`, in elements; table_ holds the counts of all ranks.
  int64_t sent(const Operation& operation, int from, int to) const;

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;
  void tell_other_hosts(const std::vector<int>& leaders, const std::string& key, const LevelCause& cause) const;

  const Place place_;
  const Connect connect_;
  const std::string key_;
  const std::unique_ptr<Comm> inner_;
  std::unique_ptr<Comm> outer_;  // of the first rank of each host
  const std::vector<int>& local_;
  std::vector<int> leaders_, host_of_;
  bool at_outer_ = false;

  std::mutex mutex_;
  std::condition_variable idle_;
  int busy_ = 0;
  std::optional<LevelCause> cause_;
  std::shared_ptr<Child> self_;  // known to the group above
  std::shared_ptr<Child> above_;
  int depth_ = 0;
  std::vector<std::weak_ptr<Child>> children_;
  std::optional<Alarm> inner_alarm_, outer_alarm_;
  std::map<std::pair<std::vector<int>, std::string>, int> splits_;

  std::vector<std::byte> gathered_, blocks_;
  std::vector<int64_t> counts_, local_counts_, receive_counts_, table_;
  std::vector<int> sorted_local_;
};

}  // namespace lockstep::detail
