// Every operation begins with a roll call: the ranks of a host show each other a hash of what they ask for, the first
// ranks of the hosts do, and each tells its host. Who has not come is found there, and ranks that disagree are too,
// before anything else is moved. What follows needs all ranks, and all have come.
#include "comm/hierarchy.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "comm/hierarchy_cause.h"
#include "comm/queued.h"

namespace lockstep {

namespace {

using detail::LevelCause;
using Kind = Operation::Kind;
using std::chrono::nanoseconds;

constexpr nanoseconds kLongest = std::chrono::hours(24 * 365);
constexpr auto kMoment = std::chrono::seconds(1);
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

// A thread that waits for a failure of a group, without being in its way: in a group of its own that never meets,
// because rank 0 waits in one and the others in another.
class Alarm {
 public:
  Alarm(Comm& watched, std::function<void(const std::string&)> ring) {
    std::vector<int> all(static_cast<size_t>(watched.size()));
    std::iota(all.begin(), all.end(), 0);
    for (auto& group : groups_) group = watched.split(all, "alarm");
    if (!ring) return;
    Comm& mine = *groups_[watched.rank() == 0 ? 0 : 1];
    mine.set_timeout(kLongest);
    thread_ = std::thread([this, &mine, ring = std::move(ring)] {
      try {
        mine.barrier();
      } catch (const std::exception& error) {
        // One that left says nothing: those who need it will find out.
        const std::string message = error.what();
        const bool left = message.find("has left the group") != message.npos || message.find(kClosing) != message.npos;
        if (!left && !closing_) ring(message);
      }
    });
  }
  ~Alarm() {
    closing_ = true;
    if (!thread_.joinable()) return;
    for (auto& group : groups_) group->abort(kClosing);
    thread_.join();
  }

 private:
  static constexpr const char* kClosing = "the group is closed";

  std::unique_ptr<Comm> groups_[2];
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

class HierarchicalComm final : public QueuedComm {
 public:
  using Connect = decltype(HierarchyOptions::connect);
  using Hosts = std::vector<std::vector<int>>;

  // `above` are the ranks of the first group, where this is not that, and `origin` is its name.
  struct Place {
    Hosts hosts;
    int host;
    std::vector<int> above;
    std::string origin;
  };

  HierarchicalComm(Place place, std::unique_ptr<Comm> inner, Connect connect, const std::string& key,
                   const std::string& name, nanoseconds timeout)
      : QueuedComm(place.hosts[static_cast<size_t>(place.host)][static_cast<size_t>(inner->rank())], size_of_all(place),
                   name, timeout),
        place_(std::move(place)),
        connect_(std::move(connect)),
        key_(key),
        inner_(std::move(inner)),
        local_(place_.hosts[static_cast<size_t>(place_.host)]),
        host_of_(static_cast<size_t>(size())),
        self_(std::make_shared<Child>()) {
    self_->comm = this;
    for (size_t host = 0; host < place_.hosts.size(); ++host) {
      leaders_.push_back(place_.hosts[host].front());
      for (const int rank : place_.hosts[host]) host_of_[static_cast<size_t>(rank)] = static_cast<int>(host);
    }
  }
  ~HierarchicalComm() override {
    {
      const std::lock_guard lock(self_->mutex);
      self_->comm = nullptr;
    }
    stop();
    outer_alarm_.reset();
    inner_alarm_.reset();
  }

  // Connects the levels. `list` is what the ranks must agree on to be one group.
  void open(uint64_t list) {
    const Busy busy(*this);
    try {
      if (inner_->size() > 1 && place_.hosts.size() > 1)
        inner_alarm_.emplace(within(timeout()), leads() ? [this](const std::string& what) { hear_alarm(what, local_); }
                                                        : std::function<void(const std::string&)>());
      if (leads() && place_.hosts.size() > 1) {
        std::vector<int> ranks;
        for (const int leader : leaders_) ranks.push_back(origin_of(leader));
        outer_ = connect_(ranks, key_);
      }
      if (outer_)
        outer_alarm_.emplace(between(timeout() + grace()),
                             [this](const std::string& what) { hear_alarm(what, leaders_); });
      if (!roll_call(list, long_patience()))
        fail({.mismatch = true,
              .message = fmt::format("split: the ranks of \"{}\" were given as different lists; the members of a group "
                                     "must give the same list",
                                     name())});
    } catch (const CommError& error) {
      rethrow(error, Kind::split, 0);
    }
    check_failure(Kind::split, 0);
  }

