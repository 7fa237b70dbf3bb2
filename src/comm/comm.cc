#include "comm/comm.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep {

using Kind = Operation::Kind;

Work::~Work() {
  if (comm_) comm_->abandon(state_);
}

void Work::wait() {
  if (Comm* comm = std::exchange(comm_, nullptr)) comm->finish(state_);
}

Comm::Comm(int rank, int size, std::string name, std::chrono::nanoseconds timeout)
    : rank_(rank), size_(size), name_(std::move(name)), timeout_(timeout) {
  LOCKSTEP_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
}

void Comm::set_timeout(std::chrono::nanoseconds timeout) {
  if (timeout <= timeout.zero())
    throw_error("comm: the timeout of \"{}\" was set to {} s; give a positive one", name_,
                std::chrono::duration<double>(timeout).count());
  timeout_ = timeout;
}

Work Comm::checked_start(const Operation& operation) {
  check(operation, rank_, size_);
  return {this, start(operation)};
}

Work Comm::start_all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) {
  return checked_start(
      {.kind = Kind::all_reduce, .dtype = dtype, .reduction = reduction, .in = in, .out = out, .count = count});
}

Work Comm::start_reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                                Reduction reduction) {
  return checked_start(
      {.kind = Kind::reduce_scatter, .dtype = dtype, .reduction = reduction, .in = in, .out = out, .counts = counts});
}

Work Comm::start_all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype) {
  return checked_start({.kind = Kind::all_gather, .dtype = dtype, .in = in, .out = out, .counts = counts});
}

Work Comm::start_all_to_all(const void* in, void* out, std::span<const int64_t> send_counts,
                            std::span<const int64_t> receive_counts, DType dtype) {
  return checked_start({.kind = Kind::all_to_all,
                        .dtype = dtype,
                        .in = in,
                        .out = out,
                        .counts = send_counts,
                        .receive_counts = receive_counts});
}

Work Comm::start_permute(const void* in, void* out, int64_t count, DType dtype, std::span<const Route> routes) {
  return checked_start({.kind = Kind::permute, .dtype = dtype, .in = in, .out = out, .count = count, .routes = routes});
}

Work Comm::start_broadcast(void* data, int64_t count, DType dtype, int root) {
  return checked_start(
      {.kind = Kind::broadcast, .dtype = dtype, .root = root, .in = data, .out = data, .count = count});
}

Work Comm::start_barrier() { return checked_start({.kind = Kind::barrier}); }

std::unique_ptr<Comm> Comm::split(const std::vector<int>& ranks, const std::string& name) {
  const std::string list = fmt::format("[{}]", fmt::join(ranks, ", "));
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  if (!sorted.empty() && (sorted.front() < 0 || sorted.back() >= size_))
    throw_error("split: {} has a rank that \"{}\" has not; its ranks are 0 to {}", list, name_, size_ - 1);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    throw_error("split: {} has a rank twice; name each once", list);
  if (!std::ranges::binary_search(sorted, rank_))
    throw_error("split: rank {} is not in {}; only the members of a group make it", rank_, list);
  return make_group(ranks, name);
}

}  // namespace lockstep
