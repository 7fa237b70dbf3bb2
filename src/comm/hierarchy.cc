#include "comm/hierarchy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "comm/hierarchy_comm.h"

namespace lockstep {

namespace detail {

namespace {

constexpr auto kAbortGrace = std::chrono::seconds(1);  // for the running operation, after a level has failed

}  // namespace

int HierarchicalComm::rank_count(const Topology& topology) {
  size_t all = 0;
  for (const auto& host : topology.hosts) all += host.size();
  return static_cast<int>(all);
}

HierarchicalComm::HierarchicalComm(Topology topology, std::unique_ptr<Comm> inner, Connect connect,
                                   const std::string& key, const std::string& name, nanoseconds timeout)
    : QueuedComm(topology.hosts[static_cast<size_t>(topology.host)][static_cast<size_t>(inner->rank())],
                 rank_count(topology), name, timeout),
      topology_(std::move(topology)),
      connect_(std::move(connect)),
      key_(key),
      inner_(std::move(inner)),
      local_(topology_.hosts[static_cast<size_t>(topology_.host)]),
      sorted_local_(local_),
      host_of_(static_cast<size_t>(size())),
      handle_(std::make_shared<Handle>()) {
  handle_->comm = this;
  std::ranges::sort(sorted_local_);
  for (size_t host = 0; host < topology_.hosts.size(); ++host) {
    leaders_.push_back(topology_.hosts[host].front());
    for (const int rank : topology_.hosts[host]) host_of_[static_cast<size_t>(rank)] = static_cast<int>(host);
  }
}

HierarchicalComm::~HierarchicalComm() {
  {
    const std::lock_guard lock(handle_->mutex);
    handle_->comm = nullptr;
  }
  stop();
  outer_monitor_.reset();
  inner_monitor_.reset();
}

void HierarchicalComm::open(uint64_t list_hash) {
  const Busy busy(*this);
  try {
    if (inner_->size() > 1 && topology_.hosts.size() > 1)
      inner_monitor_.emplace(inner(timeout()), is_leader()
                                                   ? [this](const std::string& what) { on_level_failure(what, local_); }
                                                   : std::function<void(const std::string&)>());
    if (is_leader() && topology_.hosts.size() > 1) {
      std::vector<int> ranks;
      for (const int leader : leaders_) ranks.push_back(origin_rank(leader));
      in_outer_ = true;
      outer_ = connect_(ranks, key_);
    }
    if (outer_)
      outer_monitor_.emplace(outer(outer_timeout()),
                             [this](const std::string& what) { on_level_failure(what, leaders_); });
    if (!agree_on(list_hash, inner_timeout()))
      fail({.mismatch = true,
            .message = fmt::format("split: ranks gave different lists of the members of \"{}\"; the members of a group "
                                   "must give the same list",
                                   name())});
  } catch (const CommError& error) {
    rethrow(error, Kind::split, 0);
  }
  check_failure(Kind::split, 0);
}

std::string HierarchicalComm::label(int rank) const {
  if (topology_.origin_ranks.empty()) return fmt::format("{}", rank);
  return fmt::format("{} ({} of \"{}\")", rank, origin_rank(rank), topology_.origin_name);
}

void HierarchicalComm::abort(const std::string& reason) {
  fail({.message = fmt::format("rank {}: {}", label(rank()), reason)});
}

std::optional<LevelFailure> HierarchicalComm::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HierarchicalComm::fail(LevelFailure failure) {
  if (failure.depth < 0) failure.depth = depth_;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
  }
  // The failed group is an ancestor: its levels may not have reported the failure on this rank yet.
  if (failure.depth < depth_ && parent_) fail(*parent_, failure);
  inner_->abort(failure.encode());
  if (outer_) outer_->abort(failure.encode());
  for (const auto& weak : children())
    if (const std::shared_ptr<Handle> child = weak.lock()) fail(*child, failure);
}

void HierarchicalComm::fail(Handle& other, const LevelFailure& failure) {
  const std::lock_guard lock(other.mutex);
  if (other.comm) other.comm->fail(failure);
}

std::vector<std::weak_ptr<HierarchicalComm::Handle>> HierarchicalComm::children() {
  const std::lock_guard lock(mutex_);
  return children_;
}

void HierarchicalComm::on_level_failure(const std::string& what, const std::vector<int>& ranks) {
  {
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, kAbortGrace, [&] { return busy_ == 0; });
  }
  fail_from_level(what, ranks);
}

void HierarchicalComm::set_busy(bool busy) {
  const std::lock_guard lock(mutex_);
  busy_ += busy ? 1 : -1;
  idle_.notify_all();
}

void HierarchicalComm::fail_from_level(const std::string& what, const std::vector<int>& ranks) {
  fail(LevelFailure::parse(what, timeout_seconds(), [&](int rank_there) {
    const auto at = static_cast<size_t>(rank_there);
    return label(at < ranks.size() ? ranks[at] : 0);
  }));
}

void HierarchicalComm::check_failure(Kind kind, int64_t number) {
  if (const std::optional<LevelFailure> failure = this->failure()) throw_failure(*failure, kind, number);
}

void HierarchicalComm::throw_failure(const LevelFailure& failure, Kind kind, int64_t number) const {
  if (failure.mismatch) throw Error(failure.message);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", lockstep::name(kind), number,
                                name(), label(rank()), size(), failure.text(kind, number, name(), size())));
}

void HierarchicalComm::rethrow(const std::exception& error, Kind kind, int64_t number) {
  fail_from_level(error.what(), in_outer_ ? leaders_ : local_);
  const LevelFailure failure = *this->failure();
  if (dynamic_cast<const CommTimeout*>(&error) && failure.timed_out)
    throw CommTimeout(failure.text(kind, number, name(), size()));
  throw_failure(failure, kind, number);
}

