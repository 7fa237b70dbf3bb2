#include "comm/exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"
#include "comm/reduce.h"

namespace lockstep {

namespace {

using Kind = Operation::Kind;

constexpr size_t kSmall = size_t{32} << 10;   // what all ranks may give together when they meet
constexpr size_t kScratch = size_t{2} << 20;  // for values that wait to be combined
constexpr size_t kLeastChunk = size_t{4} << 10;

size_t index(int rank) { return static_cast<size_t>(rank); }
size_t rounded_up(size_t bytes) { return (bytes + 7) & ~size_t{7}; }
size_t bytes_of(const Operation& operation, int64_t count) {
  return static_cast<size_t>(count) * static_cast<size_t>(size_of(operation.dtype));
}

const std::byte* input(const Operation& operation) { return static_cast<const std::byte*>(operation.in); }
std::byte* output(const Operation& operation) { return static_cast<std::byte*>(operation.out); }

void copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

uint64_t hash_of(std::initializer_list<int64_t> values) {
  Hasher hasher;
  for (const int64_t value : values) hasher.add(std::bit_cast<uint64_t>(value));
  return hasher.value();
}

uint64_t hash_of(const Operation& operation, int64_t number) {
  Hasher hasher;
  hasher.add(hash_of({number, static_cast<int64_t>(operation.kind), static_cast<int64_t>(operation.dtype),
                      static_cast<int64_t>(operation.reduction), operation.root, operation.count}));
  if (operation.kind != Kind::all_to_all)
    for (const int64_t count : operation.counts) hasher.add(std::bit_cast<uint64_t>(count));
  for (const Route& route : operation.routes) hasher.add(hash_of({route.source, route.destination}));
  return hasher.value();
}

// What a rank gives to each other, less what it takes from each, hashed by who and how many: over all ranks this is 0
// when everybody takes what is given.
uint64_t balance_of(const Operation& operation, int rank) {
  if (operation.kind != Kind::all_to_all) return 0;
  uint64_t balance = 0;
  for (size_t other = 0; other < operation.counts.size(); ++other) {
    const auto peer = static_cast<int64_t>(other);
    balance += hash_of({rank, peer, operation.counts[other]}) - hash_of({peer, rank, operation.receive_counts[other]});
  }
  return balance;
}

// An operation as numbers, without its memory.
std::vector<int64_t> numbers_of(const Operation& operation) {
  std::vector<int64_t> numbers{static_cast<int64_t>(operation.kind),
                               static_cast<int64_t>(operation.dtype),
                               static_cast<int64_t>(operation.reduction),
                               operation.root,
                               operation.count,
                               static_cast<int64_t>(operation.counts.size()),
                               static_cast<int64_t>(operation.receive_counts.size()),
                               static_cast<int64_t>(operation.routes.size())};
  numbers.insert(numbers.end(), operation.counts.begin(), operation.counts.end());
  numbers.insert(numbers.end(), operation.receive_counts.begin(), operation.receive_counts.end());
  for (const Route& route : operation.routes) numbers.insert(numbers.end(), {route.source, route.destination});
  return numbers;
}

size_t numbers_needed(const Operation& operation) {
  return 8 + operation.counts.size() + operation.receive_counts.size() + 2 * operation.routes.size();
}

// The operation again; its lists are those of `numbers` and `routes`.
Operation operation_of(const int64_t* numbers, std::vector<Route>& routes) {
  Operation operation{.kind = static_cast<Kind>(numbers[0]),
                      .dtype = static_cast<DType>(numbers[1]),
                      .reduction = static_cast<Reduction>(numbers[2]),
                      .root = static_cast<int>(numbers[3]),
                      .count = numbers[4]};
  const int64_t* list = numbers + 8;
  operation.counts = {list, static_cast<size_t>(numbers[5])};
  list += numbers[5];
  operation.receive_counts = {list, static_cast<size_t>(numbers[6])};
  list += numbers[6];
  for (int64_t i = 0; i < numbers[7]; ++i)
    routes.push_back({static_cast<int>(list[2 * i]), static_cast<int>(list[2 * i + 1])});
  operation.routes = routes;
  return operation;
}

// Whether the operation is done when the ranks have met: all of them find the same. `most`: bytes a rank may give.
bool is_small(const Operation& operation, size_t most) {
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::permute:
    case Kind::broadcast:
      return bytes_of(operation, operation.count) <= most;
    case Kind::reduce_scatter:
      return bytes_of(operation, std::accumulate(operation.counts.begin(), operation.counts.end(), int64_t{0})) <= most;
    case Kind::all_gather:
      return bytes_of(operation, std::ranges::max(operation.counts)) <= most;
    case Kind::all_to_all:
      return false;  // how much a rank gives is known to few
    case Kind::barrier:
    case Kind::split:
      break;
  }
  return true;
}

// What this rank gives to a small operation.
size_t given_bytes(const Operation& operation, int rank) {
  switch (operation.kind) {
    case Kind::all_reduce:
      return bytes_of(operation, operation.count);
    case Kind::permute:
      return std::ranges::any_of(operation.routes, [&](const Route& route) { return route.source == rank; })
                 ? bytes_of(operation, operation.count)
                 : 0;
    case Kind::broadcast:
      return rank == operation.root ? bytes_of(operation, operation.count) : 0;
    case Kind::reduce_scatter:
      return bytes_of(operation, std::accumulate(operation.counts.begin(), operation.counts.end(), int64_t{0}));
    case Kind::all_gather:
      return bytes_of(operation, operation.counts[index(rank)]);
    default:
      return 0;
  }
}

const Route* route_to(const Operation& operation, int rank) {
  const auto route = std::ranges::find(operation.routes, rank, &Route::destination);
  return route == operation.routes.end() ? nullptr : &*route;
}

}  // namespace

