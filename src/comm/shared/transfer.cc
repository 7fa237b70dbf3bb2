#include "comm/shared/transfer.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;

// Up to this size every rank reduces all inputs: one round instead of two, for `size` times the memory traffic.
constexpr int64_t kSmallBytes = 16 << 10;
// Rounds between an input and its result. Above 1, so that a rank that is briefly late does not block the others.
constexpr int64_t kLag = 4;
constexpr int64_t kAlignment = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t largest(std::span<const int64_t> counts) { return *std::ranges::max_element(counts); }
int64_t of(std::span<const int64_t> counts, int rank) { return counts[static_cast<size_t>(rank)]; }

}  // namespace

void Transfer::begin(const Operation& operation, int rank, int size, int64_t room) {
  operation_ = operation;
  rank_ = rank;
  size_ = size;
  element_ = size_of(operation.dtype);
  input_rounds_ = lag_ = 0;
  rounds_ = 1;
  if (size == 1) return;  // read() copies everything from the rank's own memory
  const int64_t others = size - 1;
  const auto aligned = [&](int64_t bytes) { return std::max(bytes / kAlignment * kAlignment, kAlignment) / element_; };
  switch (operation.kind) {
    case Kind::all_reduce: {
      if (operation.count * element_ <= std::min(room, std::max(kSmallBytes / others, kAlignment))) return;
      input_rounds_ = ceil_div(operation.count, aligned(room / size) * size);
      // Shares are as equal as possible, so that all ranks do the same amount of work.
      const int64_t even = ceil_div(operation.count, input_rounds_ * size), grain = kAlignment / element_;
      step_ = ceil_div(even, grain) * grain;
      lag_ = std::min(kLag, input_rounds_);
      rounds_ = input_rounds_ + lag_;
      return;
    }
    case Kind::reduce_scatter:
      step_ = aligned(room / others);
      rounds_ = ceil_div(largest(operation.counts), step_);
      break;
    case Kind::all_to_all:
      step_ = aligned(room / others);
      rounds_ = ceil_div(std::max(largest(operation.counts), largest(operation.receive_counts)), step_);
      break;
    case Kind::all_gather:
      step_ = aligned(room);
      rounds_ = ceil_div(largest(operation.counts), step_);
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

int64_t Transfer::round_bytes() const {
  switch (operation_.kind) {
    case Kind::all_reduce:
      return (input_rounds_ == 0 ? operation_.count : 2 * step_ * size_) * element_;
    case Kind::barrier:
    case Kind::split:
      return 0;
    default:
      return step_ * element_ * size_;
  }
}

Transfer::Part Transfer::elements_of(Piece piece, int64_t count) const {
  const int64_t grain = std::max<int64_t>(kAlignment / element_, 1);
  const int64_t most = ceil_div(ceil_div(count, piece.count), grain) * grain;
  const int64_t begin = std::min(piece.index * most, count);
  return {begin, std::min(most, count - begin)};
}

void Transfer::copy(std::byte* to, const std::byte* from, int64_t count, Piece piece) const {
  const Part part = elements_of(piece, count);
  if (part.count <= 0 || to == from) return;
  std::memcpy(to + part.begin * element_, from + part.begin * element_, static_cast<size_t>(part.count * element_));
}

void Transfer::reduce_piece(std::span<const void* const> inputs, void* to, int64_t count, Piece piece) const {
  const Part part = elements_of(piece, count);
  if (part.count > 0)
    reduce(operation_.dtype, operation_.reduction, inputs, part.begin, {&to, 1}, part.begin, part.count);
}

void Transfer::write(int64_t round, std::byte* slot, Piece piece) const {
  const auto& [kind, dtype, reduction, root, in, out, count, counts, receive_counts, routes] = operation_;
  if (size_ == 1) return;
  switch (kind) {
    case Kind::all_reduce:
      if (input_rounds_ == 0) return copy(slot, at(in, 0), count, piece);
      if (round >= lag_) {
        const Part result = share(round - lag_, rank_);
        copy(slot, at(out, result.begin), result.count, piece);
      }
      if (round < input_rounds_)
        for (int to = 0; to < size_; ++to) {
          const Part sent = share(round, to);
          if (to != rank_)
            copy(slot + step_ * element_ + slot_offset(rank_, to), at(in, sent.begin), sent.count, piece);
        }
      return;
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      for (int to = 0; to < size_; ++to) {
        const Part sent = part(round, of(counts, to));
        if (to != rank_)
          copy(slot + slot_offset(rank_, to), at(in, count_before(counts, to) + sent.begin), sent.count, piece);
      }
      return;
    case Kind::all_gather: {
      const Part sent = part(round, of(counts, rank_));
      return copy(slot, at(in, sent.begin), sent.count, piece);
    }
    case Kind::permute: {
      const int64_t to = destination_of(rank_);
      const Part sent = part(round, count);
      if (to >= 0 && to != rank_) copy(slot, at(in, sent.begin), sent.count, piece);
      return;
    }
    case Kind::broadcast: {
      const Part sent = part(round, count);
      if (root == rank_) copy(slot, at(in, sent.begin), sent.count, piece);
      return;
    }
    case Kind::barrier:
    case Kind::split:
      return;
  }
}

void Transfer::reduce_small(std::span<const std::byte* const> slots, std::span<const void*> inputs, Piece piece) const {
  for (size_t from = 0; from < inputs.size(); ++from) inputs[from] = slots[from];
  // This rank's own input is read from its own memory, which is more likely to be cached.
  inputs[static_cast<size_t>(rank_)] = operation_.in;
  reduce_piece(inputs, operation_.out, operation_.count, piece);
}

void Transfer::read_shares(int64_t round, std::span<const std::byte* const> slots, std::span<const void*> inputs,
                           Piece piece) const {
  const auto& [kind, dtype, reduction, root, in, out, count, counts, receive_counts, routes] = operation_;
  if (const Part mine = share(round, rank_); round < input_rounds_ && mine.count > 0) {
    for (int from = 0; from < size_; ++from)
      inputs[static_cast<size_t>(from)] =
          from == rank_ ? at(in, mine.begin)
                        : slots[static_cast<size_t>(from)] + step_ * element_ + slot_offset(from, rank_);
    reduce_piece(inputs, at(out, mine.begin), mine.count, piece);
  }
  if (round < lag_) return;
  for (int from = 0; from < size_; ++from) {
    const Part result = share(round - lag_, from);
    if (from != rank_) copy(at(out, result.begin), slots[static_cast<size_t>(from)], result.count, piece);
  }
}

void Transfer::read(int64_t round, std::span<const std::byte* const> slots, std::span<const void*> inputs,
                    Piece piece) const {
  const auto& [kind, dtype, reduction, root, in, out, count, counts, receive_counts, routes] = operation_;
  const auto slot = [&](int64_t from) { return slots[static_cast<size_t>(from)]; };
  switch (kind) {
    case Kind::all_reduce:
      if (size_ == 1) return copy(at(out, 0), at(in, 0), count, piece);
      return input_rounds_ == 0 ? reduce_small(slots, inputs, piece) : read_shares(round, slots, inputs, piece);
    case Kind::reduce_scatter: {
      const int64_t mine = count_before(counts, rank_);
      if (size_ == 1) return copy(at(out, 0), at(in, 0), of(counts, 0), piece);
      const Part received = part(round, of(counts, rank_));
      if (received.count <= 0) return;
      for (int from = 0; from < size_; ++from)
        inputs[static_cast<size_t>(from)] =
            from == rank_ ? at(in, mine + received.begin) : slot(from) + slot_offset(from, rank_);
      return reduce_piece(inputs, at(out, received.begin), received.count, piece);
    }
    case Kind::all_to_all: {
      if (round == 0)
        copy(at(out, count_before(receive_counts, rank_)), at(in, count_before(counts, rank_)), of(counts, rank_),
             piece);
      for (int from = 0; from < size_; ++from) {
        const Part received = part(round, of(receive_counts, from));
        if (from != rank_)
          copy(at(out, count_before(receive_counts, from) + received.begin), slot(from) + slot_offset(from, rank_),
               received.count, piece);
      }
      return;
    }
    case Kind::all_gather:
      if (round == 0) copy(at(out, count_before(counts, rank_)), at(in, 0), of(counts, rank_), piece);
      for (int from = 0; from < size_; ++from) {
        const Part received = part(round, of(counts, from));
        if (from != rank_)
          copy(at(out, count_before(counts, from) + received.begin), slot(from), received.count, piece);
      }
      return;
    case Kind::permute: {
      const int64_t from = source_of(rank_);
      if (from < 0 || from == rank_) {
        if (round > 0 || count == 0) return;
        if (from == rank_) return copy(at(out, 0), at(in, 0), count, piece);
        const Part part = elements_of(piece, count);
        if (part.count > 0) std::memset(at(out, part.begin), 0, static_cast<size_t>(part.count * element_));
        return;
      }
      const Part received = part(round, count);
      return copy(at(out, received.begin), slot(from), received.count, piece);
    }
    case Kind::broadcast: {
      const Part received = part(round, count);
      if (root != rank_) copy(at(out, received.begin), slot(root), received.count, piece);
      return;
    }
    case Kind::barrier:
    case Kind::split:
      return;
  }
}

}  // namespace lockstep::detail