  void abort(const std::string& reason) override {
    fail({.message = fmt::format("rank {}: {}", label(rank()), reason)});
  }

  std::optional<LevelCause> cause() {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  struct Child {
    std::recursive_mutex mutex;  // a group and those split from it tell each other
    HierarchicalComm* comm;      // null once it is gone
  };
  class Busy {
   public:
    explicit Busy(HierarchicalComm& comm) : comm_(comm) { comm.set_busy(true); }
    ~Busy() { comm_.set_busy(false); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    HierarchicalComm& comm_;
  };

  static int size_of_all(const Place& place) {
    size_t all = 0;
    for (const auto& host : place.hosts) all += host.size();
    return static_cast<int>(all);
  }
  bool leads() const { return inner_->rank() == 0; }
  int origin_of(int rank) const { return place_.above.empty() ? rank : place_.above[static_cast<size_t>(rank)]; }
  std::string label(int rank) const {
    if (place_.above.empty()) return fmt::format("{}", rank);
    return fmt::format("{} ({} of \"{}\")", rank, origin_of(rank), place_.origin);
  }
  // For a delay that may be another host's: the rank that is to blame is named by those of its own host first.
  nanoseconds grace() const { return std::max<nanoseconds>(std::chrono::seconds(1), timeout() / 4); }

  double seconds() const { return std::chrono::duration<double>(timeout()).count(); }

  void fail(LevelCause cause) {
    if (cause.depth < 0) cause.depth = depth_;
    {
      const std::lock_guard lock(mutex_);
      if (cause_) return;
      cause_ = cause;
    }
    // Its levels may not have said so yet.
    if (cause.depth < depth_ && above_) tell(*above_, cause);
    inner_->abort(cause.encode());
    if (outer_) outer_->abort(cause.encode());
    for (const auto& weak : children())
      if (const std::shared_ptr<Child> child = weak.lock()) tell(*child, cause);
  }
  static void tell(Child& other, const LevelCause& cause) {
    const std::lock_guard lock(other.mutex);
    if (other.comm) other.comm->fail(cause);
  }
  std::vector<std::weak_ptr<Child>> children() {
    const std::lock_guard lock(mutex_);
    return children_;
  }
  // What all ranks have started still completes: the operation under way here, which others may have done with, is
  // given a moment to.
  void hear_alarm(const std::string& what, const std::vector<int>& ranks) {
    {
      std::unique_lock lock(mutex_);
      idle_.wait_for(lock, kMoment, [&] { return busy_ == 0; });
    }
    hear(what, ranks);
  }
  void set_busy(bool busy) {
    const std::lock_guard lock(mutex_);
    busy_ += busy ? 1 : -1;
    idle_.notify_all();
  }
  // What a level says in the end, where ranks[i] is its rank i.
  void hear(const std::string& what, const std::vector<int>& ranks) {
    fail(LevelCause::of(what, seconds(), [&](int rank_there) {
      const auto at = static_cast<size_t>(rank_there);
      return label(at < ranks.size() ? ranks[at] : 0);
    }));
  }

  void check_failure(Kind kind, int64_t number) {
    if (const std::optional<LevelCause> cause = this->cause()) throw_cause(*cause, kind, number);
  }
  [[noreturn]] void throw_cause(const LevelCause& cause, Kind kind, int64_t number) const {
    if (cause.mismatch) throw Error(cause.message);
    throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", lockstep::name(kind), number,
                                  name(), label(rank()), size(), cause.text(kind, number, name(), size())));
  }
  // `error` was thrown by a level.
  [[noreturn]] void rethrow(const std::exception& error, Kind kind, int64_t number) {
    hear(error.what(), at_outer_ ? leaders_ : local_);
    const LevelCause cause = *this->cause();
    if (dynamic_cast<const CommTimeout*>(&error) && cause.waited)
      throw CommTimeout(cause.text(kind, number, name(), size()));
    throw_cause(cause, kind, number);
  }

