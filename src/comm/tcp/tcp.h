// TCP: a Comm between processes, with two connections for each pair of ranks. A group that is split off makes its own
// connections, so that it can fail without affecting other groups.
//
// Only ranks of the group can connect: they prove that they know a secret that rank 0 puts into the key store
// (handshake.h). Any other connection to a port of this process is refused and has no effect. Data is plain, signed or
// encrypted. When signed or encrypted data was changed on the way, the group fails and names the rank that sent it.
//
// Thread safety: as Comm; tcp_comm() is safe from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/key_store.h"
#include "comm/tcp/port_range.h"
#include "comm/tcp/record_cipher.h"

namespace lockstep {

struct TcpOptions {
  // Holds the addresses of the ranks, the secret of the group, and the cause when the group fails. Every process that
  // can read it can join the group. Outlives all Comms.
  KeyStore& store;
  std::string prefix = "tcp";  // of the keys: the same on all ranks, and never used before in this store
  int rank = 0, size = 1;
  // The address on which this rank listens: an address or name of this host, or the name of a network interface. Both
  // empty: the hostname.
  std::string address = {};
  std::string interface = {};
  PortRange ports = {};  // on which this rank listens
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
  std::string name = "world";
  LinkSecurity security = LinkSecurity::plain;       // the same on all ranks
  detail::Cipher cipher = detail::fastest_cipher();  // preferred by this rank
};

// Connects to all other ranks. Throws Error for a rank or address that does not exist, CommTimeout, which names the
// first rank that could not be reached in time, and CommError when a connection fails otherwise.
std::unique_ptr<Comm> tcp_comm(const TcpOptions& options);

}  // namespace lockstep
