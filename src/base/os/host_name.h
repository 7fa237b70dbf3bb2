// own_host_name(): the name of this host. Safe from any thread.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace lockstep {

// Empty if the system does not provide it.
inline std::string own_host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace lockstep
