// Comm: one rank's handle to a group of ranks, and the collectives between them. A rank is a lane. Ranks may be threads
// of one process, processes of one host, or processes of several hosts: each case has a backend. tests/comm checks
// every backend against the rules below.
//
//   comm.all_reduce(gradient, gradient, count, f32, Reduction::sum);        // in place; blocks
//   Work work = comm.start_all_reduce(a, b, count, f32, Reduction::sum);    // or asynchronous,
//   ...                                                                     // overlapped with other work
//   work.wait();
//
// Order. All ranks of a group make the same calls in the same order: the n-th operation that one rank starts belongs
// together with the n-th of every other rank. When ranks request different things (another operation, element type,
// size or root), all of them get an Error with the requests of two of them. Different groups are independent, and a
// rank may be in many groups.
//
// Memory. Until wait() has returned, the caller must not write memory that the operation reads, must not access memory
// that it writes, and must not change its lists (counts, routes). `in` and `out` must not overlap, except where a
// function allows it.
//
// Waiting. Any number of operations may be in flight. They may be waited for in any order, which need not be the same
// on all ranks. Every wait has a deadline: when other ranks have not started the operation timeout() after the wait
// began, it throws CommTimeout, which names these ranks.
//
// Results have the same bits on every rank and in every run of a group of this size, whatever the timing. 16-bit floats
// are added in f32 and rounded at most once per pair of ranks. The maximum and minimum of values with a NaN are NaN.
//
// Failure. A timeout, a mismatch or abort() fails the group: every waiting operation and every later one throws, on all
// ranks, with the first cause. Groups split from it fail too. Arguments that are invalid by themselves throw Error and
// do not fail the group.
//
// Thread safety: a Comm and its Works are used by one thread at a time; abort() may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/operation.h"

namespace lockstep {

class Comm;
class FlightGroup;
class FlightLane;
class Pool;

// An operation in flight. Must not outlive its Comm. When a Work is destroyed before wait(), its destructor returns
// only when the operation no longer accesses its memory. It fails the group if other ranks have not started the
// operation.
class [[nodiscard]] Work {
 public:
  Work() = default;
  Work(Work&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), state_(other.state_), ticket_(other.ticket_) {}
  Work& operator=(Work&& other) noexcept {
    Work moved(std::move(other));
    std::swap(comm_, moved.comm_);
    std::swap(state_, moved.state_);
    std::swap(ticket_, moved.ticket_);
    return *this;
  }
  ~Work();

  // Returns when the result is complete. Afterwards, also when it has thrown, the Work is empty, and another wait()
  // returns immediately. Throws CommTimeout, CommAborted, and Error when ranks disagree. The threads of `pool` help, as
  // described at Comm::set_pool(); null: none.
  void wait(Pool* pool = nullptr);

  // Whether the operation has not been waited for.
  explicit operator bool() const { return comm_ != nullptr; }

 private:
  friend class Comm;
  Work(Comm* comm, void* state, uint64_t ticket) : comm_(comm), state_(state), ticket_(ticket) {}

  Comm* comm_ = nullptr;
  void* state_ = nullptr;  // belongs to the backend
  uint64_t ticket_ = 0;    // of the flight recorder
};

class Comm {
 public:
  static constexpr std::chrono::nanoseconds kDefaultTimeout = std::chrono::seconds(300);

  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // How long a wait may last. Groups that are split off later inherit it. set_timeout() throws Error unless it is
  // positive. timeout() is safe from any thread.
  std::chrono::nanoseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(std::chrono::nanoseconds timeout);

  // out[i] = the reduction of in[i] over all ranks. In place: out == in.
  Work start_all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction);

