// The address of this host on which a rank listens. Safe from any thread.
#pragma once

#include <sys/socket.h>

#include <string>

#include "comm/tcp/port_range.h"

namespace lockstep::detail {

struct LocalAddress {
  sockaddr_storage address = {};  // port 0
  socklen_t length = 0;
  PortRange ports = {};  // to choose the port from
};

// Resolves an address or name of this host, or the first address of a network interface. Both empty: the hostname.
// Throws Error when this host has no such address or interface.
LocalAddress local_address(const std::string& address, const std::string& interface);

}  // namespace lockstep::detail
