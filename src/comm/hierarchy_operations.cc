// Every operation begins with a roll call: the ranks of a host show each other a hash of what they ask for, the first
// ranks of the hosts do, and each tells its host. Who has not come is found there, and ranks that disagree are too,
// before anything else is moved. What follows needs all ranks, and all have come.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "comm/hierarchy_comm.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;
using std::chrono::nanoseconds;

constexpr int64_t kPiece = 1 << 20;  // bytes of an all_reduce that are on one level at a time

uint64_t hash_of(const Operation& operation) {
  Hasher hasher;
  for (const int value : {static_cast<int>(operation.kind), static_cast<int>(operation.dtype)})
    hasher.add(static_cast<uint64_t>(value));
  if (operation.kind != Kind::all_to_all) {  // whose counts belong to pairs
    for (const int64_t value : {int64_t{operation.root}, operation.count, static_cast<int64_t>(operation.reduction)})
      hasher.add(static_cast<uint64_t>(value));
    for (const int64_t count : operation.counts) hasher.add(static_cast<uint64_t>(count));
    for (const Route& route : operation.routes) {
      hasher.add(static_cast<uint64_t>(route.source));
      hasher.add(static_cast<uint64_t>(route.destination));
    }
  }
  return std::max<uint64_t>(hasher.value(), 1);
}

}  // namespace

void HierarchicalComm::run(const Operation& operation, int64_t number, Time deadline) {
  check_failure(operation.kind, number);
  const Busy busy(*this);
  try {
    const nanoseconds patience =
        deadline == kNever ? timeout() : std::max<nanoseconds>(deadline - Clock::now(), std::chrono::milliseconds(1));
    if (!roll_call(hash_of(operation), patience)) explain(operation, number);
    move(operation, number);
  } catch (const CommError& error) {
    rethrow(error, operation.kind, number);
  } catch (const Error& error) {
    rethrow(error, operation.kind, number);
  }
  at_outer_ = false;
}

Comm& HierarchicalComm::within(nanoseconds patience) {
  at_outer_ = false;
  inner_->set_timeout(std::min(patience, kLongest));
  return *inner_;
}

Comm& HierarchicalComm::between(nanoseconds patience) {
  at_outer_ = true;
  outer_->set_timeout(std::min(patience, kLongest));
  return *outer_;
}

void HierarchicalComm::gather_all(const void* data, int64_t bytes, nanoseconds patience) {
  const auto all = static_cast<size_t>(bytes * size());
  gathered_.resize(std::max(gathered_.size(), all));
  int64_t before = 0;
  counts_.assign(place_.hosts.size(), 0);
  for (size_t host = 0; host < place_.hosts.size(); ++host) {
    counts_[host] = bytes * static_cast<int64_t>(place_.hosts[host].size());
    if (static_cast<int>(host) < place_.host) before += counts_[host];
  }
  local_counts_.assign(local_.size(), bytes);
  within(patience).all_gather(data, gathered_.data() + before, local_counts_, DType::u8);
  spread_blocks(before, bytes * size(), patience);
}

void HierarchicalComm::spread_blocks(int64_t before, int64_t all, nanoseconds patience) {
  if (place_.hosts.size() == 1) return;
  if (outer_) between(patience + grace()).all_gather(gathered_.data() + before, gathered_.data(), counts_, DType::u8);
  within(patience + 2 * grace()).broadcast(gathered_.data(), all, DType::u8, 0);
}

int64_t HierarchicalComm::position(int rank) const {
  int64_t before = 0;
  for (const auto& host : place_.hosts) {
    const auto found = std::ranges::find(host, rank);
    before += found - host.begin();
    if (found != host.end()) break;
  }
  return before;
}

bool HierarchicalComm::roll_call(uint64_t hash, nanoseconds patience) {
  gather_all(&hash, sizeof hash, patience);
  for (int rank = 0; rank < size(); ++rank)
    if (std::memcmp(gathered_.data() + rank * int64_t{sizeof hash}, &hash, sizeof hash) != 0) return false;
  return true;
}