  // `in` is the concatenation of one piece per rank, with counts[r] elements for rank r. `out` receives this rank's
  // piece, reduced over all ranks. In place: out is this rank's piece of in; the other pieces keep their values.
  Work start_reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                            Reduction reduction);

  // `out` receives the concatenation of `in` of all ranks, with counts[r] elements of rank r. In place: in is this
  // rank's piece of out.
  Work start_all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype);

  // `in` is the concatenation of send_counts[r] elements for each rank r; `out` receives the concatenation of
  // receive_counts[r] elements from each rank r.
  Work start_all_to_all(const void* in, void* out, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts, DType dtype);

  // `out` of every destination receives `in` of its source; a rank that is not a destination receives zeros. A rank may
  // be a source once and a destination once. All ranks give the same list.
  Work start_permute(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes);

  // `data` of every rank receives the values of the root.
  Work start_broadcast(void* data, int64_t count, DType dtype, int root);

  // Completes when all ranks have started it.
  Work start_barrier();

  // The blocking forms of the same operations.
  void all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction);
  void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, Reduction reduction);
  void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype);
  void all_to_all(const void* in, void* out, std::span<const int64_t> send_counts,
                  std::span<const int64_t> receive_counts, DType dtype);
  void permute(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes);
  void broadcast(void* data, int64_t count, DType dtype, int root);
  void barrier();

  // Creates a group of some ranks of this one: member i of the list becomes rank i. Called by all members, and only by
  // them, with the same list and name; returns when all have called. Groups without a common member may be created at
  // the same time, also under one name (such as the rows of a grid). Throws Error for a list with repeated or unknown
  // ranks or without this rank, and, on all ranks, when ranks give different overlapping lists under one name. Throws
  // CommTimeout and CommAborted as an operation does.
  std::unique_ptr<Comm> split(const std::vector<int>& ranks, const std::string& name);

  // The threads of this pool help the thread that waits in copying and reducing, in backends that copy and reduce there;
  // null: none. REQUIRES: the pool outlives the waits, and none of its tasks waits. See PoolOfComm.
  void set_pool(Pool* pool) { pool_ = pool; }

  // Makes every waiting operation and every later one throw CommAborted with the reason, on all ranks, in this group
  // and in those split from it. Operations that all ranks have started still complete, unless a backend states
  // otherwise. Only the first call has an effect.
  virtual void abort(const std::string& reason) = 0;

  // From now on, records the operations of this group, and of those split from it, in `lane`. REQUIRES: the ranks are
  // all lanes of the job, in order; the recorder outlives the groups.
  void record_to(FlightLane& lane);
  // The entry of this group in the recorder; null when it is not recorded.
  FlightGroup* recorded() const { return recorded_; }

 protected:
  Comm(int rank, int size, std::string name, std::chrono::nanoseconds timeout);
  Pool* pool() const { return pool_; }

  // Implemented by a backend. start() gets operations that passed check(), and returns the state that finish() or
  // abandon() receives. finish() waits and frees the state, also when it throws. abandon() is called for a Work that is
  // destroyed before wait().
  virtual void* start(const Operation& operation) = 0;
  virtual void finish(void* state) = 0;
  virtual void abandon(void* state) noexcept = 0;
  virtual std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) = 0;

  // start() and finish() in one, for backends that can do this faster.
  virtual void perform(const Operation& operation) { finish(start(operation)); }

 private:
  friend class Work;
  Work checked_start(const Operation& operation);
  void checked_perform(const Operation& operation);
  void checked_finish(void* state, uint64_t ticket);
  void checked_abandon(void* state, uint64_t ticket) noexcept;

  const int rank_;
  const int size_;
  const std::string name_;
  std::atomic<std::chrono::nanoseconds> timeout_;
  FlightGroup* recorded_ = nullptr;
  Pool* pool_ = nullptr;
};

// Lends a pool to a Comm for a scope.
class PoolOfComm {
 public:
  PoolOfComm(Comm& comm, Pool& pool) : comm_(comm) { comm.set_pool(&pool); }
  ~PoolOfComm() { comm_.set_pool(nullptr); }
  PoolOfComm(const PoolOfComm&) = delete;
  PoolOfComm& operator=(const PoolOfComm&) = delete;

 private:
  Comm& comm_;
};

}  // namespace lockstep
