#include "comm/message_collectives.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "comm/message_sizes.h"
#include "comm/reduce.h"

namespace lockstep {

namespace {

using namespace detail;
using Kind = Operation::Kind;

constexpr size_t kMaxPayloads = size_t{32} << 10;  // the payloads of all records together
constexpr size_t kScratchBytes = size_t{2} << 20;  // received values that are still to be reduced
constexpr size_t kMinChunkBytes = size_t{4} << 10;
static_assert(kMaxPayloads / 2 <= std::numeric_limits<uint16_t>::max());  // fits Header::payload_bytes

const Route* route_to(const Operation& operation, int rank) {
  const auto route = std::ranges::find(operation.routes, rank, &Route::destination);
  return route == operation.routes.end() ? nullptr : &*route;
}

}  // namespace

MessageCollectives::MessageCollectives(Links& links, int rank, int size)
    : links_(links),
      rank_(rank),
      size_(size),
      payload_limit_(std::clamp<size_t>(kMaxPayloads / index(size) / 8 * 8, 256, kMaxPayloads / 2)),
      records_(index(size) * record_limit()),
      offsets_(index(size) + 1),
      pieces_(index(size) + 1),
      inputs_(index(size)) {}

void MessageCollectives::run(const Operation& operation, int64_t number, Time deadline) {
  deadline_ = deadline;
  for (std::vector<int>& messages : messages_) messages.clear();
  // This rank's own messages may still be in flight when it has received all records.
  const bool agree = agree_on(operation, number);
  if (const bool small = is_small(operation, payload_limit_); agree && small) {
    complete_small(operation);
    return await(messages_[0]);
  }
  await(messages_[0]);
  if (!agree) throw_disagreement(operation);
  switch (operation.kind) {
    case Kind::all_reduce:
      set_equal_pieces(operation.count);
      return reduce_pieces(operation, output(operation) + bytes_of(operation, pieces_[index(rank_)]),
                           output(operation));
    case Kind::reduce_scatter:
      set_pieces(operation.counts);
      return reduce_pieces(operation, output(operation), nullptr);
    case Kind::all_gather:
      set_pieces(operation.counts);
      return gather_pieces(input(operation), output(operation), bytes_of(operation, 1));
    case Kind::all_to_all:
      return exchange_pairs(operation);
    case Kind::permute:
      return permute(operation);
    default:
      return broadcast(operation);
  }
}

size_t MessageCollectives::small_payload_bytes(const Operation& operation, int rank) const {
  return is_small(operation, payload_limit_) ? payload_bytes_of(operation, rank) : 0;
}

const std::byte* MessageCollectives::payload(int rank) const {
  return records_.data() + offsets_[record_index(rank)] + sizeof(Header);
}

size_t MessageCollectives::record_index(int rank) const { return index((rank_ - rank + size_) % size_); }

int64_t MessageCollectives::piece_count(int rank) const { return pieces_[index(rank) + 1] - pieces_[index(rank)]; }

void MessageCollectives::complete_small(const Operation& operation) {
  std::byte* const out = output(operation);
  const size_t bytes = bytes_of(operation, operation.count);
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter: {
      int64_t begin = 0, count = operation.count;
      if (operation.kind == Kind::reduce_scatter) {
        set_pieces(operation.counts);
        begin = pieces_[index(rank_)];
        count = piece_count(rank_);
      }
      if (count == 0) return;
      for (int rank = 0; rank < size_; ++rank) inputs_[index(rank)] = payload(rank);
      void* const to = out;
      return reduce(operation.dtype, operation.reduction, inputs_, begin, {&to, 1}, 0, count);
    }
    case Kind::all_gather:
      set_pieces(operation.counts);
      for (int rank = 0; rank < size_; ++rank)
        copy(out + bytes_of(operation, pieces_[index(rank)]), payload(rank), bytes_of(operation, piece_count(rank)));
      return;
    case Kind::permute:
      if (const Route* route = route_to(operation, rank_))
        copy(out, payload(route->source), bytes);
      else if (bytes > 0)
        std::memset(out, 0, bytes);
      return;
    case Kind::broadcast:
      if (rank_ != operation.root) copy(out, payload(operation.root), bytes);
      return;
    default:
      return;
  }
}

void MessageCollectives::set_equal_pieces(int64_t count) {
  for (int rank = 0; rank <= size_; ++rank)
    pieces_[index(rank)] = count / size_ * rank + std::min<int64_t>(count % size_, rank);
}

void MessageCollectives::set_pieces(std::span<const int64_t> counts) {
  for (size_t rank = 0; rank < counts.size(); ++rank) pieces_[rank + 1] = pieces_[rank] + counts[rank];
}

void MessageCollectives::send(std::vector<int>& messages, int to, const std::byte* data, size_t bytes) {
  for (size_t done = 0; done < bytes; done += Links::kMaxMessageBytes)
    messages.push_back(
        links_.send(Links::Channel::data, to, data + done, std::min(Links::kMaxMessageBytes, bytes - done)));
}

void MessageCollectives::receive(std::vector<int>& messages, int from, std::byte* data, size_t bytes) {
  for (size_t done = 0; done < bytes; done += Links::kMaxMessageBytes)
    messages.push_back(
        links_.receive(Links::Channel::data, from, data + done, std::min(Links::kMaxMessageBytes, bytes - done)));
}

void MessageCollectives::await(std::vector<int>& messages) {
  for (const int message : messages) links_.wait(message, deadline_);
  messages.clear();
}

