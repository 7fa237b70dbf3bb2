// Connects the ranks of one group with each other over TCP. Every rank listens at a port of its own and dials the lower
// ranks. Only sockets of ranks that know the group's secret are returned. Rank 0 makes that secret; it reaches the
// others through the key store, like the addresses.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "comm/key_store.h"
#include "comm/links.h"
#include "comm/tcp/socket.h"

namespace lockstep::detail {

struct ConnectOptions {
  KeyStore& store;
  std::string prefix;  // of the keys
  int rank = 0, size = 1;
  int channels = 1;               // connections between each two ranks
  sockaddr_storage address = {};  // to listen at; its port is ignored
  socklen_t address_length = 0;
  Links::Time deadline;
};

// Returns the sockets of each channel by rank, the own one not open, when all are connected; the listening socket is
// closed then. Throws LinkTimeout and LinkBroken, which name
// the rank, and CommError.
std::vector<std::vector<Socket>> connect_ranks(const ConnectOptions& options);

}  // namespace lockstep::detail
