// TCP: a Comm between processes, two connections for each pair of ranks. Groups that are split off connect anew, so
// that one can fail and the others go on.
//
// Only ranks of the group get a connection: they prove that they know a secret that rank 0 leaves in the store
// (handshake.h). Everybody else who connects to a port of this process is refused and changes nothing.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/key_store.h"

namespace lockstep {

struct TcpOptions {
  // Where ranks find each other's addresses, the secret of the group, and why a group has failed. Whoever can read it
  // can join. Outlives all Comms.
  KeyStore& store;
  std::string prefix = "tcp";  // of the keys: the same on all ranks, and never used before in this store
  int rank = 0, size = 1;
  // What others connect to: an address or name of this machine, or the name of an interface. Both empty: the machine's
  // own name.
  std::string address = {};
  std::string interface = {};
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
  std::string name = "world";
};

// Connects to all other ranks. Throws Error for a rank or address that does not exist, CommTimeout naming the first
// rank that could not be reached in time, CommError when a connection failed otherwise.
std::unique_ptr<Comm> tcp_comm(const TcpOptions& options);

}  // namespace lockstep
