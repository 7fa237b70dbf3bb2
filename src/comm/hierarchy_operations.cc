// Every operation begins with the agreement: all ranks gather a hash of their requests. This finds ranks that have not
// started the operation, and ranks that disagree, before any data is exchanged. Everything after it can rely on all
// ranks having started the same operation.
#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "comm/failure_text.h"
#include "comm/hierarchy_comm.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;
using std::chrono::nanoseconds;

constexpr int64_t kPieceBytes = 1 << 20;  // an all_reduce is divided into pieces of this size

uint64_t hash_of(const Operation& operation) {
  Hasher hasher;
  for (const int value : {static_cast<int>(operation.kind), static_cast<int>(operation.dtype)})
    hasher.add(static_cast<uint64_t>(value));
  if (operation.kind != Kind::all_to_all) {  // whose counts differ between ranks
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
    const nanoseconds left =
        deadline == kNever ? timeout() : std::max<nanoseconds>(deadline - Clock::now(), std::chrono::milliseconds(1));
    if (!agree_on(hash_of(operation), left)) throw_disagreement(operation, number);
    execute(operation, number);
  } catch (const CommError& error) {
    rethrow(error, operation.kind, number);
  } catch (const Error& error) {
    rethrow(error, operation.kind, number);
  }
  in_outer_ = false;
}

Comm& HierarchicalComm::inner(nanoseconds timeout) {
  in_outer_ = false;
  inner_->set_timeout(std::min(timeout, kMaxTimeout));
  return *inner_;
}

Comm& HierarchicalComm::outer(nanoseconds timeout) {
  in_outer_ = true;
  outer_->set_timeout(std::min(timeout, kMaxTimeout));
  return *outer_;
}

void HierarchicalComm::gather_all(const void* data, int64_t bytes, nanoseconds timeout) {
  const auto all = static_cast<size_t>(bytes * size());
  gathered_.resize(std::max(gathered_.size(), all));
  int64_t own_block = 0;
  counts_.assign(topology_.hosts.size(), 0);
  for (size_t host = 0; host < topology_.hosts.size(); ++host) {
    counts_[host] = bytes * static_cast<int64_t>(topology_.hosts[host].size());
    if (static_cast<int>(host) < topology_.host) own_block += counts_[host];
  }
  local_counts_.assign(local_.size(), bytes);
  inner(timeout).all_gather(data, gathered_.data() + own_block, local_counts_, DType::u8);
  gather_blocks(own_block, bytes * size(), timeout);
}

void HierarchicalComm::gather_blocks(int64_t own_block, int64_t all, nanoseconds timeout) {
  if (topology_.hosts.size() == 1) return;
  if (outer_)
    outer(timeout + kLeaderGrace).all_gather(gathered_.data() + own_block, gathered_.data(), counts_, DType::u8);
  inner(timeout + kFollowerGrace).broadcast(gathered_.data(), all, DType::u8, 0);
}

int64_t HierarchicalComm::host_order_index(int rank) const {
  int64_t index = 0;
  for (const auto& host : topology_.hosts) {
    const auto found = std::ranges::find(host, rank);
    index += found - host.begin();
    if (found != host.end()) break;
  }
  return index;
}

bool HierarchicalComm::agree_on(uint64_t hash, nanoseconds timeout) {
  gather_all(&hash, sizeof hash, timeout);
  for (int rank = 0; rank < size(); ++rank)
    if (std::memcmp(gathered_.data() + rank * int64_t{sizeof hash}, &hash, sizeof hash) != 0) return false;
  return true;
}

void HierarchicalComm::fail_mismatch(int64_t number, int a, const std::string& of_a, int b, const std::string& of_b) {
  fail({.mismatch = true, .message = mismatch_message(number, name(), label(a), of_a, label(b), of_b)});
  throw Error(failure()->message);
}

void HierarchicalComm::throw_disagreement(const Operation& operation, int64_t number) {
  struct {
    uint64_t hash;
    char text[504];
  } mine = {}, first = {}, other = {};
  mine.hash = hash_of(operation);
  const std::string text = describe(operation);
  std::memcpy(mine.text, text.data(), std::min(text.size(), sizeof mine.text - 1));
  gather_all(&mine, sizeof mine, timeout());
  const auto read = [&](int rank, auto& to) {
    std::memcpy(&to, gathered_.data() + host_order_index(rank) * int64_t{sizeof mine}, sizeof mine);
  };
  read(0, first);
  int rank = 1;
  for (read(rank, other); other.hash == first.hash && rank + 1 < size(); read(rank, other)) ++rank;
  fail_mismatch(number, 0, first.text, rank, other.text);
}

