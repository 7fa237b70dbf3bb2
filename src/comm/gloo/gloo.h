// Gloo: a Comm between processes over TCP, one connection for each pair of ranks. Groups that are split off connect
// anew, so that one can fail and the others go on.
//
// Gloo writes to connections that peers may have closed: the first call makes this process ignore SIGPIPE, unless it
// handles it. Each call starts a thread, which carries the messages of its group and of those split from it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/key_store.h"

namespace lockstep {

struct GlooOptions {
  KeyStore& store;  // where ranks find each other's addresses, and why a group has failed; outlives all Comms
  std::string prefix = "gloo";  // of the keys: the same on all ranks, and never used before in this store
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
std::unique_ptr<Comm> gloo_comm(const GlooOptions& options);

}  // namespace lockstep
