#include "comm/comm.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "comm/recorder.h"

namespace lockstep {

namespace {

using Kind = Operation::Kind;

}  // namespace

Work::~Work() {
  if (comm_) comm_->checked_abandon(state_, ticket_);
}

void Work::wait(Pool* pool) {
  Comm* comm = std::exchange(comm_, nullptr);
  if (!comm) return;
  if (!pool) return comm->checked_finish(state_, ticket_);
  const PoolOfComm help(*comm, *pool);
  comm->checked_finish(state_, ticket_);
}

Comm::Comm(int rank, int size, std::string name, std::chrono::nanoseconds timeout)
    : rank_(rank), size_(size), name_(std::move(name)), timeout_(timeout) {
  LOCKSTEP_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
}

void Comm::set_timeout(std::chrono::nanoseconds timeout) {
  if (timeout <= timeout.zero())
    throw_error("comm: the timeout of \"{}\" was set to {} s; it must be positive", name_,
                std::chrono::duration<double>(timeout).count());
  timeout_.store(timeout, std::memory_order_relaxed);
}

void Comm::record_to(FlightLane& lane) {
  std::vector<int> lanes(static_cast<size_t>(size_));
  std::iota(lanes.begin(), lanes.end(), 0);
  recorded_ = &lane.add_group(name_, lanes);
}

namespace {

// Records the end of one operation when the scope ends: as failed, unless done() was called.
class Recording {
 public:
  Recording(FlightGroup& group, uint64_t ticket) : lane_(group.lane()), ticket_(ticket) {}
  ~Recording() {
    if (!in_flight_) lane_.end(ticket_, done_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void done() { done_ = true; }
  // The operation stays in flight: its end is recorded elsewhere.
  void keep_in_flight() { in_flight_ = true; }

 private:
  FlightLane& lane_;
  const uint64_t ticket_;
  bool done_ = false, in_flight_ = false;
};

}  // namespace

Work Comm::checked_start(const Operation& operation) {
  check(operation, rank_, size_);
  if (!recorded_) return {this, start(operation), 0};
  const uint64_t ticket = recorded_->lane().begin(*recorded_, operation, false);
  Recording recording(*recorded_, ticket);
  void* const state = start(operation);
  recording.keep_in_flight();
  return {this, state, ticket};
}

void Comm::checked_finish(void* state, uint64_t ticket) {
  if (!recorded_) return finish(state);
  recorded_->lane().wait(ticket);
  Recording recording(*recorded_, ticket);
  finish(state);
  recording.done();
}

void Comm::checked_abandon(void* state, uint64_t ticket) noexcept {
  abandon(state);
  if (recorded_) recorded_->lane().end(ticket, false);
}

void Comm::checked_perform(const Operation& operation) {
  check(operation, rank_, size_);
  if (!recorded_) return perform(operation);
  Recording recording(*recorded_, recorded_->lane().begin(*recorded_, operation, true));
  perform(operation);
  recording.done();
}

namespace {

Operation all_reduce_of(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) {
  return {.kind = Kind::all_reduce, .dtype = dtype, .reduction = reduction, .in = in, .out = out, .count = count};
}

Operation reduce_scatter_of(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                            Reduction reduction) {
  return {.kind = Kind::reduce_scatter, .dtype = dtype, .reduction = reduction, .in = in, .out = out, .counts = counts};
}

Operation all_gather_of(const void* in, void* out, std::span<const int64_t> counts, DType dtype) {
  return {.kind = Kind::all_gather, .dtype = dtype, .in = in, .out = out, .counts = counts};
}

Operation all_to_all_of(const void* in, void* out, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts, DType dtype) {
  return {.kind = Kind::all_to_all,
          .dtype = dtype,
          .in = in,
          .out = out,
          .counts = send_counts,
          .receive_counts = receive_counts};
}

Operation permute_of(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes) {
  return {.kind = Kind::permute, .dtype = dtype, .in = in, .out = out, .count = count, .routes = routes};
}

Operation broadcast_of(void* data, int64_t count, DType dtype, int root) {
  return {.kind = Kind::broadcast, .dtype = dtype, .root = root, .in = data, .out = data, .count = count};
}

}  // namespace

Work Comm::start_all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) {
  return checked_start(all_reduce_of(in, out, count, dtype, reduction));
}
void Comm::all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) {
  checked_perform(all_reduce_of(in, out, count, dtype, reduction));
}

Work Comm::start_reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                                Reduction reduction) {
  return checked_start(reduce_scatter_of(in, out, counts, dtype, reduction));
}
void Comm::reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                          Reduction reduction) {
  checked_perform(reduce_scatter_of(in, out, counts, dtype, reduction));
}

Work Comm::start_all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype) {
  return checked_start(all_gather_of(in, out, counts, dtype));
}
void Comm::all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype) {
  checked_perform(all_gather_of(in, out, counts, dtype));
}

Work Comm::start_all_to_all(const void* in, void* out, std::span<const int64_t> send_counts,
                            std::span<const int64_t> receive_counts, DType dtype) {
  return checked_start(all_to_all_of(in, out, send_counts, receive_counts, dtype));
}
void Comm::all_to_all(const void* in, void* out, std::span<const int64_t> send_counts,
                      std::span<const int64_t> receive_counts, DType dtype) {
  checked_perform(all_to_all_of(in, out, send_counts, receive_counts, dtype));
}

Work Comm::start_permute(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes) {
  return checked_start(permute_of(in, out, count, dtype, routes));
}
void Comm::permute(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes) {
  checked_perform(permute_of(in, out, count, dtype, routes));
}

Work Comm::start_broadcast(void* data, int64_t count, DType dtype, int root) {
  return checked_start(broadcast_of(data, count, dtype, root));
}
void Comm::broadcast(void* data, int64_t count, DType dtype, int root) {
  checked_perform(broadcast_of(data, count, dtype, root));
}

Work Comm::start_barrier() { return checked_start({.kind = Kind::barrier}); }
void Comm::barrier() { checked_perform({.kind = Kind::barrier}); }

std::unique_ptr<Comm> Comm::split(const std::vector<int>& ranks, const std::string& name) {
  const std::string list = fmt::format("[{}]", fmt::join(ranks, ", "));
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  if (!sorted.empty() && (sorted.front() < 0 || sorted.back() >= size_))
    throw_error("split: {} has a rank outside \"{}\"; its ranks are 0 to {}", list, name_, size_ - 1);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    throw_error("split: {} has a repeated rank; list each rank once", list);
  if (!std::ranges::binary_search(sorted, rank_))
    throw_error("split: rank {} is not in {}; only the members of a group may create it", rank_, list);
  if (!recorded_) return make_group(ranks, name);
  std::vector<int> lanes;
  for (const int r : ranks) lanes.push_back(recorded_->lanes()[static_cast<size_t>(r)]);
  FlightGroup& group = recorded_->lane().add_group(name, lanes, 0);
  Recording recording(group, group.lane().begin(group, {.kind = Kind::split}, true));
  std::unique_ptr<Comm> made = make_group(ranks, name);
  made->recorded_ = &group;
  recording.done();
  return made;
}

}  // namespace lockstep
