#include "comm/shared/transfer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/reduce.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;

// Up to here everybody combines everything: one meeting instead of two, for as many times the reading.
constexpr int64_t kWholeBytes = 16 << 10;
// Rounds between an input and its result, so that a rank that is late for a moment holds nobody up.
constexpr int64_t kLag = 4;
constexpr int64_t kAlignment = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t greatest(std::span<const int64_t> counts) { return *std::ranges::max_element(counts); }
int64_t elements_before(std::span<const int64_t> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}
int64_t of(std::span<const int64_t> counts, int rank) { return counts[static_cast<size_t>(rank)]; }

}  // namespace

void Transfer::begin(const Operation& operation, int rank, int size, int64_t room) {
  operation_ = operation;
  rank_ = rank;
  size_ = size;
  element_ = size_of(operation.dtype);
  inputs_ = lag_ = 0;
  rounds_ = 1;
  if (size == 1) return;  // everything is taken at once, from the own memory
  const int64_t others = size - 1;
  const auto aligned = [&](int64_t bytes) { return std::max(bytes / kAlignment * kAlignment, kAlignment) / element_; };
  switch (operation.kind) {
    case Kind::all_reduce: {
      if (operation.count * element_ <= std::min(room, std::max(kWholeBytes / others, kAlignment))) return;
      inputs_ = ceil_div(operation.count, aligned(room / size) * size);
      // As even as possible, so that all have the same work.
      const int64_t even = ceil_div(operation.count, inputs_ * size), grain = kAlignment / element_;
      step_ = ceil_div(even, grain) * grain;
      lag_ = std::min(kLag, inputs_);
      rounds_ = inputs_ + lag_;
      return;
    }
    case Kind::reduce_scatter:
      step_ = aligned(room / others);
      rounds_ = ceil_div(greatest(operation.counts), step_);
      break;
    case Kind::all_to_all:
      step_ = aligned(room / others);
      rounds_ = ceil_div(std::max(greatest(operation.counts), greatest(operation.receive_counts)), step_);
      break;
    case Kind::all_gather:
      step_ = aligned(room);
      rounds_ = ceil_div(greatest(operation.counts), step_);
      break;
    case Kind::permute:
    case Kind::broadcast:
      step_ = aligned(room);
      rounds_ = ceil_div(operation.count, step_);
      break;
    case Kind::barrier:
    case Kind::split:
      return;
  }
  rounds_ = std::max<int64_t>(rounds_, 1);
}

Transfer::Part Transfer::part(int64_t round, int64_t total) const {
  const int64_t begin = std::min(round * step_, total);
  return {begin, std::min(step_, total - begin)};
}

Transfer::Part Transfer::share(int64_t round, int rank) const { return part(round * size_ + rank, operation_.count); }

int64_t Transfer::source_of(int rank) const {
  const auto route = std::ranges::find(operation_.routes, rank, &Route::destination);
  return route == operation_.routes.end() ? -1 : route->source;
}

int64_t Transfer::destination_of(int rank) const {
  const auto route = std::ranges::find(operation_.routes, rank, &Route::source);
  return route == operation_.routes.end() ? -1 : route->destination;
}

void Transfer::copy(std::byte* to, const std::byte* from, int64_t count) const {
  if (count > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(count * element_));
}

void Transfer::put(int64_t round, std::byte* slot) const {
  const auto& [kind, dtype, reduction, root, in, out, count, counts, receive_counts, routes] = operation_;
  if (size_ == 1) return;
  switch (kind) {
    case Kind::all_reduce:
      if (inputs_ == 0) return copy(slot, at(in, 0), count);
      if (round >= lag_) {
        const Part result = share(round - lag_, rank_);
        copy(slot, at(out, result.begin), result.count);
      }
      if (round < inputs_)
        for (int to = 0; to < size_; ++to) {
          const Part given = share(round, to);
          if (to != rank_) copy(slot + step_ * element_ + place(rank_, to), at(in, given.begin), given.count);
        }
      return;
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      for (int to = 0; to < size_; ++to) {
        const Part given = part(round, of(counts, to));
        if (to != rank_) copy(slot + place(rank_, to), at(in, elements_before(counts, to) + given.begin), given.count);
      }
      return;
    case Kind::all_gather: {
      const Part given = part(round, of(counts, rank_));
      return copy(slot, at(in, given.begin), given.count);
    }
    case Kind::permute: {
      const int64_t to = destination_of(rank_);
      const Part given = part(round, count);
      if (to >= 0 && to != rank_) copy(slot, at(in, given.begin), given.count);
      return;
    }
    case Kind::broadcast: {
      const Part given = part(round, count);
      if (root == rank_) copy(slot, at(in, given.begin), given.count);
      return;
    }
    case Kind::barrier:
    case Kind::split:
      return;
  }
}

