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

constexpr auto kMoment = std::chrono::seconds(1);

}  // namespace

int HierarchicalComm::size_of_all(const Place& place) {
  size_t all = 0;
  for (const auto& host : place.hosts) all += host.size();
  return static_cast<int>(all);
}

HierarchicalComm::HierarchicalComm(Place place, std::unique_ptr<Comm> inner, Connect connect, const std::string& key,
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

HierarchicalComm::~HierarchicalComm() {
  {
    const std::lock_guard lock(self_->mutex);
    self_->comm = nullptr;
  }
  stop();
  outer_alarm_.reset();
  inner_alarm_.reset();
}

void HierarchicalComm::open(uint64_t list) {
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

std::string HierarchicalComm::label(int rank) const {
  if (place_.above.empty()) return fmt::format("{}", rank);
  return fmt::format("{} ({} of \"{}\")", rank, origin_of(rank), place_.origin);
}

void HierarchicalComm::abort(const std::string& reason) {
  fail({.message = fmt::format("rank {}: {}", label(rank()), reason)});
}

std::optional<LevelCause> HierarchicalComm::cause() {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void HierarchicalComm::fail(LevelCause cause) {
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

void HierarchicalComm::tell(Child& other, const LevelCause& cause) {
  const std::lock_guard lock(other.mutex);
  if (other.comm) other.comm->fail(cause);
}

std::vector<std::weak_ptr<HierarchicalComm::Child>> HierarchicalComm::children() {
  const std::lock_guard lock(mutex_);
  return children_;
}

void HierarchicalComm::hear_alarm(const std::string& what, const std::vector<int>& ranks) {
  {
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, kMoment, [&] { return busy_ == 0; });
  }
  hear(what, ranks);
}

void HierarchicalComm::set_busy(bool busy) {
  const std::lock_guard lock(mutex_);
  busy_ += busy ? 1 : -1;
  idle_.notify_all();
}

void HierarchicalComm::hear(const std::string& what, const std::vector<int>& ranks) {
  fail(LevelCause::of(what, seconds(), [&](int rank_there) {
    const auto at = static_cast<size_t>(rank_there);
    return label(at < ranks.size() ? ranks[at] : 0);
  }));
}

void HierarchicalComm::check_failure(Kind kind, int64_t number) {
  if (const std::optional<LevelCause> cause = this->cause()) throw_cause(*cause, kind, number);
}

void HierarchicalComm::throw_cause(const LevelCause& cause, Kind kind, int64_t number) const {
  if (cause.mismatch) throw Error(cause.message);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", lockstep::name(kind), number,
                                name(), label(rank()), size(), cause.text(kind, number, name(), size())));
}

void HierarchicalComm::rethrow(const std::exception& error, Kind kind, int64_t number) {
  hear(error.what(), at_outer_ ? leaders_ : local_);
  const LevelCause cause = *this->cause();
  if (dynamic_cast<const CommTimeout*>(&error) && cause.waited)
    throw CommTimeout(cause.text(kind, number, name(), size()));
  throw_cause(cause, kind, number);
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
    throw_error("hierarchical_comm: host {} of {} with the ranks [{}] was given; name each rank on one host, from 0 on",
                options.host, count, fmt::join(all, ", "));
  const auto& here = options.hosts[static_cast<size_t>(options.host)];
  if (!options.inner || options.inner->size() != static_cast<int>(here.size()))
    throw_error("hierarchical_comm: host {} has {} ranks, the group on it {}; give a group of all its ranks",
                options.host, here.size(), options.inner ? options.inner->size() : 0);
  auto comm = std::make_unique<detail::HierarchicalComm>(
      detail::HierarchicalComm::Place{std::move(options.hosts), options.host, {}, {}}, std::move(options.inner),
      std::move(options.connect), "levels", options.name, options.timeout);
  comm->open(1);
  return comm;
}

}  // namespace lockstep