void HierarchicalComm::disagree(int64_t number, int a, const std::string& of_a, int b, const std::string& of_b) {
  fail({.mismatch = true,
        .message = fmt::format("operation {} on \"{}\": rank {} asked for {}, rank {} asked for {}; the ranks of a "
                               "group must make the same calls with the same sizes in the same order",
                               number, name(), label(a), of_a, label(b), of_b)});
  throw Error(cause()->message);
}

void HierarchicalComm::explain(const Operation& operation, int64_t number) {
  struct {
    uint64_t hash;
    char text[504];
  } mine = {}, first = {}, other = {};
  mine.hash = hash_of(operation);
  const std::string text = describe(operation);
  std::memcpy(mine.text, text.data(), std::min(text.size(), sizeof mine.text - 1));
  gather_all(&mine, sizeof mine, long_patience());
  const auto read = [&](int rank, auto& to) {
    std::memcpy(&to, gathered_.data() + position(rank) * int64_t{sizeof mine}, sizeof mine);
  };
  read(0, first);
  int rank = 1;
  for (read(rank, other); other.hash == first.hash && rank + 1 < size(); read(rank, other)) ++rank;
  disagree(number, 0, first.text, rank, other.text);
}

void HierarchicalComm::move(const Operation& operation, int64_t number) {
  switch (operation.kind) {
    case Kind::all_reduce:
      return all_reduce_pieces(operation);
    case Kind::reduce_scatter:
      return scatter(operation);
    case Kind::all_gather:
      return gather(operation);
    case Kind::broadcast:
      return broadcast_levels(operation);
    case Kind::all_to_all:
    case Kind::permute:
      return exchange(operation, number);
    case Kind::barrier:
    case Kind::split:
      return;
  }
}

// While one piece is between the hosts, the next is combined on each.
void HierarchicalComm::all_reduce_pieces(const Operation& operation) {
  const int64_t element = lockstep::size_of(operation.dtype), step = kPiece / element, count = operation.count;
  const auto at = [&](int64_t i) { return static_cast<std::byte*>(operation.out) + i * element; };
  Comm& inner = within(long_patience());
  const auto combine = [&](int64_t i) {
    return inner.start_all_reduce(static_cast<const std::byte*>(operation.in) + i * element, at(i),
                                  std::min(step, count - i), operation.dtype, operation.reduction);
  };
  Work combined = count > 0 ? combine(0) : Work(), spread;
  for (int64_t i = 0; i < count; i += step) {
    const int64_t piece = std::min(step, count - i);
    Work next = i + step < count ? combine(i + step) : Work();
    at_outer_ = false;
    combined.wait();
    if (outer_) between(long_patience()).all_reduce(at(i), at(i), piece, operation.dtype, operation.reduction);
    at_outer_ = false;
    spread.wait();
    if (place_.hosts.size() > 1) spread = inner.start_broadcast(at(i), piece, operation.dtype, 0);
    combined = std::move(next);
  }
  spread.wait();
}

