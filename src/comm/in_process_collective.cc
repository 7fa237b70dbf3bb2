#include "comm/in_process_collective.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "comm/reduce.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;

constexpr int64_t kTileBytes = 32 << 10;

// Divides the range [begin, end) between contiguous pieces. next(size) is called for each piece in order and returns
// the part of the range that is in this piece, as an offset from the start of the piece.
class PieceRanges {
 public:
  PieceRanges(int64_t begin, int64_t end) : begin_(begin), end_(end) {}
  struct Part {
    int64_t begin;
    int64_t count;  // 0 or less: the range does not overlap this piece
  };
  Part next(int64_t size) {
    const int64_t first = std::max<int64_t>(begin_ - start_, 0), last = std::min(end_ - start_, size);
    start_ += size;
    return {first, last - first};
  }
  bool at_end() const { return start_ >= end_; }

 private:
  int64_t begin_, end_, start_ = 0;
};

void copy(void* to, int64_t to_begin, const void* from, int64_t from_begin, int64_t count, int64_t size) {
  std::byte* destination = static_cast<std::byte*>(to) + to_begin * size;
  const std::byte* source = static_cast<const std::byte*>(from) + from_begin * size;
  if (destination != source) std::memcpy(destination, source, static_cast<size_t>(count * size));
}

}  // namespace

InProcessCollective::InProcessCollective(int size)
    : has_joined_(static_cast<size_t>(size)),
      operations_(static_cast<size_t>(size)),
      in_(static_cast<size_t>(size)),
      out_(static_cast<size_t>(size)) {}

void InProcessCollective::reset(int64_t number) {
  number_ = number;
  joined_ = 0;
  std::ranges::fill(has_joined_, char{0});
  all_joined_.store(false, std::memory_order_relaxed);
  done_.store(false, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
}

bool InProcessCollective::join(int rank, const Operation& operation) {
  const auto at = static_cast<size_t>(rank);
  has_joined_[at] = 1;
  operations_[at] = operation;
  in_[at] = operation.in;
  out_[at] = operation.out;
  if (++joined_ < static_cast<int>(operations_.size())) return false;
  plan_tiles();
  if (tiles_ == 0) done_.store(true);
  all_joined_.store(true);
  return true;
}

void InProcessCollective::plan_tiles() {
  const Operation& first = operations_.front();
  switch (first.kind) {
    case Kind::all_reduce:
    case Kind::broadcast:
      elements_ = first.count;
      break;
    case Kind::permute:
      elements_ = first.count * static_cast<int64_t>(operations_.size());
      break;
    case Kind::reduce_scatter:
    case Kind::all_gather:
      elements_ = total_count(first.counts);
      break;
    case Kind::all_to_all:
      elements_ = 0;
      for (const Operation& operation : operations_) elements_ += total_count(operation.receive_counts);
      break;
    case Kind::barrier:
    case Kind::split:
      elements_ = 0;
      break;
  }
  tile_ = kTileBytes / size_of(first.dtype);
  tiles_ = (elements_ + tile_ - 1) / tile_;
}

bool InProcessCollective::run_tiles() {
  bool last = false;
  for (;;) {
    const int64_t tile = next_.fetch_add(1);
    if (tile >= tiles_) return last;
    run(tile * tile_, std::min(elements_, (tile + 1) * tile_));
    if (finished_.fetch_add(1) + 1 == tiles_) {
      done_.store(true);
      last = true;
    }
  }
}

void InProcessCollective::run(int64_t begin, int64_t end) {
  const Operation& first = operations_.front();
  switch (first.kind) {
    case Kind::all_reduce:
      return reduce(first.dtype, first.reduction, in_, begin, out_, begin, end - begin);
    case Kind::reduce_scatter:
      return reduce_scatter(begin, end);
    case Kind::all_gather:
      return all_gather(begin, end);
    case Kind::all_to_all:
      return all_to_all(begin, end);
    case Kind::permute:
      return permute(begin, end);
    case Kind::broadcast:
      return broadcast(begin, end);
    case Kind::barrier:
    case Kind::split:
      return;
  }
}

// An element is an element of the input.
void InProcessCollective::reduce_scatter(int64_t begin, int64_t end) {
  const Operation& first = operations_.front();
  PieceRanges pieces(begin, end);
  int64_t offset = 0;
  for (size_t rank = 0; rank < operations_.size() && !pieces.at_end(); ++rank) {
    const auto [from, count] = pieces.next(first.counts[rank]);
    if (count > 0)
      reduce(first.dtype, first.reduction, in_, offset + from, std::span(out_).subspan(rank, 1), from, count);
    offset += first.counts[rank];
  }
}

// An element is an element of the result.
void InProcessCollective::all_gather(int64_t begin, int64_t end) {
  const Operation& first = operations_.front();
  const int64_t size = size_of(first.dtype);
  PieceRanges pieces(begin, end);
  int64_t offset = 0;
  for (size_t rank = 0; rank < operations_.size() && !pieces.at_end(); ++rank) {
    const auto [from, count] = pieces.next(first.counts[rank]);
    if (count > 0)
      for (void* out : out_) copy(out, offset + from, in_[rank], from, count, size);
    offset += first.counts[rank];
  }
}

// The elements are those of the results of all ranks, concatenated in rank order.
void InProcessCollective::all_to_all(int64_t begin, int64_t end) {
  const int64_t size = size_of(operations_.front().dtype);
  PieceRanges pieces(begin, end);
  for (size_t to = 0; to < operations_.size(); ++to) {
    int64_t received = 0;
    for (size_t from = 0; from < operations_.size() && !pieces.at_end(); ++from) {
      const auto [part, count] = pieces.next(operations_[to].receive_counts[from]);
      if (count > 0)
        copy(out_[to], received + part, in_[from], total_count(operations_[from].counts.first(to)) + part, count, size);
      received += operations_[to].receive_counts[from];
    }
  }
}

// The elements are those of the results of all ranks, concatenated in rank order.
void InProcessCollective::permute(int64_t begin, int64_t end) {
  const Operation& first = operations_.front();
  const int64_t size = size_of(first.dtype);
  PieceRanges pieces(begin, end);
  for (size_t to = 0; to < operations_.size() && !pieces.at_end(); ++to) {
    const auto [part, count] = pieces.next(first.count);
    if (count <= 0) continue;
    const auto route = std::ranges::find(first.routes, static_cast<int>(to), &Route::destination);
    if (route != first.routes.end())
      copy(out_[to], part, in_[static_cast<size_t>(route->source)], part, count, size);
    else
      std::memset(static_cast<std::byte*>(out_[to]) + part * size, 0, static_cast<size_t>(count * size));
  }
}

// An element is an element of the root's data.
void InProcessCollective::broadcast(int64_t begin, int64_t end) {
  const Operation& first = operations_.front();
  const void* from = in_[static_cast<size_t>(first.root)];
  for (void* out : out_) copy(out, begin, from, begin, end - begin, size_of(first.dtype));
}

}  // namespace lockstep::detail
