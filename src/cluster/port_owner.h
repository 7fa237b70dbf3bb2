// Who listens at a port. Safe from any thread.
#pragma once

#include <string>

namespace lockstep::detail {

// The process of this machine that listens at a TCP port: `pid 4711 (python3)`; `a process of user 1000` where no more
// may be known; empty when nobody does.
std::string port_owner(int port);

}  // namespace lockstep::detail
