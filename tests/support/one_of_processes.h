// OneOfProcesses makes this process one of several for a scope, without a control plane: its lanes and those of the
// other processes are threads of one group. The test holds the Comms of the other processes, and calls the collectives
// that they would call. Not thread-safe; nothing may be computed when it begins and ends.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/in_process.h"
#include "comm/world.h"
#include "sharding/device_table.h"

namespace lockstep {

class OneOfProcesses {
 public:
  // Every process has `devices` devices.
  OneOfProcesses(int index, int count, int devices) {
    detail::DeviceTable::current().leave();
    detail::DeviceTable::current().join(index, std::vector<int>(static_cast<size_t>(count), devices));
    const auto lanes = static_cast<int>(World::current().local_lanes());
    World::Membership member{.process_index = index, .process_count = count};
    std::vector<std::unique_ptr<Comm>> comms = in_process_comms(count * lanes);
    for (int i = 0; i < count * lanes; ++i)
      (i / lanes == index ? member.lanes : others_).push_back(std::move(comms[static_cast<size_t>(i)]));
    World::current().join(std::move(member));
  }
  ~OneOfProcesses() {
    World::current().leave();
    detail::DeviceTable::current().leave();
  }
  OneOfProcesses(const OneOfProcesses&) = delete;
  OneOfProcesses& operator=(const OneOfProcesses&) = delete;

  // The Comms of the lanes of all other processes, in order.
  const std::vector<std::unique_ptr<Comm>>& others() const { return others_; }

 private:
  std::vector<std::unique_ptr<Comm>> others_;
};

}  // namespace lockstep
