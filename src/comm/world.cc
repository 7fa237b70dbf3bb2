#include "comm/world.h"

#include <numeric>

#include "base/check.h"
#include "base/runtime_parts.h"
#include "lane/lane.h"

namespace lockstep {

World& World::current() { return detail::runtime_part<World>(); }

int64_t World::local_lanes() const { return local_lane_count(); }

Comm& World::group(int64_t local_lane, const std::vector<int>& lanes, const std::string& name) {
  Comm& all = *member_.lanes[static_cast<size_t>(local_lane)];
  if (static_cast<int>(lanes.size()) == all.size()) {
    std::vector<int> in_order(lanes.size());
    std::iota(in_order.begin(), in_order.end(), 0);
    if (lanes == in_order) return all;
  }
  auto& group = groups_[static_cast<size_t>(local_lane)].by_lanes[lanes];
  if (!group) group = all.split(lanes, name);
  return *group;
}

void World::end_warmup() {
  if (warmup_ended_ || is_single_process()) return;
  warmup_ended_ = true;
  for (const auto& comm : member_.lanes) comm->set_timeout(member_.timeout_after_warmup);
  for (const Groups& groups : groups_)
    for (const auto& [lanes, comm] : groups.by_lanes) comm->set_timeout(member_.timeout_after_warmup);
}

void World::agree(std::string_view name, std::string_view text) const {
  if (member_.agree) member_.agree(name, text);
}

void World::progress(int64_t step, const char* operation) const {
  if (member_.recorder) member_.recorder->set_step(step);
  if (member_.progress) member_.progress(step, operation);
}

void World::abort(const std::string& reason, bool caused_here) {
  if (caused_here && member_.report_failure) member_.report_failure(reason);
  for (const auto& comm : member_.lanes) comm->abort(reason);
  if (const DerivedComms hooks = derived_comms(); hooks.abort) hooks.abort(reason);
}

World::DerivedComms World::derived_comms() {
  const std::lock_guard lock(derived_mutex_);
  return derived_;
}

void World::set_derived_comms(DerivedComms derived) {
  const std::lock_guard lock(derived_mutex_);
  derived_ = std::move(derived);
}

void World::throw_cause(const std::exception& error) const {
  if (member_.throw_cause) member_.throw_cause(error);
}

void World::join(Membership membership) {
  LOCKSTEP_CHECK(is_single_process(), "this process has already joined as process {} of {}", process_index(),
                 process_count());
  LOCKSTEP_CHECK(static_cast<int64_t>(membership.lanes.size()) == local_lanes(), "{} comms for {} lanes",
                 membership.lanes.size(), local_lanes());
  groups_.resize(membership.lanes.size());
  if (membership.recorder) {
    auto recorded = membership.recorder->lanes().begin();
    for (const auto& comm : membership.lanes) comm->record_to(**recorded++);
  }
  member_ = std::move(membership);
}

void World::leave() {
  if (const DerivedComms hooks = derived_comms(); hooks.leave) hooks.leave();
  groups_.clear();
  member_.lanes.clear();  // before their recorder
  member_ = {};
  warmup_ended_ = false;
}

}  // namespace lockstep