// Before the payload of a record. `rest`: how many bytes of the record follow in a second message, in the first round.
// `numbers`: how many describe the operation when ranks disagree.
struct Exchange::Header {
  uint64_t hash;
  uint64_t balance;
  uint16_t payload_bytes, rest;
  uint32_t numbers;
};
static_assert(kSmall / 2 <= std::numeric_limits<uint16_t>::max());

Exchange::Exchange(Links& links, int rank, int size)
    : links_(links),
      rank_(rank),
      size_(size),
      payload_limit_(std::clamp<size_t>(kSmall / index(size), 256, kSmall / 2)),
      records_(index(size) * (sizeof(Header) + payload_limit_)),
      offsets_(index(size) + 1),
      pieces_(index(size) + 1),
      inputs_(index(size)) {}

void Exchange::run(const Operation& operation, int64_t number, Time deadline) {
  deadline_ = deadline;
  for (std::vector<int>& messages : messages_) messages.clear();
  meet(operation, number);
  // What this rank gave may still be leaving when it has what it needs.
  const bool agree = agreed();
  if (const bool small = is_small(operation, payload_limit_); agree && small) {
    finish_small(operation);
    return await(messages_[0]);
  }
  await(messages_[0]);
  if (!agree) disagree(operation);
  switch (operation.kind) {
    case Kind::all_reduce:
      cut(operation.count);
      return reduce_pieces(operation, output(operation) + bytes_of(operation, pieces_[index(rank_)]),
                           output(operation));
    case Kind::reduce_scatter:
      cut(operation.counts);
      return reduce_pieces(operation, output(operation), nullptr);
    case Kind::all_gather:
      cut(operation.counts);
      return gather_pieces(input(operation), output(operation), bytes_of(operation, 1));
    case Kind::all_to_all:
      return exchange_pairs(operation);
    case Kind::permute:
      return permute(operation);
    default:
      return broadcast(operation);
  }
}

Exchange::Header Exchange::header(int rank) const {
  Header header;
  std::memcpy(&header, records_.data() + offsets_[place(rank)], sizeof header);
  return header;
}

const std::byte* Exchange::payload(int rank) const { return records_.data() + offsets_[place(rank)] + sizeof(Header); }

size_t Exchange::place(int rank) const { return index((rank_ - rank + size_) % size_); }

int64_t Exchange::piece_count(int rank) const { return pieces_[index(rank) + 1] - pieces_[index(rank)]; }