// Pieces are processed in chunks, two at a time. While chunk c is reduced, the inputs of chunk c + 1 and the results of
// chunk c - 1 are in flight. Inputs of chunk c use messages_[c % 2], results use messages_[2 + c % 2].
//
//   scratch_:  [ chunk c even: peer 1 | peer 2 | ... ][ chunk c odd: peer 1 | peer 2 | ... ]
void MessageCollectives::reduce_pieces(const Operation& operation, std::byte* own_out, std::byte* gathered) {
  const size_t element = bytes_of(operation, 1);
  const size_t peers = index(std::max(size_ - 1, 1));
  const auto chunk = static_cast<int64_t>(std::max(kScratchBytes / 2 / peers, kMinChunkBytes) / element);
  int64_t longest = 0;
  for (int rank = 0; rank < size_; ++rank) longest = std::max(longest, piece_count(rank));
  const int64_t chunks = (longest + chunk - 1) / chunk;
  const size_t chunk_bytes = static_cast<size_t>(chunk) * element;
  scratch_.resize(std::max(scratch_.size(), 2 * peers * chunk_bytes));

  const auto begin = [&](int rank, int64_t c) { return std::min(c * chunk, piece_count(rank)); };
  const auto bytes = [&](int rank, int64_t c) {
    return static_cast<size_t>(begin(rank, c + 1) - begin(rank, c)) * element;
  };
  const auto offset = [&](int rank, int64_t c) {
    return static_cast<size_t>(pieces_[index(rank)] + begin(rank, c)) * element;
  };
  const auto received_input = [&](int step, int64_t c) {
    return scratch_.data() + (index(static_cast<int>(c % 2)) * peers + index(step - 1)) * chunk_bytes;
  };
  const auto exchange_inputs = [&](int64_t c) {
    if (c >= chunks) return;
    std::vector<int>& messages = messages_[c % 2];
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
      receive(messages, from, received_input(step, c), bytes(rank_, c));
      send(messages, to, input(operation) + offset(to, c), bytes(to, c));
    }
  };
  exchange_inputs(0);
  exchange_inputs(1);
  for (int64_t c = 0; c < chunks; ++c) {
    await(messages_[c % 2]);
    std::byte* const result = own_out + static_cast<size_t>(begin(rank_, c)) * element;
    if (const size_t own_bytes = bytes(rank_, c); own_bytes > 0) {
      inputs_[index(rank_)] = input(operation) + offset(rank_, c);
      for (int step = 1; step < size_; ++step) inputs_[index((rank_ - step + size_) % size_)] = received_input(step, c);
      void* const to = result;
      reduce(operation.dtype, operation.reduction, inputs_, 0, {&to, 1}, 0, static_cast<int64_t>(own_bytes / element));
    }
    if (gathered) {
      std::vector<int>& messages = messages_[2 + c % 2];
      await(messages);
      for (int step = 1; step < size_; ++step) {
        const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
        receive(messages, from, gathered + offset(from, c), bytes(from, c));
        send(messages, to, result, bytes(rank_, c));
      }
    }
    exchange_inputs(c + 2);
  }
  for (std::vector<int>& messages : messages_) await(messages);
}

void MessageCollectives::gather_pieces(const std::byte* own, std::byte* out, size_t element) {
  const auto begin = [&](int rank) { return out + static_cast<size_t>(pieces_[index(rank)]) * element; };
  const auto bytes = [&](int rank) { return static_cast<size_t>(piece_count(rank)) * element; };
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
    receive(messages_[0], from, begin(from), bytes(from));
    send(messages_[0], to, own, bytes(rank_));
  }
  copy(begin(rank_), own, bytes(rank_));
  await(messages_[0]);
}

void MessageCollectives::exchange_pairs(const Operation& operation) {
  const auto before = [&](std::span<const int64_t> counts, int rank) {
    return bytes_of(operation, count_before(counts, rank));
  };
  for (int step = 0; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
    std::byte* const received = output(operation) + before(operation.receive_counts, from);
    const std::byte* const sent = input(operation) + before(operation.counts, to);
    const size_t received_bytes = bytes_of(operation, operation.receive_counts[index(from)]);
    if (step == 0) {
      copy(received, sent, received_bytes);
      continue;
    }
    receive(messages_[0], from, received, received_bytes);
    send(messages_[0], to, sent, bytes_of(operation, operation.counts[index(to)]));
  }
  await(messages_[0]);
}

void MessageCollectives::permute(const Operation& operation) {
  const size_t bytes = bytes_of(operation, operation.count);
  const Route* const route = route_to(operation, rank_);
  if (!route)
    std::memset(operation.out, 0, bytes);
  else if (route->source == rank_)
    copy(output(operation), input(operation), bytes);
  else
    receive(messages_[0], route->source, output(operation), bytes);
  for (const Route& own : operation.routes)
    if (own.source == rank_ && own.destination != rank_) send(messages_[0], own.destination, input(operation), bytes);
  await(messages_[0]);
}

void MessageCollectives::broadcast(const Operation& operation) {
  set_equal_pieces(operation.count);
  const size_t element = bytes_of(operation, 1);
  const auto begin = [&](int rank) { return output(operation) + static_cast<size_t>(pieces_[index(rank)]) * element; };
  const auto bytes = [&](int rank) { return static_cast<size_t>(piece_count(rank)) * element; };
  if (rank_ == operation.root)
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) send(messages_[0], rank, begin(rank), bytes(rank));
    }
  else
    receive(messages_[0], operation.root, begin(rank_), bytes(rank_));
  if (rank_ != operation.root) await(messages_[0]);
  // The root already has all pieces: no rank sends to it.
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
    if (rank_ != operation.root) receive(messages_[1], from, begin(from), bytes(from));
    if (to != operation.root) send(messages_[1], to, begin(rank_), bytes(rank_));
  }
  for (std::vector<int>& messages : messages_) await(messages);
}

}  // namespace lockstep