// Combined on each host, then each host gets the pieces of its ranks.
void HierarchicalComm::scatter(const Operation& operation) {
  const int64_t element = lockstep::size_of(operation.dtype);
  const auto bytes_of = [&](int rank) { return operation.counts[static_cast<size_t>(rank)] * element; };
  const int64_t all = std::accumulate(operation.counts.begin(), operation.counts.end(), int64_t{0});
  const auto bytes = static_cast<size_t>(all * element);
  gathered_.resize(std::max(gathered_.size(), bytes));
  blocks_.resize(std::max(blocks_.size(), bytes));
  within(long_patience()).all_reduce(operation.in, gathered_.data(), all, operation.dtype, operation.reduction);
  // From the order of the ranks to that of the hosts.
  counts_.assign(place_.hosts.size(), 0);
  int64_t to = 0, before = 0, mine = 0;
  for (size_t host = 0; host < place_.hosts.size(); ++host) {
    if (static_cast<int>(host) == place_.host) before = to;
    for (const int rank : place_.hosts[host]) {
      if (rank == this->rank()) mine = to;
      const int64_t from = std::accumulate(operation.counts.begin(), operation.counts.begin() + rank, int64_t{0});
      if (bytes_of(rank) > 0)
        std::memcpy(blocks_.data() + to, gathered_.data() + from * element, static_cast<size_t>(bytes_of(rank)));
      to += bytes_of(rank);
      counts_[host] += operation.counts[static_cast<size_t>(rank)];
    }
  }
  if (place_.hosts.size() > 1) {
    if (outer_)
      between(long_patience())
          .reduce_scatter(blocks_.data(), blocks_.data() + before, counts_, operation.dtype, operation.reduction);
    within(long_patience())
        .broadcast(blocks_.data() + before, counts_[static_cast<size_t>(place_.host)], operation.dtype, 0);
  }
  if (bytes_of(rank()) > 0) std::memcpy(operation.out, blocks_.data() + mine, static_cast<size_t>(bytes_of(rank())));
}

void HierarchicalComm::gather(const Operation& operation) {
  const int64_t element = lockstep::size_of(operation.dtype);
  const auto bytes_of = [&](int rank) { return operation.counts[static_cast<size_t>(rank)] * element; };
  counts_.assign(place_.hosts.size(), 0);
  local_counts_.clear();
  int64_t all = 0, before = 0;
  for (size_t host = 0; host < place_.hosts.size(); ++host) {
    if (static_cast<int>(host) == place_.host) before = all;
    for (const int rank : place_.hosts[host]) counts_[host] += bytes_of(rank);
    all += counts_[host];
  }
  for (const int rank : local_) local_counts_.push_back(bytes_of(rank));
  gathered_.resize(std::max(gathered_.size(), static_cast<size_t>(all)));
  within(long_patience()).all_gather(operation.in, gathered_.data() + before, local_counts_, DType::u8);
  spread_blocks(before, all, long_patience());
  int64_t from = 0;
  for (const auto& host : place_.hosts)
    for (const int rank : host) {
      const int64_t to = std::accumulate(operation.counts.begin(), operation.counts.begin() + rank, int64_t{0});
      if (bytes_of(rank) > 0)
        std::memcpy(static_cast<std::byte*>(operation.out) + to * element, gathered_.data() + from,
                    static_cast<size_t>(bytes_of(rank)));
      from += bytes_of(rank);
    }
}

void HierarchicalComm::broadcast_levels(const Operation& operation) {
  const int source = host_of_[static_cast<size_t>(operation.root)];
  const auto spread = [&](int root) {
    within(long_patience()).broadcast(operation.out, operation.count, operation.dtype, root);
  };
  if (source == place_.host) spread(static_cast<int>(std::ranges::find(local_, operation.root) - local_.begin()));
  if (outer_) between(long_patience()).broadcast(operation.out, operation.count, operation.dtype, source);
  if (source != place_.host) spread(0);
}

int64_t HierarchicalComm::sent(const Operation& operation, int from, int to) const {
  if (operation.kind == Kind::all_to_all) return table_[static_cast<size_t>(from * 2 * size() + to)];
  return std::ranges::find(operation.routes, Route{from, to}) != operation.routes.end() ? operation.count : 0;
}