// The leaders of the other hosts wait for the leader of this host, and would name it as missing.
void HierarchicalComm::notify_other_hosts(const std::vector<int>& leaders, const std::string& key,
                                          const LevelFailure& failure) const {
  if (leaders.size() == 1 || std::ranges::find(leaders, rank()) == leaders.end()) return;
  std::vector<int> ranks;
  for (const int leader : leaders) ranks.push_back(origin_rank(leader));
  try {
    connect_(ranks, key)->abort(failure.encode());
  } catch (const std::exception&) {
    // Then they notice by their own timeouts.
  }
}

// The leader of a host does not depend on the order of `ranks`, so that ranks that give different orders still connect,
// and then notice that they disagree.
HierarchicalComm::Subgroup HierarchicalComm::subgroup(const std::vector<int>& ranks) const {
  Subgroup group;
  Topology& there = group.topology;
  there.origin_name = topology_.origin_ranks.empty() ? name() : topology_.origin_name;
  for (size_t host = 0; host < topology_.hosts.size(); ++host) {
    const bool own_host = static_cast<int>(host) == topology_.host;
    std::vector<int> members;
    for (size_t i = 0; i < topology_.hosts[host].size(); ++i) {
      const auto found = std::ranges::find(ranks, topology_.hosts[host][i]);
      if (found == ranks.end()) continue;
      if (members.empty()) group.leaders.push_back(*found);
      members.push_back(static_cast<int>(found - ranks.begin()));
      if (own_host) group.inner_ranks.push_back(static_cast<int>(i));
    }
    if (members.empty()) continue;
    if (own_host) there.host = static_cast<int>(there.hosts.size());
    there.hosts.push_back(std::move(members));
  }
  for (const int rank : ranks) there.origin_ranks.push_back(origin_rank(rank));
  return group;
}

// The inner group could not be split.
void HierarchicalComm::throw_split_failure(const std::exception& error, const Subgroup& group, const std::string& name,
                                           const std::string& key) {
  const Topology& there = group.topology;
  const auto size = static_cast<int>(there.origin_ranks.size());
  const std::vector<int>& members = there.hosts[static_cast<size_t>(there.host)];
  const LevelFailure failure = LevelFailure::parse(error.what(), timeout_seconds(), [&](int member) {
    const auto at = static_cast<size_t>(member);
    const int rank = at < members.size() ? members[at] : 0;
    return fmt::format("{} ({} of \"{}\")", rank, there.origin_ranks[static_cast<size_t>(rank)], there.origin_name);
  });
  if (dynamic_cast<const Error*>(&error)) fail({.mismatch = true, .message = error.what()});
  check_failure(Kind::split, 0);
  notify_other_hosts(group.leaders, key, failure);
  if (dynamic_cast<const CommTimeout*>(&error) && failure.timed_out)
    throw CommTimeout(failure.text(Kind::split, 0, name, size));
  throw CommAborted(fmt::format("split 0 on \"{}\": rank {} of {} stops; first cause: {}", name, label(rank()), size,
                                failure.text(Kind::split, 0, name, size)));
}

std::unique_ptr<Comm> HierarchicalComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  check_failure(Kind::split, 0);
  const Busy busy(*this);
  Subgroup members = subgroup(ranks);
  const int earlier_splits = splits_[{members.leaders, name}]++;
  const std::string key = fmt::format("{}/{}[{}]{}", key_, name, fmt::join(members.leaders, ","), earlier_splits);
  std::unique_ptr<Comm> inner;
  inner_->set_timeout(timeout());
  try {
    inner = inner_->split(members.inner_ranks, name);
  } catch (const std::exception& error) {
    throw_split_failure(error, members, name, key);
  }
  auto group =
      std::make_unique<HierarchicalComm>(std::move(members.topology), std::move(inner), connect_, key, name, timeout());
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto& child) { return child.expired(); });
    children_.push_back(group->handle_);
    group->parent_ = handle_;
    group->depth_ = std::min(depth_ + 1, 9);
  }
  Hasher list_hash;
  for (const int rank : ranks) list_hash.add(static_cast<uint64_t>(rank));
  try {
    group->open(list_hash.value());
  } catch (const Error&) {
    fail(*group->failure());  // ranks disagree on the members
    throw;
  }
  return group;
}

}  // namespace detail

std::unique_ptr<Comm> hierarchical_comm(HierarchyOptions options) {
  std::vector<int> all;
  for (const auto& host : options.hosts) all.insert(all.end(), host.begin(), host.end());
  std::vector<int> sorted = all, wanted(all.size());
  std::ranges::sort(sorted);
  std::iota(wanted.begin(), wanted.end(), 0);
  const auto count = static_cast<int>(options.hosts.size());
  if (sorted != wanted || options.host < 0 || options.host >= count ||
      std::ranges::any_of(options.hosts, [](const auto& host) { return host.empty(); }))
    throw_error(
        "hierarchical_comm: invalid host {} of {} with the ranks [{}]; list each rank, from 0, on exactly one host",
        options.host, count, fmt::join(all, ", "));
  const auto& here = options.hosts[static_cast<size_t>(options.host)];
  if (!options.inner || options.inner->size() != static_cast<int>(here.size()))
    throw_error(
        "hierarchical_comm: host {} has {} ranks but its inner group has {}; give an inner group of all its ranks",
        options.host, here.size(), options.inner ? options.inner->size() : 0);
  auto comm = std::make_unique<detail::HierarchicalComm>(
      detail::HierarchicalComm::Topology{std::move(options.hosts), options.host, {}, {}}, std::move(options.inner),
      std::move(options.connect), "levels", options.name, options.timeout);
  comm->open(1);
  return comm;
}

}  // namespace lockstep