void HierarchicalComm::execute(const Operation& operation, int64_t number) {
  switch (operation.kind) {
    case Kind::all_reduce:
      return all_reduce_levels(operation);
    case Kind::reduce_scatter:
      return reduce_scatter_levels(operation);
    case Kind::all_gather:
      return all_gather_levels(operation);
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

// While the leaders reduce one piece in the outer group, the inner groups reduce the next one.
void HierarchicalComm::all_reduce_levels(const Operation& operation) {
  const int64_t element = lockstep::size_of(operation.dtype), step = kPieceBytes / element, count = operation.count;
  const auto at = [&](int64_t i) { return static_cast<std::byte*>(operation.out) + i * element; };
  Comm& host = inner(inner_timeout());
  const auto reduce_piece = [&](int64_t i) {
    return host.start_all_reduce(static_cast<const std::byte*>(operation.in) + i * element, at(i),
                                 std::min(step, count - i), operation.dtype, operation.reduction);
  };
  Work reduced = count > 0 ? reduce_piece(0) : Work(), distributed;
  for (int64_t i = 0; i < count; i += step) {
    const int64_t piece = std::min(step, count - i);
    Work next = i + step < count ? reduce_piece(i + step) : Work();
    in_outer_ = false;
    reduced.wait();
    if (outer_) outer(outer_timeout()).all_reduce(at(i), at(i), piece, operation.dtype, operation.reduction);
    in_outer_ = false;
    distributed.wait();
    if (topology_.hosts.size() > 1) distributed = host.start_broadcast(at(i), piece, operation.dtype, 0);
    reduced = std::move(next);
  }
  distributed.wait();
}

// The inner group reduces everything, the leaders reduce-scatter it between the hosts, and the leader of a host
// broadcasts the pieces of its ranks.
void HierarchicalComm::reduce_scatter_levels(const Operation& operation) {
  const int64_t element = lockstep::size_of(operation.dtype);
  const auto bytes_of = [&](int rank) { return operation.counts[static_cast<size_t>(rank)] * element; };
  const int64_t all = total_count(operation.counts);
  const auto bytes = static_cast<size_t>(all * element);
  gathered_.resize(std::max(gathered_.size(), bytes));
  blocks_.resize(std::max(blocks_.size(), bytes));
  inner(inner_timeout()).all_reduce(operation.in, gathered_.data(), all, operation.dtype, operation.reduction);
  // Rearrange from rank order to host order.
  counts_.assign(topology_.hosts.size(), 0);
  int64_t to = 0, own_block = 0, mine = 0;
  for (size_t host = 0; host < topology_.hosts.size(); ++host) {
    if (static_cast<int>(host) == topology_.host) own_block = to;
    for (const int rank : topology_.hosts[host]) {
      if (rank == this->rank()) mine = to;
      const int64_t from = count_before(operation.counts, rank);
      if (bytes_of(rank) > 0)
        std::memcpy(blocks_.data() + to, gathered_.data() + from * element, static_cast<size_t>(bytes_of(rank)));
      to += bytes_of(rank);
      counts_[host] += operation.counts[static_cast<size_t>(rank)];
    }
  }
  if (topology_.hosts.size() > 1) {
    if (outer_)
      outer(outer_timeout())
          .reduce_scatter(blocks_.data(), blocks_.data() + own_block, counts_, operation.dtype, operation.reduction);
    inner(inner_timeout())
        .broadcast(blocks_.data() + own_block, counts_[static_cast<size_t>(topology_.host)], operation.dtype, 0);
  }
  if (bytes_of(rank()) > 0) std::memcpy(operation.out, blocks_.data() + mine, static_cast<size_t>(bytes_of(rank())));
}

void HierarchicalComm::all_gather_levels(const Operation& operation) {
  const int64_t element = lockstep::size_of(operation.dtype);
  const auto bytes_of = [&](int rank) { return operation.counts[static_cast<size_t>(rank)] * element; };
  counts_.assign(topology_.hosts.size(), 0);
  local_counts_.clear();
  int64_t all = 0, own_block = 0;
  for (size_t host = 0; host < topology_.hosts.size(); ++host) {
    if (static_cast<int>(host) == topology_.host) own_block = all;
    for (const int rank : topology_.hosts[host]) counts_[host] += bytes_of(rank);
    all += counts_[host];
  }
  for (const int rank : local_) local_counts_.push_back(bytes_of(rank));
  gathered_.resize(std::max(gathered_.size(), static_cast<size_t>(all)));
  inner(inner_timeout()).all_gather(operation.in, gathered_.data() + own_block, local_counts_, DType::u8);
  gather_blocks(own_block, all, timeout());
  int64_t from = 0;
  for (const auto& host : topology_.hosts)
    for (const int rank : host) {
      const int64_t to = count_before(operation.counts, rank);
      if (bytes_of(rank) > 0)
        std::memcpy(static_cast<std::byte*>(operation.out) + to * element, gathered_.data() + from,
                    static_cast<size_t>(bytes_of(rank)));
      from += bytes_of(rank);
    }
}

void HierarchicalComm::broadcast_levels(const Operation& operation) {
  const int source = host_of_[static_cast<size_t>(operation.root)];
  const auto broadcast_inner = [&](int root) {
    inner(inner_timeout()).broadcast(operation.out, operation.count, operation.dtype, root);
  };
  if (source == topology_.host)
    broadcast_inner(static_cast<int>(std::ranges::find(local_, operation.root) - local_.begin()));
  if (outer_) outer(outer_timeout()).broadcast(operation.out, operation.count, operation.dtype, source);
  if (source != topology_.host) broadcast_inner(0);
}

// all_to_all and permute. A piece is what one rank sends to another; bytes_between() gives its size. Pieces pass
// through these buffers, each with its own order. Example: host A has ranks 0 and 2, host B has ranks 1 and 3; `2>1` is
// the piece from rank 2 to rank 1. On host A:
//
//   buffer         order of pieces                                           example
//   -------------  --------------------------------------------------------  ---------------------------------
//   operation.in   of rank 0: receiver in rank order                         0>0 0>1 0>2 0>3
//   gathered_      sender here in host order, receiver in rank order         0>0 0>1 0>2 0>3  2>0 2>1 2>2 2>3
//   outgoing       receiving host, sender here in host order,                to A: 0>0 0>2 2>0 2>2
//                  receiver in rank order                                    to B: 0>1 0>3 2>1 2>3
//   incoming       sending host, sender in host order,                       from A: 0>0 0>2 2>0 2>2
//                  receiver here in rank order                               from B: 1>0 1>2 3>0 3>2
//   operation.out  of rank 0: sender in rank order                           0>0 1>0 2>0 3>0
//
// counts_[h] and receive_counts_[h] are the bytes of outgoing and incoming for host h. outgoing and incoming are the
// two parts of blocks_.
void HierarchicalComm::exchange(const Operation& operation, int64_t number) {
  if (operation.kind == Kind::all_to_all) gather_counts(operation, number);
  const int64_t outgoing_bytes = gather_inputs(operation);
  const int64_t incoming_bytes = count_blocks(operation);
  blocks_.resize(std::max(blocks_.size(), static_cast<size_t>(outgoing_bytes + incoming_bytes)));
  pack_outgoing(operation);
  if (topology_.hosts.size() == 1) return unpack_incoming(operation, blocks_.data());
  std::byte* const incoming = blocks_.data() + outgoing_bytes;
  if (outer_) outer(outer_timeout()).all_to_all(blocks_.data(), incoming, counts_, receive_counts_, DType::u8);
  inner(inner_timeout()).broadcast(incoming, incoming_bytes, DType::u8, 0);
  unpack_incoming(operation, incoming);
}

// Gathers the counts of all ranks into table_: row r has the send counts of rank r, then its receive counts. Fails the
// group when two ranks disagree.
void HierarchicalComm::gather_counts(const Operation& operation, int64_t number) {
  const auto n = static_cast<size_t>(size());
  const size_t row_bytes = 2 * n * sizeof(int64_t);
  std::vector<int64_t>& own_row = receive_counts_;
  own_row.assign(operation.counts.begin(), operation.counts.end());
  own_row.insert(own_row.end(), operation.receive_counts.begin(), operation.receive_counts.end());
  gather_all(own_row.data(), static_cast<int64_t>(row_bytes), timeout());
  table_.resize(2 * n * n);
  for (int rank = 0; rank < size(); ++rank)
    std::memcpy(table_.data() + static_cast<size_t>(rank) * 2 * n,
                gathered_.data() + static_cast<size_t>(host_order_index(rank)) * row_bytes, row_bytes);
  const auto request_of = [&](int rank) {
    const auto row = std::span<const int64_t>(table_).subspan(static_cast<size_t>(rank) * 2 * n, 2 * n);
    return Operation{
        .kind = operation.kind, .dtype = operation.dtype, .counts = row.first(n), .receive_counts = row.last(n)};
  };
  for (int a = 0; a < size(); ++a)
    for (int b = a + 1; b < size(); ++b)
      if (!agree(request_of(a), a, request_of(b), b))
        fail_mismatch(number, a, describe(request_of(a)), b, describe(request_of(b)));
}

int64_t HierarchicalComm::bytes_between(const Operation& operation, int from, int to) const {
  const int64_t element = lockstep::size_of(operation.dtype);
  if (operation.kind == Kind::all_to_all) return table_[static_cast<size_t>(from * 2 * size() + to)] * element;
  return std::ranges::find(operation.routes, Route{from, to}) != operation.routes.end() ? operation.count * element : 0;
}

// Gathers the inputs of the ranks of this host into gathered_. Returns their bytes.
int64_t HierarchicalComm::gather_inputs(const Operation& operation) {
  local_counts_.clear();
  for (const int from : local_) {
    int64_t bytes = 0;
    for (int to = 0; to < size(); ++to) bytes += bytes_between(operation, from, to);
    local_counts_.push_back(bytes);
  }
  const int64_t all = total_count(local_counts_);
  gathered_.resize(std::max(gathered_.size(), static_cast<size_t>(all)));
  inner(inner_timeout()).all_gather(operation.in, gathered_.data(), local_counts_, DType::u8);
  return all;
}

// Sets counts_ and receive_counts_. Returns the bytes of incoming.
int64_t HierarchicalComm::count_blocks(const Operation& operation) {
  counts_.assign(topology_.hosts.size(), 0);
  receive_counts_.assign(topology_.hosts.size(), 0);
  for (size_t host = 0; host < topology_.hosts.size(); ++host)
    for (const int there : topology_.hosts[host])
      for (const int here : local_) {
        counts_[host] += bytes_between(operation, here, there);
        receive_counts_[host] += bytes_between(operation, there, here);
      }
  return total_count(receive_counts_);
}

// From gathered_ to outgoing.
void HierarchicalComm::pack_outgoing(const Operation& operation) {
  int64_t packed = 0;
  for (int host = 0; host < static_cast<int>(topology_.hosts.size()); ++host) {
    int64_t read = 0;
    for (const int from : local_)
      for (int to = 0; to < size(); ++to) {
        const int64_t bytes = bytes_between(operation, from, to);
        if (bytes > 0 && host_of_[static_cast<size_t>(to)] == host) {
          std::memcpy(blocks_.data() + packed, gathered_.data() + read, static_cast<size_t>(bytes));
          packed += bytes;
        }
        read += bytes;
      }
  }
}

// From incoming to the output of this rank.
void HierarchicalComm::unpack_incoming(const Operation& operation, const std::byte* incoming) const {
  auto* const out = static_cast<std::byte*>(operation.out);
  const bool all_to_all = operation.kind == Kind::all_to_all;
  if (!all_to_all && operation.count > 0)  // a rank that is not a destination receives zeros
    std::memset(out, 0, static_cast<size_t>(operation.count * lockstep::size_of(operation.dtype)));
  int64_t read = 0;
  for (const auto& host : topology_.hosts)
    for (const int from : host)
      for (const int to : sorted_local_) {
        const int64_t bytes = bytes_between(operation, from, to);
        if (bytes > 0 && to == rank()) {
          int64_t offset = 0;
          for (int earlier = 0; all_to_all && earlier < from; ++earlier)
            offset += bytes_between(operation, earlier, to);
          std::memcpy(out + offset, incoming + read, static_cast<size_t>(bytes));
        }
        read += bytes;
      }
}

}  // namespace lockstep::detail
