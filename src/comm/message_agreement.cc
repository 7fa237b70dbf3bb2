// The agreement phase: every rank learns what the other ranks request, before any data is sent.
#include <bit>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "comm/message_collectives.h"
#include "comm/message_sizes.h"

namespace lockstep {

namespace {

using namespace detail;
using Kind = Operation::Kind;
using Channel = Links::Channel;

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

// A checksum of the counts of an all_to_all: the sum over all peers of hash(sender, receiver, count) for what this rank
// sends, minus the same for what it receives. Over all ranks these sum to 0 if every rank receives what others send it.
uint64_t balance_of(const Operation& operation, int rank) {
  if (operation.kind != Kind::all_to_all) return 0;
  uint64_t balance = 0;
  for (size_t other = 0; other < operation.counts.size(); ++other) {
    const auto peer = static_cast<int64_t>(other);
    balance += hash_of({rank, peer, operation.counts[other]}) - hash_of({peer, rank, operation.receive_counts[other]});
  }
  return balance;
}

// Encodes an operation, without its memory, as a list of numbers.
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

// The largest numbers_needed() of a request in a group of `size` ranks.
uint32_t most_numbers(int size) { return 8 + 4 * static_cast<uint32_t>(size); }

// Decodes numbers_of() of another rank; nullopt: they are not those of a request in a group of `size` ranks. The lists
// of the result refer to `numbers` and `routes`.
std::optional<Operation> operation_of(std::span<const int64_t> numbers, int size, std::vector<Route>& routes) {
  const RequestHeader header{.kind = numbers[0],
                             .dtype = numbers[1],
                             .reduction = numbers[2],
                             .counts = numbers[5],
                             .receive_counts = numbers[6],
                             .routes = numbers[7]};
  if (!is_valid(header, size)) return std::nullopt;
  const auto counts = static_cast<size_t>(header.counts), receive_counts = static_cast<size_t>(header.receive_counts),
             route_count = static_cast<size_t>(header.routes);
  if (8 + counts + receive_counts + 2 * route_count > numbers.size()) return std::nullopt;
  for (size_t i = 0; i < route_count; ++i) {
    const auto pair = numbers.subspan(8 + counts + receive_counts + 2 * i, 2);
    routes.push_back({static_cast<int>(pair[0]), static_cast<int>(pair[1])});
  }
  return Operation{.kind = static_cast<Kind>(header.kind),
                   .dtype = static_cast<DType>(header.dtype),
                   .reduction = static_cast<Reduction>(header.reduction),
                   .root = static_cast<int>(numbers[3]),
                   .count = numbers[4],
                   .counts = numbers.subspan(8, counts),
                   .receive_counts = numbers.subspan(8 + counts, receive_counts),
                   .routes = routes};
}

}  // namespace

size_t MessageCollectives::record_limit() const { return sizeof(Header) + payload_limit_; }

// A peer may send any bytes, and over TCP so may anyone on the path.
void MessageCollectives::check_record(const Header& record, int from) const {
  if (record.payload_bytes > payload_limit_ || record.second_message_bytes > rounded_up(record.payload_bytes) ||
      record.encoded_numbers < 8 || record.encoded_numbers > most_numbers(size_))
    throw LinkBroken{from, "it sent an invalid request"};
}

MessageCollectives::Header MessageCollectives::header(int rank) const {
  Header header;
  std::memcpy(&header, records_.data() + offsets_[record_index(rank)], sizeof header);
  return header;
}

bool MessageCollectives::agree_on(const Operation& operation, int64_t number) {
  if (size_ == 2 && links_.tag_limit() > 0) return agree_by_tag(operation, number);
  return agree_by_records(operation, number, small_payload_bytes(operation, rank_));
}

// For two ranks with a transport that has tags. Each rank sends its payload, with this tag:
//
//   tag = 2 * (hash of the request) + (1 if the payload continues in a second message)
//
// So a small operation is one short message in each direction. Ranks that disagree continue with agree_by_records().
bool MessageCollectives::agree_by_tag(const Operation& operation, int64_t number) {
  const int peer = 1 - rank_;
  const bool balanced = operation.kind == Kind::all_to_all;
  const uint64_t balance = balance_of(operation, rank_);
  const auto bytes_from = [&](int rank) { return balanced ? sizeof balance : small_payload_bytes(operation, rank); };
  offsets_[1] = record_limit();
  std::byte* const own = records_.data() + sizeof(Header);
  std::byte* const theirs = own + offsets_[1];
  const size_t payload_bytes = bytes_from(rank_), first = links_.first_message_bytes(payload_bytes);
  copy(own, balanced ? reinterpret_cast<const std::byte*>(&balance) : input(operation), payload_bytes);
  const uint64_t hash = hash_of(operation, number) % (links_.tag_limit() / 2);
  const int incoming = links_.receive(Channel::agreement, peer, theirs, payload_limit_);
  messages_[0].push_back(links_.send(Channel::agreement, peer, own, first, 2 * hash + (payload_bytes > first ? 1 : 0)));
  if (payload_bytes > first)
    messages_[0].push_back(links_.send(Channel::agreement, peer, own + first, payload_bytes - first));
  const Links::Arrival arrival = links_.wait(incoming, deadline_);
  size_t bytes = arrival.bytes;
  if (arrival.tag % 2 != 0)
    bytes +=
        links_.wait(links_.receive(Channel::agreement, peer, theirs + bytes, payload_limit_ - bytes), deadline_).bytes;
  bool agree = arrival.tag / 2 == hash && bytes == bytes_from(peer);
  if (agree && balanced) {
    uint64_t their_balance = 0;
    std::memcpy(&their_balance, theirs, sizeof their_balance);
    agree = balance + their_balance == 0;
  }
  if (agree) return true;
  await(messages_[0]);
  return agree_by_records(operation, number, 0);
}

// Bruck's all-gather. Before round k this rank has the records of ranks rank, rank - 1, ..., rank - (2^k - 1). It sends
// them to rank + 2^k, and receives those of the next 2^k ranks from rank - 2^k. The last round sends only the records
// that are still missing. (All ranks modulo size.)
bool MessageCollectives::agree_by_records(const Operation& operation, int64_t number, size_t payload_bytes) {
  offsets_[1] = sizeof(Header) + rounded_up(payload_bytes);
  const size_t first = links_.first_message_bytes(offsets_[1]);
  const Header own{hash_of(operation, number), balance_of(operation, rank_), static_cast<uint16_t>(payload_bytes),
                   static_cast<uint16_t>(offsets_[1] - first), static_cast<uint32_t>(numbers_needed(operation))};
  std::memcpy(records_.data(), &own, sizeof own);
  copy(records_.data() + sizeof own, input(operation), payload_bytes);
  std::vector<int>& sent = messages_[0];
  for (int distance = 1; distance < size_; distance *= 2) {
    const size_t have = index(distance), more = index(std::min(distance, size_ - distance));
    const int from = (rank_ - distance + size_) % size_, to = (rank_ + distance) % size_;
    const std::byte* source = records_.data() + offsets_[have];
    const int incoming =
        links_.receive(Channel::agreement, from, records_.data() + offsets_[have], more * record_limit());
    sent.push_back(links_.send(Channel::agreement, to, records_.data(), distance == 1 ? first : offsets_[more]));
    if (distance == 1 && own.second_message_bytes > 0)
      sent.push_back(links_.send(Channel::agreement, to, records_.data() + first, own.second_message_bytes));
    links_.wait(incoming, deadline_);
    for (size_t i = have; i < have + more; ++i) {
      Header next;
      std::memcpy(&next, source, sizeof next);
      check_record(next, from);
      const size_t bytes = sizeof next + rounded_up(next.payload_bytes);
      copy(records_.data() + offsets_[i], source, bytes);
      offsets_[i + 1] = offsets_[i] + bytes;
      source += bytes;
      if (distance == 1 && next.second_message_bytes > 0)
        links_.wait(
            links_.receive(Channel::agreement, from, records_.data() + offsets_[i + 1] - next.second_message_bytes,
                           next.second_message_bytes),
            deadline_);
    }
  }
  if (!all_records_agree()) return false;
  for (int rank = 0; rank < size_; ++rank)
    if (const size_t bytes = small_payload_bytes(operation, rank); header(rank).payload_bytes != bytes)
      throw LinkBroken{rank == rank_ ? -1 : rank,
                       fmt::format("it sent {} bytes where {} were expected", header(rank).payload_bytes, bytes)};
  return true;
}

bool MessageCollectives::all_records_agree() const {
  const uint64_t hash = header(rank_).hash;
  uint64_t balance = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const Header one = header(rank);
    if (one.hash != hash) return false;
    balance += one.balance;
  }
  return balance == 0;
}

// All ranks have found that some rank disagrees, so all of them call this.
void MessageCollectives::throw_disagreement(const Operation& operation) {
  size_t most = 0;
  for (int rank = 0; rank < size_; ++rank) most = std::max<size_t>(most, header(rank).encoded_numbers);
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
  std::vector<std::optional<Operation>> operations;
  for (int rank = 0; rank < size_; ++rank)
    operations.push_back(operation_of(std::span(all).subspan(most * index(rank), most), size_, routes[index(rank)]));
  const auto text = [&](int rank) {
    const std::optional<Operation>& one = operations[index(rank)];
    return one ? describe(*one) : std::string("an invalid operation");
  };
  for (int a = 0; a < size_; ++a)
    for (int b = a + 1; b < size_; ++b) {
      const std::optional<Operation>&of_a = operations[index(a)], &of_b = operations[index(b)];
      if (!of_a || !of_b || !agree(*of_a, a, *of_b, b)) throw Disagreement{{a, b}, {text(a), text(b)}};
    }
  throw LinkBroken{-1, "they sent equal requests with different checksums"};
}

}  // namespace lockstep
