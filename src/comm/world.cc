#include "comm/world.h"

#include <numeric>

#include "base/check.h"
#include "lane/lanes.h"

namespace lockstep {

World& World::instance() {
  static auto* const world = new World;
  return *world;
}

int64_t World::lanes_here() const { return Lanes::local().count(); }

Comm& World::group(int64_t lane_here, const std::vector<int>& lanes, const std::string& name) {
  Comm& all = *member_.lanes[static_cast<size_t>(lane_here)];
  if (static_cast<int>(lanes.size()) == all.size()) {
    std::vector<int> in_order(lanes.size());
    std::iota(in_order.begin(), in_order.end(), 0);
    if (lanes == in_order) return all;
  }
  auto& made = groups_[static_cast<size_t>(lane_here)].made[lanes];
  if (!made) made = all.split(lanes, name);
  return *made;
}

void World::settle() {
  if (settled_ || alone()) return;
  settled_ = true;
  for (const auto& comm : member_.lanes) comm->set_timeout(member_.settled_timeout);
  for (const Groups& groups : groups_)
    for (const auto& [lanes, comm] : groups.made) comm->set_timeout(member_.settled_timeout);
}

void World::agree(std::string_view name, std::string_view text) const {
  if (member_.agree) member_.agree(name, text);
}

void World::progress(int64_t step, const char* operation) const {
  if (member_.recorder) member_.recorder->set_step(step);
  if (member_.progress) member_.progress(step, operation);
}

void World::abort(const std::string& reason, bool own) {
  if (own && member_.failed) member_.failed(reason);
  for (const auto& comm : member_.lanes) comm->abort(reason);
  if (const Dependent depends = dependent(); depends.abort) depends.abort(reason);
}

World::Dependent World::dependent() {
  const std::lock_guard lock(dependent_mutex_);
  return dependent_;
}

void World::set_dependent(Dependent dependent) {
  const std::lock_guard lock(dependent_mutex_);
  dependent_ = std::move(dependent);
}

void World::throw_cause(const std::exception& error) const {
  if (member_.throw_cause) member_.throw_cause(error);
}

void World::join(Membership membership) {
  LOCKSTEP_CHECK(alone(), "joined process {} of {} before", process_index(), process_count());
  LOCKSTEP_CHECK(static_cast<int64_t>(membership.lanes.size()) == lanes_here(), "{} comms for {} lanes",
                 membership.lanes.size(), lanes_here());
  groups_.resize(membership.lanes.size());
  if (membership.recorder)
    for (size_t i = 0; i < membership.lanes.size(); ++i)
      membership.lanes[i]->record_to(*membership.recorder->lanes()[i]);
  member_ = std::move(membership);
}

void World::leave() {
  if (const Dependent depends = dependent(); depends.leave) depends.leave();
  groups_.clear();
  member_.lanes.clear();  // before what they record to
  member_ = {};
  settled_ = false;
}

}  // namespace lockstep
