// CPU devices and meshes of any size, independent of the devices of this process.
#pragma once

#include <string>
#include <vector>

#include "lockstep/sharding.h"

namespace lockstep {

inline std::vector<Device> cpu_devices(int n) {
  std::vector<Device> list;
  for (int i = 0; i < n; ++i) list.push_back({.id = i});
  return list;
}

inline Mesh grid(const Shape& shape, const std::vector<std::string>& names) {
  return Mesh(cpu_devices(static_cast<int>(count(shape))), shape, names);
}

}  // namespace lockstep
