#include "plan/device_comms.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/runtime_parts.h"
#include "base/start_thread.h"
#include "comm/in_process.h"

namespace lockstep {

DeviceComms& DeviceComms::current() { return detail::runtime_part<DeviceComms>(); }

DeviceComms::DeviceComms() : world_(World::current()) {
  world_.set_derived_comms(
      {.abort = [this](const std::string& reason) { abort(reason); }, .leave = [this] { leave(); }});
}

DeviceComms::~DeviceComms() { world_.set_derived_comms({}); }

std::shared_ptr<DeviceComms::Group> DeviceComms::group(const std::vector<int>& lanes, bool spread,
                                                       const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Group>& group = groups_[{spread, lanes}];
  if (group && !group->failed) return group;
  group = std::make_shared<Group>();
  group->lanes = lanes;
  if (!spread) group->hosts = in_process_comms(static_cast<int>(lanes.size()), name);
  return group;
}

Comm* DeviceComms::of(Group& group, int index, Lane& lane, Comm* host) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = group.comms.find(index); at != group.comms.end()) return at->second.get();
  }
  const auto rank = std::find(group.lanes.begin(), group.lanes.end(), index) - group.lanes.begin();
  if (!host) host = group.hosts[static_cast<size_t>(rank)].get();
  const std::shared_ptr<Comm> comm = lane.device_comm(*host);
  std::string failure;
  {
    const std::lock_guard lock(mutex_);
    group.comms[index] = comm;
    if (group.failed) failure = group.failure;
  }
  if (!failure.empty()) comm->abort(failure);
  return comm.get();
}

void DeviceComms::abort(const std::string& reason) {
  std::vector<std::shared_ptr<Group>> groups;
  std::vector<std::shared_ptr<Comm>> comms;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [key, group] : groups_) {
      if (group->failed) continue;
      group->failure = reason;
      group->failed = true;
      groups.push_back(group);
      for (auto& [lane, comm] : group->comms) comms.push_back(comm);
    }
  }
  // Without the lock: a thread that is stopped may be about to take it.
  for (const auto& group : groups)
    for (const auto& host : group->hosts) host->abort(reason);
  // In parallel: aborting one may wait for work of another on the GPU.
  std::vector<std::thread> threads;
  for (const auto& comm : comms) {
    try {
      threads.push_back(start_thread([&reason, comm] { comm->abort(reason); }));
    } catch (const std::system_error&) {  // no more threads available
      comm->abort(reason);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

void DeviceComms::leave() {
  std::vector<std::map<int, std::shared_ptr<Comm>>>
      dropped;  // destroyed after the lock is released, because destruction may wait
  const std::lock_guard lock(mutex_);
  for (auto at = groups_.begin(); at != groups_.end();) {
    if (!at->first.first) {
      ++at;
      continue;
    }
    // Programs may outlive the job; their Comms do not.
    at->second->failure = "the job is over";
    at->second->failed = true;
    dropped.push_back(std::exchange(at->second->comms, {}));
    at = groups_.erase(at);
  }
}

}  // namespace lockstep