void HierarchicalComm::exchange(const Operation& operation, int64_t number) {
  const auto n = static_cast<size_t>(size());
  const int64_t element = lockstep::size_of(operation.dtype);
  if (operation.kind == Kind::all_to_all) {
    std::vector<int64_t>& mine = receive_counts_;
    mine.assign(operation.counts.begin(), operation.counts.end());
    mine.insert(mine.end(), operation.receive_counts.begin(), operation.receive_counts.end());
    gather_all(mine.data(), static_cast<int64_t>(2 * n * sizeof(int64_t)), long_patience());
    table_.resize(2 * n * n);
    for (int rank = 0; rank < size(); ++rank)
      std::memcpy(table_.data() + static_cast<size_t>(rank) * 2 * n,
                  gathered_.data() + static_cast<size_t>(position(rank)) * 2 * n * sizeof(int64_t),
                  2 * n * sizeof(int64_t));
    const auto asked = [&](int rank) {
      const auto row = std::span<const int64_t>(table_).subspan(static_cast<size_t>(rank) * 2 * n, 2 * n);
      return Operation{
          .kind = operation.kind, .dtype = operation.dtype, .counts = row.first(n), .receive_counts = row.last(n)};
    };
    for (int a = 0; a < size(); ++a)
      for (int b = a + 1; b < size(); ++b)
        if (!agree(asked(a), a, asked(b), b)) disagree(number, a, describe(asked(a)), b, describe(asked(b)));
  }
  const auto bytes = [&](int from, int to) { return sent(operation, from, to) * element; };
  const auto from_rank = [&](int from) {  // all that a rank gives
    int64_t all = 0;
    for (int to = 0; to < size(); ++to) all += bytes(from, to);
    return all;
  };
  // On each host all see what its ranks give; its first rank sorts that by the host it is for.
  local_counts_.clear();
  for (const int rank : local_) local_counts_.push_back(from_rank(rank));
  const int64_t given = std::accumulate(local_counts_.begin(), local_counts_.end(), int64_t{0});
  gathered_.resize(std::max(gathered_.size(), static_cast<size_t>(given)));
  within(long_patience()).all_gather(operation.in, gathered_.data(), local_counts_, DType::u8);
  counts_.assign(place_.hosts.size(), 0);
  receive_counts_.assign(place_.hosts.size(), 0);
  for (size_t host = 0; host < place_.hosts.size(); ++host)
    for (const int there : place_.hosts[host])
      for (const int here : local_) {
        counts_[host] += bytes(here, there);
        receive_counts_[host] += bytes(there, here);
      }
  const int64_t taken = std::accumulate(receive_counts_.begin(), receive_counts_.end(), int64_t{0});
  blocks_.resize(std::max(blocks_.size(), static_cast<size_t>(given + taken)));
  int64_t at = 0;
  for (const auto& host : place_.hosts) {
    int64_t start = 0;
    for (const int from : local_) {
      int64_t offset = start;
      for (int to = 0; to < size(); ++to) {
        const int64_t part = bytes(from, to);
        if (part > 0 && std::ranges::find(host, to) != host.end()) {
          std::memcpy(blocks_.data() + at, gathered_.data() + offset, static_cast<size_t>(part));
          at += part;
        }
        offset += part;
      }
      start = offset;
    }
  }
  std::byte* result = blocks_.data() + given;
  if (place_.hosts.size() == 1)
    result = blocks_.data();
  else if (outer_)
    between(long_patience()).all_to_all(blocks_.data(), result, counts_, receive_counts_, DType::u8);
  if (place_.hosts.size() > 1) within(long_patience()).broadcast(result, taken, DType::u8, 0);
  // Blocks come host by host, in each rank by rank, and of each what it gives to the ranks here, in their order by
  // number.
  if (operation.kind == Kind::permute && operation.count > 0)
    std::memset(operation.out, 0, static_cast<size_t>(operation.count * element));
  std::vector<int>& here = sorted_local_;
  here = local_;
  std::ranges::sort(here);
  int64_t from = 0;
  for (const auto& host : place_.hosts)
    for (const int source : host)
      for (const int to : here) {
        const int64_t part = bytes(source, to);
        if (part > 0 && to == rank()) {
          int64_t offset = 0;
          if (operation.kind == Kind::all_to_all)
            for (int earlier = 0; earlier < source; ++earlier) offset += bytes(earlier, to);
          std::memcpy(static_cast<std::byte*>(operation.out) + offset, result + from, static_cast<size_t>(part));
        }
        from += part;
      }
}

}  // namespace lockstep::detail
