// The class behind hierarchy.h. hierarchy.cc creates the levels and handles failures; hierarchy_operations.cc has the
// operations.
//
// Orders that the code uses:
//   rank order   0, 1, 2, ...
//   host order   the ranks of host 0, then those of host 1, ..., each in the order of Topology::hosts
// They differ when ranks are not numbered host by host.
//
// Thread safety: as Comm.
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

  struct Topology {
    Hosts hosts;
    int host;  // the host of this rank
    // For a group that was split off: for each rank its rank in the first ("origin") group, and that group's name.
    std::vector<int> origin_ranks;
    std::string origin_name;
  };

  HierarchicalComm(Topology topology, std::unique_ptr<Comm> inner, Connect connect, const std::string& key,
                   const std::string& name, nanoseconds timeout);
  ~HierarchicalComm() override;

  // Connects the levels. `list_hash` must be the same on all ranks: a hash of the list of members.
  void open(uint64_t list_hash);

  void abort(const std::string& reason) override;

  std::optional<LevelFailure> failure();

 private:
  static constexpr nanoseconds kMaxTimeout = std::chrono::hours(24 * 365);

  // Lets a group and the groups split from it fail each other, from any thread, although each may be destroyed.
  struct Handle {
    std::recursive_mutex mutex;
    HierarchicalComm* comm;  // null once it is destroyed
  };
  // Marks that an operation runs, while it exists.
  class Busy {
   public:
    explicit Busy(HierarchicalComm& comm) : comm_(comm) { comm.set_busy(true); }
    ~Busy() { comm_.set_busy(false); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    HierarchicalComm& comm_;
  };

  // The topology of a group of these ranks, the ranks of its members on this host in inner_, and its leaders.
  struct Subgroup {
    Topology topology;
    std::vector<int> inner_ranks, leaders;
  };

  static int rank_count(const Topology& topology);
  bool is_leader() const { return inner_->rank() == 0; }
  int origin_rank(int rank) const {
    return topology_.origin_ranks.empty() ? rank : topology_.origin_ranks[static_cast<size_t>(rank)];
  }
  std::string label(int rank) const;
  double timeout_seconds() const { return std::chrono::duration<double>(timeout()).count(); }

  // Failures. Level failures arrive as messages in which rank i of the level is ranks[i] here.
  void fail(LevelFailure failure);
  static void fail(Handle& other, const LevelFailure& failure);
  void fail_from_level(const std::string& what, const std::vector<int>& ranks);
  // Called by a FailureMonitor. Waits a moment for the running operation: it may still complete if all ranks have
  // started it.
  void on_level_failure(const std::string& what, const std::vector<int>& ranks);
  void set_busy(bool busy);
  std::vector<std::weak_ptr<Handle>> children();
  void check_failure(Kind kind, int64_t number);
  [[noreturn]] void throw_failure(const LevelFailure& failure, Kind kind, int64_t number) const;
  // Fails the group because of an exception of a level, and throws.
  [[noreturn]] void rethrow(const std::exception& error, Kind kind, int64_t number);
  [[noreturn]] void throw_split_failure(const std::exception& error, const Subgroup& group, const std::string& name,
                                        const std::string& key);
  void notify_other_hosts(const std::vector<int>& leaders, const std::string& key, const LevelFailure& failure) const;

  void run(const Operation& operation, int64_t number, Time deadline) override;
  // Not needed: run() observes the timeouts of the levels.
  std::exception_ptr on_timeout(const Operation&, int64_t) noexcept override { return nullptr; }

  // The levels, with this timeout set. REQUIRES for outer(): outer_.
  Comm& inner(nanoseconds timeout);
  Comm& outer(nanoseconds timeout);
  // Added to the waits of leaders for each other, so that a rank that is missing is first named on its own host; and to
  // the waits of other ranks for their leader, so that leaders time out first and have the time to name the cause.
  static constexpr nanoseconds kLeaderGrace = std::chrono::milliseconds(1500),
                               kFollowerGrace = std::chrono::milliseconds(4500);
  // For waits after the agreement, in which all ranks have started the operation: for ranks of this host.
  nanoseconds inner_timeout() const {
    return std::min(timeout(), kMaxTimeout) + (is_leader() ? nanoseconds(0) : kFollowerGrace);
  }
  // For leaders.
  nanoseconds outer_timeout() const { return std::min(timeout(), kMaxTimeout) + kLeaderGrace; }

  // Gathers `bytes` bytes of every rank into gathered_, in host order. The first wait is for the ranks of this host.
  void gather_all(const void* data, int64_t bytes, nanoseconds timeout);
  // All-gathers blocks of counts_[host] bytes between the hosts. gathered_ has `all` bytes; this host's block begins at
  // `own_block`. Afterwards all ranks have all blocks.
  void gather_blocks(int64_t own_block, int64_t all, nanoseconds timeout);
  // The index of a rank in host order.
  int64_t host_order_index(int rank) const;

  // Agreement: whether all ranks have the same hash.
  bool agree_on(uint64_t hash, nanoseconds timeout);
  [[noreturn]] void fail_mismatch(int64_t number, int a, const std::string& of_a, int b, const std::string& of_b);
  // The hashes differ: gathers the requests and fails with two that differ.
  [[noreturn]] void throw_disagreement(const Operation& operation, int64_t number);

  // Executes an operation that all ranks agree on.
  void execute(const Operation& operation, int64_t number);
  void all_reduce_levels(const Operation& operation);
  void reduce_scatter_levels(const Operation& operation);
  void all_gather_levels(const Operation& operation);
  void broadcast_levels(const Operation& operation);

  // all_to_all and permute; hierarchy_operations.cc explains the parts.
  void exchange(const Operation& operation, int64_t number);
  void gather_counts(const Operation& operation, int64_t number);
  int64_t gather_inputs(const Operation& operation);
  int64_t count_blocks(const Operation& operation);
  void pack_outgoing(const Operation& operation);
  void unpack_incoming(const Operation& operation, const std::byte* incoming) const;
  // The bytes that rank `from` sends to rank `to`. For all_to_all, table_ has the counts of all ranks.
  int64_t bytes_between(const Operation& operation, int from, int to) const;

  Subgroup subgroup(const std::vector<int>& ranks) const;
  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;

  const Topology topology_;
  const Connect connect_;
  const std::string key_;
  const std::unique_ptr<Comm> inner_;
  std::unique_ptr<Comm> outer_;         // of the leaders; null on other ranks, and with a single host
  const std::vector<int>& local_;       // the ranks of this host, in host order
  std::vector<int> sorted_local_;       // the same in rank order
  std::vector<int> leaders_, host_of_;  // by host; by rank
  bool in_outer_ = false;               // the last call was to the outer level

  std::mutex mutex_;
  std::condition_variable idle_;
  int busy_ = 0;
  std::optional<LevelFailure> failure_;
  std::shared_ptr<Handle> handle_;  // of this group
  std::shared_ptr<Handle> parent_;
  int depth_ = 0;  // how many times this group was split off
  std::vector<std::weak_ptr<Handle>> children_;
  std::optional<FailureMonitor> inner_monitor_, outer_monitor_;
  std::map<std::pair<std::vector<int>, std::string>, int> splits_;  // number of splits, by leaders and name

  // Scratch memory of the operations.
  std::vector<std::byte> gathered_, blocks_;
  std::vector<int64_t> counts_, local_counts_, receive_counts_, table_;
};

}  // namespace lockstep::detail
