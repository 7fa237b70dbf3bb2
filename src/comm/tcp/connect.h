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
#include "comm/tcp/handshake.h"
#include "comm/tcp/port_range.h"

namespace lockstep::detail {

struct ConnectOptions {
  KeyStore& store;
  std::string prefix;  // of the keys
  int rank = 0, size = 1;
  int channels = 1;                             // connections between each pair of ranks
  LinkSecurity security = LinkSecurity::plain;  // the same on all ranks
  Cipher cipher = fastest_cipher();             // that this rank prefers
  sockaddr_storage address = {};                // to listen on; its port is ignored
  socklen_t address_length = 0;
  PortRange ports = {};
  Links::Time deadline;
};

struct RankConnection {
  Descriptor socket;
  LinkKeys keys;
};
struct RankConnections {
  std::vector<std::vector<RankConnection>> by_channel;  // and by rank; that of this rank itself is not open
  Cipher cipher = Cipher::aes_128_gcm;                  // of all connections of the group
};

// Returns when all ranks are connected, and stops listening. Throws LinkTimeout and LinkBroken, which name the rank, and
// CommError.
RankConnections connect_ranks(const ConnectOptions& options);

}  // namespace lockstep::detail