// In round k a rank has the records of the 2^k ranks up to itself; it sends them 2^k ranks on, and appends those of the
// 2^k ranks before them. In the last round only those that are missing travel. Returns when all records have come;
// messages_[0] are those that leave.
void Exchange::meet(const Operation& operation, int64_t number) {
  const size_t given = is_small(operation, payload_limit_) ? given_bytes(operation, rank_) : 0;
  offsets_[1] = sizeof(Header) + rounded_up(given);
  const size_t first = links_.first_part(offsets_[1]);
  const Header own{hash_of(operation, number), balance_of(operation, rank_), static_cast<uint16_t>(given),
                   static_cast<uint16_t>(offsets_[1] - first), static_cast<uint32_t>(numbers_needed(operation))};
  std::memcpy(records_.data(), &own, sizeof own);
  if (given > 0) std::memcpy(records_.data() + sizeof own, input(operation), given);
  std::vector<int>& sent = messages_[0];
  for (int distance = 1; distance < size_; distance *= 2) {
    const size_t have = index(distance), more = index(std::min(distance, size_ - distance));
    const int from = (rank_ - distance + size_) % size_, to = (rank_ + distance) % size_;
    const int coming = links_.receive(from, records_.data() + offsets_[have], more * (sizeof own + payload_limit_));
    sent.push_back(links_.send(to, records_.data(), distance == 1 ? first : offsets_[more]));
    if (distance == 1) send(sent, to, records_.data() + first, own.rest);
    links_.wait(coming, deadline_);
    for (size_t i = have; i < have + more; ++i) {
      Header next;
      std::memcpy(&next, records_.data() + offsets_[i], sizeof next);
      offsets_[i + 1] = offsets_[i] + sizeof next + rounded_up(next.payload_bytes);
      if (distance == 1 && next.rest > 0)
        links_.wait(links_.receive(from, records_.data() + offsets_[i + 1] - next.rest, next.rest), deadline_);
    }
  }
}

bool Exchange::agreed() const {
  const uint64_t hash = header(rank_).hash;
  uint64_t balance = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const Header one = header(rank);
    if (one.hash != hash) return false;
    balance += one.balance;
  }
  return balance == 0;
}

// Everybody knows that somebody disagrees, so everybody comes here.
void Exchange::disagree(const Operation& operation) {
  size_t most = 0;
  for (int rank = 0; rank < size_; ++rank) most = std::max<size_t>(most, header(rank).numbers);
  std::vector<int64_t> all(most * index(size_));
  std::ranges::copy(numbers_of(operation), all.begin() + static_cast<std::ptrdiff_t>(most * index(rank_)));
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
    receive(messages_[0], from, reinterpret_cast<std::byte*>(all.data() + most * index(from)), most * sizeof(int64_t));
    send(messages_[0], to, reinterpret_cast<const std::byte*>(all.data() + most * index(rank_)),
         most * sizeof(int64_t));
  }
  await(messages_[0]);
  std::vector<std::vector<Route>> routes(index(size_));
  std::vector<Operation> operations;
  for (int rank = 0; rank < size_; ++rank)
    operations.push_back(operation_of(all.data() + most * index(rank), routes[index(rank)]));
  for (int a = 0; a < size_; ++a)
    for (int b = a + 1; b < size_; ++b)
      if (!agree(operations[index(a)], a, operations[index(b)], b))
        throw Disagreement{{a, b}, {describe(operations[index(a)]), describe(operations[index(b)])}};
  LOCKSTEP_CHECK(false, "ranks whose operations agree have different hashes");
}

