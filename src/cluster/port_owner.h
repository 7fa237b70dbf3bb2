// Finds the process that listens on a TCP port. Thread-safe.
#pragma once

#include <string>

namespace lockstep::detail {

// The local process that listens on a TCP port: `pid 4711 (python3)`; `a process of user 1000` if /proc reveals no more
// to this user; empty if none listens.
std::string port_owner(int port);

}  // namespace lockstep::detail
