// How the ranks meet: before anything is done, each learns what the others ask for.
#include <bit>
#include <initializer_list>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "comm/exchange.h"
#include "comm/exchange_sizes.h"

namespace lockstep {

namespace {

using namespace detail;
using Kind = Operation::Kind;
using Way = Links::Way;

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

}  // namespace

size_t Exchange::record_limit() const { return sizeof(Header) + payload_limit_; }

Exchange::Header Exchange::header(int rank) const {
  Header header;
  std::memcpy(&header, records_.data() + offsets_[place(rank)], sizeof header);
  return header;
}

bool Exchange::meet(const Operation& operation, int64_t number) {
  if (size_ == 2 && links_.stamps() > 0) return meet_stamped(operation, number);
  return meet_around(operation, number, is_small(operation, payload_limit_) ? given_bytes(operation, rank_) : 0);
}

// Two ranks, whose messages carry a stamp: a hash of what is asked for, and whether the values go on in a second
// message. Beside it only values travel, so that few are one short message. Those who disagree meet once more.
bool Exchange::meet_stamped(const Operation& operation, int64_t number) {
  const int peer = 1 - rank_;
  const bool balanced = operation.kind == Kind::all_to_all, small = is_small(operation, payload_limit_);
  const uint64_t balance = balance_of(operation, rank_);
  const auto bytes_from = [&](int rank) {
    return balanced ? sizeof balance : small ? given_bytes(operation, rank) : 0;
  };
  offsets_[1] = record_limit();
  std::byte* const own = records_.data() + sizeof(Header);
  std::byte* const theirs = own + offsets_[1];
  const size_t given = bytes_from(rank_), first = links_.first_part(given);
  copy(own, balanced ? reinterpret_cast<const std::byte*>(&balance) : input(operation), given);
  const uint64_t hash = hash_of(operation, number) % (links_.stamps() / 2);
  const int coming = links_.receive(Way::meeting, peer, theirs, payload_limit_);
  messages_[0].push_back(links_.send(Way::meeting, peer, own, first, 2 * hash + (given > first ? 1 : 0)));
  if (given > first) messages_[0].push_back(links_.send(Way::meeting, peer, own + first, given - first));
  const Links::Arrival came = links_.wait(coming, deadline_);
  size_t bytes = came.bytes;
  if (came.stamp % 2 != 0)
    bytes += links_.wait(links_.receive(Way::meeting, peer, theirs + bytes, payload_limit_ - bytes), deadline_).bytes;
  bool agree = came.stamp / 2 == hash && bytes == bytes_from(peer);
  if (agree && balanced) {
    uint64_t their_balance = 0;
    std::memcpy(&their_balance, theirs, sizeof their_balance);
    agree = balance + their_balance == 0;
  }
  if (agree) return true;
  await(messages_[0]);
  return meet_around(operation, number, 0);
}

// In round k a rank has the records of the 2^k ranks up to itself; it sends them 2^k ranks on, and appends those of the
// 2^k ranks before them. In the last round only those that are missing travel.
bool Exchange::meet_around(const Operation& operation, int64_t number, size_t given) {
  offsets_[1] = sizeof(Header) + rounded_up(given);
  const size_t first = links_.first_part(offsets_[1]);
  const Header own{hash_of(operation, number), balance_of(operation, rank_), static_cast<uint16_t>(given),
                   static_cast<uint16_t>(offsets_[1] - first), static_cast<uint32_t>(numbers_needed(operation))};
  std::memcpy(records_.data(), &own, sizeof own);
  copy(records_.data() + sizeof own, input(operation), given);
  std::vector<int>& sent = messages_[0];
  for (int distance = 1; distance < size_; distance *= 2) {
    const size_t have = index(distance), more = index(std::min(distance, size_ - distance));
    const int from = (rank_ - distance + size_) % size_, to = (rank_ + distance) % size_;
    const std::byte* source = records_.data() + offsets_[have];
    const int coming = links_.receive(Way::meeting, from, records_.data() + offsets_[have], more * record_limit());
    sent.push_back(links_.send(Way::meeting, to, records_.data(), distance == 1 ? first : offsets_[more]));
    if (distance == 1 && own.rest > 0) sent.push_back(links_.send(Way::meeting, to, records_.data() + first, own.rest));
    links_.wait(coming, deadline_);
    for (size_t i = have; i < have + more; ++i) {
      Header next;
      std::memcpy(&next, source, sizeof next);
      const size_t bytes = sizeof next + rounded_up(next.payload_bytes);
      copy(records_.data() + offsets_[i], source, bytes);
      offsets_[i + 1] = offsets_[i] + bytes;
      source += bytes;
      if (distance == 1 && next.rest > 0)
        links_.wait(links_.receive(Way::meeting, from, records_.data() + offsets_[i + 1] - next.rest, next.rest),
                    deadline_);
    }
  }
  return agreed();
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

}  // namespace lockstep
