// Connects the ranks of one group with each other over TCP. Every rank listens on a port of its own and dials the lower
// ranks. Only sockets of ranks that know the group's secret are returned (see handshake.h). Rank 0 creates the secret;
// the other ranks read it from the key store, where the addresses are too. Safe from any thread.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/os/descriptor.h"
#include "comm/key_store.h"
#include "comm/links.h"
#include "comm/tcp/port_range.h"

namespace lockstep::detail {

struct ConnectOptions {
  KeyStore& store;
  std::string prefix;  // of the keys
  int rank = 0, size = 1;
  int channels = 1;               // connections between each pair of ranks
  sockaddr_storage address = {};  // to listen on; its port is ignored
  socklen_t address_length = 0;
  PortRange ports = {};
  Links::Time deadline;
};

// Returns the sockets by channel and rank when all are connected, and stops listening. The entry of this rank itself is
// not open. Throws LinkTimeout and LinkBroken, which name the rank, and CommError.
std::vector<std::vector<Descriptor>> connect_ranks(const ConnectOptions& options);

}  // namespace lockstep::detail
