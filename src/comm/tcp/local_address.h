// The address of this machine that a rank listens at.
#pragma once

#include <sys/socket.h>

#include <string>

namespace lockstep::detail {

struct LocalAddress {
  sockaddr_storage address = {};  // port 0
  socklen_t length = 0;
};

// An address or name of this machine, or the first address of an interface. Both empty: the machine's own name. Throws
// Error when the machine has no such address or interface.
LocalAddress local_address(const std::string& address, const std::string& interface);

}  // namespace lockstep::detail