  void run(const Operation& operation, int64_t number, Time deadline) override {
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
  // run() gives up by itself.
  std::exception_ptr expire(const Operation&, int64_t) noexcept override { return nullptr; }

  Comm& within(nanoseconds patience) {
    at_outer_ = false;
    inner_->set_timeout(std::min(patience, kLongest));
    return *inner_;
  }
  // REQUIRES: outer_.
  Comm& between(nanoseconds patience) {
    at_outer_ = true;
    outer_->set_timeout(std::min(patience, kLongest));
    return *outer_;
  }
  nanoseconds long_patience() const { return std::min(timeout(), kLongest) + 2 * grace(); }

  // Gathers `bytes` of every rank, host by host, into gathered_. The first wait is for the ranks of this host.
  void gather_all(const void* data, int64_t bytes, nanoseconds patience) {
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
  // Exchanges blocks of counts_ bytes between the hosts, in gathered_, and gives them to all ranks.
  void spread_blocks(int64_t before, int64_t all, nanoseconds patience) {
    if (place_.hosts.size() == 1) return;
    if (outer_) between(patience + grace()).all_gather(gathered_.data() + before, gathered_.data(), counts_, DType::u8);
    within(patience + 2 * grace()).broadcast(gathered_.data(), all, DType::u8, 0);
  }
  // The place of a rank in a list that goes host by host.
  int64_t position(int rank) const {
    int64_t before = 0;
    for (const auto& host : place_.hosts) {
      const auto found = std::ranges::find(host, rank);
      before += found - host.begin();
      if (found != host.end()) break;
    }
    return before;
  }

  // Whether all ranks show the same hash.
  bool roll_call(uint64_t hash, nanoseconds patience) {
    gather_all(&hash, sizeof hash, patience);
    for (int rank = 0; rank < size(); ++rank)
      if (std::memcmp(gathered_.data() + rank * int64_t{sizeof hash}, &hash, sizeof hash) != 0) return false;
    return true;
  }

  [[noreturn]] void disagree(int64_t number, int a, const std::string& of_a, int b, const std::string& of_b) {
    fail({.mismatch = true,
          .message = fmt::format("operation {} on \"{}\": rank {} asked for {}, rank {} asked for {}; the ranks of a "
                                 "group must make the same calls with the same sizes in the same order",
                                 number, name(), label(a), of_a, label(b), of_b)});
    throw Error(cause()->message);
  }

  // The hashes differ: says what two ranks asked for.
  [[noreturn]] void explain(const Operation& operation, int64_t number) {
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

  void move(const Operation& operation, int64_t number);
  void all_reduce_pieces(const Operation& operation);
  void scatter(const Operation& operation);
  void gather(const Operation& operation);
  void broadcast_levels(const Operation& operation);
  void exchange(const Operation& operation, int64_t number);
  // Of all_to_all and permute: what rank `from` gives `to`, in elements; sent_ and received_ hold the counts of all
  // ranks.
  int64_t sent(const Operation& operation, int from, int to) const;

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;
  void tell_other_hosts(const std::vector<int>& leaders, const std::string& key, const LevelCause& cause) const;

  const Place place_;
  const Connect connect_;
  const std::string key_;
  const std::unique_ptr<Comm> inner_;
  std::unique_ptr<Comm> outer_;  // of the first rank of each host
  const std::vector<int>& local_;
  std::vector<int> leaders_, host_of_;
  bool at_outer_ = false;

  std::mutex mutex_;
  std::condition_variable idle_;
  int busy_ = 0;
  std::optional<LevelCause> cause_;
  std::shared_ptr<Child> self_;  // known to the group above
  std::shared_ptr<Child> above_;
  int depth_ = 0;
  std::vector<std::weak_ptr<Child>> children_;
  std::optional<Alarm> inner_alarm_, outer_alarm_;
  std::map<std::pair<std::vector<int>, std::string>, int> splits_;

  std::vector<std::byte> gathered_, blocks_;
  std::vector<int64_t> counts_, local_counts_, receive_counts_, table_;
  std::vector<int> sorted_local_;
};

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

// They wait for the first rank here, and would blame it.
void HierarchicalComm::tell_other_hosts(const std::vector<int>& leaders, const std::string& key,
                                        const LevelCause& cause) const {
  if (leaders.size() == 1 || std::ranges::find(leaders, rank()) == leaders.end()) return;
  std::vector<int> ranks;
  for (const int leader : leaders) ranks.push_back(origin_of(leader));
  try {
    connect_(ranks, key)->abort(cause.encode());
  } catch (const std::exception&) {
    // Then they find out by their own timeouts.
  }
}

std::unique_ptr<Comm> HierarchicalComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  check_failure(Kind::split, 0);
  const Busy busy(*this);
  // The first rank of a host is the same whatever the order of the list, so that those who differ on it still meet.
  Place there;
  there.origin = place_.above.empty() ? this->name() : place_.origin;
  std::vector<int> inner_ranks, leaders;
  for (size_t host = 0; host < place_.hosts.size(); ++host) {
    std::vector<int> members;
    for (size_t i = 0; i < place_.hosts[host].size(); ++i) {
      const auto found = std::ranges::find(ranks, place_.hosts[host][i]);
      if (found == ranks.end()) continue;
      if (members.empty()) leaders.push_back(*found);
      members.push_back(static_cast<int>(found - ranks.begin()));
      if (static_cast<int>(host) == place_.host) inner_ranks.push_back(static_cast<int>(i));
    }
    if (members.empty()) continue;
    if (static_cast<int>(host) == place_.host) there.host = static_cast<int>(there.hosts.size());
    there.hosts.push_back(std::move(members));
  }
  Hasher list;
  for (const int rank : ranks) {
    there.above.push_back(origin_of(rank));
    list.add(static_cast<uint64_t>(rank));
  }
  const std::string key = fmt::format("{}/{}[{}]{}", key_, name, fmt::join(leaders, ","), splits_[{leaders, name}]++);
  std::unique_ptr<Comm> inner;
  const std::vector<int> members = there.hosts[static_cast<size_t>(there.host)];
  inner_->set_timeout(timeout());
  try {
    inner = inner_->split(inner_ranks, name);
  } catch (const std::exception& error) {
    const auto call = [&](int member) {
      const auto at = static_cast<size_t>(member);
      const int rank = at < members.size() ? members[at] : 0;
      return fmt::format("{} ({} of \"{}\")", rank, there.above[static_cast<size_t>(rank)], there.origin);
    };
    const LevelCause cause = LevelCause::of(error.what(), seconds(), call);
    if (dynamic_cast<const Error*>(&error)) fail({.mismatch = true, .message = error.what()});
    check_failure(Kind::split, 0);
    tell_other_hosts(leaders, key, cause);
    if (dynamic_cast<const CommTimeout*>(&error) && cause.waited)
      throw CommTimeout(cause.text(Kind::split, 0, name, static_cast<int>(ranks.size())));
    throw CommAborted(fmt::format("split 0 on \"{}\": rank {} of {} stops; first cause: {}", name, label(rank()),
                                  ranks.size(), cause.text(Kind::split, 0, name, static_cast<int>(ranks.size()))));
  }
  auto group = std::make_unique<HierarchicalComm>(std::move(there), std::move(inner), connect_, key, name, timeout());
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto& child) { return child.expired(); });
    children_.push_back(group->self_);
    group->above_ = self_;
    group->depth_ = std::min(depth_ + 1, 9);
  }
  try {
    group->open(list.value());
  } catch (const Error&) {
    fail(*group->cause());  // ranks that differ on who is in a group
    throw;
  }
  return group;
}

}  // namespace

std::unique_ptr<Comm> hierarchical_comm(HierarchyOptions options) {
  std::vector<int> all;
  for (const auto& host : options.hosts) all.insert(all.end(), host.begin(), host.end());
  std::vector<int> sorted = all, wanted(all.size());
  std::ranges::sort(sorted);
  std::iota(wanted.begin(), wanted.end(), 0);
  const auto count = static_cast<int>(options.hosts.size());
  if (sorted != wanted || options.host < 0 || options.host >= count ||
      std::ranges::any_of(options.hosts, [](const auto& host) { return host.empty(); }))
    throw_error("hierarchical_comm: host {} of {} with the ranks [{}] was given; name each rank on one host, from 0 on",
                options.host, count, fmt::join(all, ", "));
  const auto& here = options.hosts[static_cast<size_t>(options.host)];
  if (!options.inner || options.inner->size() != static_cast<int>(here.size()))
    throw_error("hierarchical_comm: host {} has {} ranks, the group on it {}; give a group of all its ranks",
                options.host, here.size(), options.inner ? options.inner->size() : 0);
  auto comm = std::make_unique<HierarchicalComm>(
      HierarchicalComm::Place{std::move(options.hosts), options.host, {}, {}}, std::move(options.inner),
      std::move(options.connect), "levels", options.name, options.timeout);
  comm->open(1);
  return comm;
}

}  // namespace lockstep