void Exchange::finish_small(const Operation& operation) {
  std::byte* const out = output(operation);
  const size_t bytes = bytes_of(operation, operation.count);
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter: {
      int64_t begin = 0, count = operation.count;
      if (operation.kind == Kind::reduce_scatter) {
        cut(operation.counts);
        begin = pieces_[index(rank_)];
        count = piece_count(rank_);
      }
      if (count == 0) return;
      for (int rank = 0; rank < size_; ++rank) inputs_[index(rank)] = payload(rank);
      void* const to = out;
      return reduce(operation.dtype, operation.reduction, inputs_, begin, {&to, 1}, 0, count);
    }
    case Kind::all_gather:
      cut(operation.counts);
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

void Exchange::cut(int64_t count) {
  for (int rank = 0; rank <= size_; ++rank)
    pieces_[index(rank)] = count / size_ * rank + std::min<int64_t>(count % size_, rank);
}

void Exchange::cut(std::span<const int64_t> counts) {
  for (size_t rank = 0; rank < counts.size(); ++rank) pieces_[rank + 1] = pieces_[rank] + counts[rank];
}

void Exchange::send(std::vector<int>& messages, int to, const std::byte* data, size_t bytes) {
  for (size_t done = 0; done < bytes; done += Links::kMostBytes)
    messages.push_back(links_.send(to, data + done, std::min(Links::kMostBytes, bytes - done)));
}

void Exchange::receive(std::vector<int>& messages, int from, std::byte* data, size_t bytes) {
  for (size_t done = 0; done < bytes; done += Links::kMostBytes)
    messages.push_back(links_.receive(from, data + done, std::min(Links::kMostBytes, bytes - done)));
}

void Exchange::await(std::vector<int>& messages) {
  for (const int message : messages) links_.wait(message, deadline_);
  messages.clear();
}

// Combines this rank's piece of all ranks' `in` into own_out. Where `gathered` is given, the pieces of all ranks end
// there; own_out is its place in it. Two chunks are under way at a time: while one is combined the next travels, and so
// do the results of the one before.
void Exchange::reduce_pieces(const Operation& operation, std::byte* own_out, std::byte* gathered) {
  const size_t element = bytes_of(operation, 1);
  const size_t peers = index(std::max(size_ - 1, 1));
  const auto chunk = static_cast<int64_t>(std::max(kScratch / 2 / peers, kLeastChunk) / element);
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
  const auto landing = [&](int step, int64_t c) {
    return scratch_.data() + (index(static_cast<int>(c % 2)) * peers + index(step - 1)) * chunk_bytes;
  };
  const auto exchange_inputs = [&](int64_t c) {
    if (c >= chunks) return;
    std::vector<int>& messages = messages_[c % 2];
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
      receive(messages, from, landing(step, c), bytes(rank_, c));
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
      for (int step = 1; step < size_; ++step) inputs_[index((rank_ - step + size_) % size_)] = landing(step, c);
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

void Exchange::gather_pieces(const std::byte* own, std::byte* out, size_t element) {
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

void Exchange::exchange_pairs(const Operation& operation) {
  const auto before = [&](std::span<const int64_t> counts, int rank) {
    return bytes_of(operation, std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0}));
  };
  for (int step = 0; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
    std::byte* const place = output(operation) + before(operation.receive_counts, from);
    const std::byte* const given = input(operation) + before(operation.counts, to);
    const size_t taken = bytes_of(operation, operation.receive_counts[index(from)]);
    if (step == 0) {
      copy(place, given, taken);
      continue;
    }
    receive(messages_[0], from, place, taken);
    send(messages_[0], to, given, bytes_of(operation, operation.counts[index(to)]));
  }
  await(messages_[0]);
}

void Exchange::permute(const Operation& operation) {
  const size_t bytes = bytes_of(operation, operation.count);
  const Route* const route = route_to(operation, rank_);
  if (!route)
    std::memset(operation.out, 0, bytes);
  else if (route->source == rank_)
    copy(output(operation), input(operation), bytes);
  else
    receive(messages_[0], route->source, output(operation), bytes);
  for (const Route& given : operation.routes)
    if (given.source == rank_ && given.destination != rank_)
      send(messages_[0], given.destination, input(operation), bytes);
  await(messages_[0]);
}

void Exchange::broadcast(const Operation& operation) {
  cut(operation.count);
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
  // The root has everything already: nobody sends to it.
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
    if (rank_ != operation.root) receive(messages_[1], from, begin(from), bytes(from));
    if (to != operation.root) send(messages_[1], to, begin(rank_), bytes(rank_));
  }
  for (std::vector<int>& messages : messages_) await(messages);
}

}  // namespace lockstep