void Transfer::take_whole(std::span<const std::byte* const> slots, std::span<const void*> inputs) const {
  for (size_t from = 0; from < inputs.size(); ++from) inputs[from] = slots[from];
  // Its own are the same values, and nearer.
  inputs[static_cast<size_t>(rank_)] = operation_.in;
  reduce(operation_.dtype, operation_.reduction, inputs, 0, {&operation_.out, 1}, 0, operation_.count);
}

void Transfer::take_shares(int64_t round, std::span<const std::byte* const> slots,
                           std::span<const void*> inputs) const {
  const auto& [kind, dtype, reduction, root, in, out, count, counts, receive_counts, routes] = operation_;
  if (const Part mine = share(round, rank_); round < inputs_ && mine.count > 0) {
    for (int from = 0; from < size_; ++from)
      inputs[static_cast<size_t>(from)] =
          from == rank_ ? at(in, mine.begin) : slots[static_cast<size_t>(from)] + step_ * element_ + place(from, rank_);
    void* to = at(out, mine.begin);
    reduce(dtype, reduction, inputs, 0, {&to, 1}, 0, mine.count);
  }
  if (round < lag_) return;
  for (int from = 0; from < size_; ++from) {
    const Part result = share(round - lag_, from);
    if (from != rank_) copy(at(out, result.begin), slots[static_cast<size_t>(from)], result.count);
  }
}

void Transfer::take(int64_t round, std::span<const std::byte* const> slots, std::span<const void*> inputs) const {
  const auto& [kind, dtype, reduction, root, in, out, count, counts, receive_counts, routes] = operation_;
  const auto slot = [&](int64_t from) { return slots[static_cast<size_t>(from)]; };
  switch (kind) {
    case Kind::all_reduce:
      if (size_ == 1) return copy(at(out, 0), at(in, 0), count);
      return inputs_ == 0 ? take_whole(slots, inputs) : take_shares(round, slots, inputs);
    case Kind::reduce_scatter: {
      const int64_t mine = elements_before(counts, rank_);
      if (size_ == 1) return copy(at(out, 0), at(in, 0), of(counts, 0));
      const Part taken = part(round, of(counts, rank_));
      if (taken.count <= 0) return;
      for (int from = 0; from < size_; ++from)
        inputs[static_cast<size_t>(from)] =
            from == rank_ ? at(in, mine + taken.begin) : slot(from) + place(from, rank_);
      void* to = at(out, taken.begin);
      return reduce(dtype, reduction, inputs, 0, {&to, 1}, 0, taken.count);
    }
    case Kind::all_to_all: {
      if (round == 0)
        copy(at(out, elements_before(receive_counts, rank_)), at(in, elements_before(counts, rank_)),
             of(counts, rank_));
      for (int from = 0; from < size_; ++from) {
        const Part taken = part(round, of(receive_counts, from));
        if (from != rank_)
          copy(at(out, elements_before(receive_counts, from) + taken.begin), slot(from) + place(from, rank_),
               taken.count);
      }
      return;
    }
    case Kind::all_gather:
      if (round == 0) copy(at(out, elements_before(counts, rank_)), at(in, 0), of(counts, rank_));
      for (int from = 0; from < size_; ++from) {
        const Part taken = part(round, of(counts, from));
        if (from != rank_) copy(at(out, elements_before(counts, from) + taken.begin), slot(from), taken.count);
      }
      return;
    case Kind::permute: {
      const int64_t from = source_of(rank_);
      if (from < 0 || from == rank_) {
        if (round > 0 || count == 0) return;
        if (from == rank_) return copy(at(out, 0), at(in, 0), count);
        std::memset(out, 0, static_cast<size_t>(count * element_));
        return;
      }
      const Part taken = part(round, count);
      return copy(at(out, taken.begin), slot(from), taken.count);
    }
    case Kind::broadcast: {
      const Part taken = part(round, count);
      if (root != rank_) copy(at(out, taken.begin), slot(root), taken.count);
      return;
    }
    case Kind::barrier:
    case Kind::split:
      return;
  }
}

}  // namespace lockstep::detail
