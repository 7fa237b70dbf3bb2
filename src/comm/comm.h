// Comm: one rank's view of a group of ranks that compute together, and the operations between them. A rank is a lane;
// ranks may be threads of one process, processes or machines: that is the backend's affair, and tests/comm holds every
// backend to what is said here.
//
//   comm.all_reduce(gradient, gradient, count, f32, Reduction::sum);        // in place, done when it returns
//   Work work = comm.start_all_reduce(a, b, count, f32, Reduction::sum);    // or in two steps,
//   ...                                                                     // with other work meanwhile
//   work.wait();
//
// Order. All ranks of a group make the same calls in the same order: the n-th operation started on one rank meets the
// n-th on every other. Ranks that ask for different things (another operation, element type, size, root) all get an
// Error that says what two of them asked. Operations of different groups do not meet, and a rank may be in many groups.
//
// Memory. From start to the end of wait() the memory read must not be written, the memory written must not be touched,
// and lists (counts, routes) must stay as they are. `in` and `out` are apart, or the same where a function says so.
//
// Waiting. Any number of operations may be started before the first is waited for. They may be waited for in any
// order, and ranks need not agree on that order. No wait is endless: when others have not started the operation
// timeout() after the wait began, CommTimeout says which.
//
// Results are the same bits on every rank, and in every run of a group of this size, whoever came first. 16-bit floats
// are added in f32 and rounded at most once per pair of ranks. The greatest and least of values with a NaN are NaN.
//
// Failure. After a timeout, a mismatch or abort() the group has failed: every operation that waits and every later one
// throws, on all ranks, with the first cause, and so do those of groups split from it. Arguments that make no sense on
// their own throw Error and leave the group as it was.
//
// Threads. A Comm and its Works are used by one thread at a time; abort() may be called from any.
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

// An operation under way. One that is destroyed before wait() makes its memory safe first: where other ranks have not
// started it yet, that fails the group. Must not outlive its Comm.
class [[nodiscard]] Work {
 public:
  Work() = default;
  Work(Work&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), state_(other.state_), ticket_(other.ticket_) {}
  Work& operator=(Work&& other) noexcept {
    Work taken(std::move(other));
    std::swap(comm_, taken.comm_);
    std::swap(state_, taken.state_);
    std::swap(ticket_, taken.ticket_);
    return *this;
  }
  ~Work();

  // Returns when the result is there. Afterwards, also when it throws, there is nothing left to wait for and waiting
  // again returns at once. Throws CommTimeout, CommAborted, Error (ranks that disagree).
  void wait();

  // Whether there is something to wait for.
  explicit operator bool() const { return comm_ != nullptr; }

 private:
  friend class Comm;
  Work(Comm* comm, void* state, uint64_t ticket) : comm_(comm), state_(state), ticket_(ticket) {}

  Comm* comm_ = nullptr;
  void* state_ = nullptr;  // the backend's
  uint64_t ticket_ = 0;    // the recorder's
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

  // How long a wait may last. Groups split later begin with the same. Throws Error unless positive. Backends' own
  // threads ask for it too.
  std::chrono::nanoseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(std::chrono::nanoseconds timeout);

  // out[i] = in[i] of all ranks, combined. In place: out == in.
  Work start_all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction);

  // `in` holds one piece for every rank, counts[r] elements for rank r, one after another; `out` receives this rank's
  // piece, combined over all ranks. In place: out is this rank's piece of in; the other pieces keep their values.
  Work start_reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                            Reduction reduction);

  // `out` receives the counts[r] elements of every rank r, one after another. In place: in is this rank's place in out.
  Work start_all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype);

  // `in` holds send_counts[r] elements for every rank r, one after another; `out` receives receive_counts[r] elements
  // from every rank r, one after another.
  Work start_all_to_all(const void* in, void* out, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts, DType dtype);

  // `out` of every destination receives `in` of its source; a rank that is no destination receives zeros. No rank is
  // source twice or destination twice. All ranks give the same list.
  Work start_permute(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes);

  // `data` of every rank receives that of the root.
  Work start_broadcast(void* data, int64_t count, DType dtype, int root);

  // Nothing but that all ranks have come.
  Work start_barrier();

  // The same, done when they return.
  void all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction);
  void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, Reduction reduction);
  void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype);
  void all_to_all(const void* in, void* out, std::span<const int64_t> send_counts,
                  std::span<const int64_t> receive_counts, DType dtype);
  void permute(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes);
  void broadcast(void* data, int64_t count, DType dtype, int root);
  void barrier();

  // A group of some ranks of this one: member i of the list is its rank i. Called by the members, and only by them,
  // with the same list and name, and returns when all have called; groups with no member in common may be made at the
  // same time, also under one name (the rows of a grid). Throws Error for a list with repeated or unknown ranks or
  // without this one, and, on all of them, when ranks give overlapping lists that differ under one name; CommTimeout
  // and CommAborted as an operation does.
  std::unique_ptr<Comm> split(const std::vector<int>& ranks, const std::string& name);

  // Makes every operation that waits and every later one of this group, and of those split from it, throw CommAborted
  // with the reason on all ranks. What all ranks have started still completes. Only the first call counts.
  virtual void abort(const std::string& reason) = 0;

  // From now on operations of this group, and of those split from it, are recorded there. REQUIRES: the ranks are all
  // lanes, in their order; the recorder outlives the groups.
  void record_to(FlightLane& lane);
  // Its place there; null: they are not recorded.
  FlightGroup* recorded() const { return recorded_; }

 protected:
  Comm(int rank, int size, std::string name, std::chrono::nanoseconds timeout);

  // What a backend writes. start() gets operations that passed check() and returns what finish() needs; finish() waits,
  // and leaves nothing behind whether or not it throws; abandon() is for a Work that nobody waited for.
  virtual void* start(const Operation& operation) = 0;
  virtual void finish(void* state) = 0;
  virtual void abandon(void* state) noexcept = 0;
  virtual std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) = 0;

  // Both steps in one, where a backend can save something.
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
};

}  // namespace lockstep
