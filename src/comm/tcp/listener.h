// RankListener: the listening socket of one rank while a group connects. Any process can connect to it; only ranks of
// the group pass the handshake. Other connections are reset and logged once per address. They use at most
// kMaxUnproved descriptors, and 84 bytes each.
//
// Thread safety: one thread at a time.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <list>
#include <string>
#include <vector>

#include "base/os/descriptor.h"
#include "comm/tcp/handshake.h"
#include "comm/tcp/port_range.h"

namespace lockstep::detail {

// A numeric address and a port.
struct HostPort {
  std::string host;
  int port = 0;
};
HostPort host_port_of(const sockaddr_storage& address);

class RankListener {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr size_t kMaxUnproved = 128;
  static constexpr std::chrono::seconds kHelloTime{5};   // allowed from the connection to the hello
  static constexpr std::chrono::seconds kProofTime{10};  // allowed from the hello to the proof

  // Listens on a free port of the range. The secret outlives the listener, and must be set before the first serve().
  // Throws CommError.
  RankListener(const sockaddr_storage& address, socklen_t length, const PortRange& ports, const GroupSecret& secret,
               int rank);

  const HostPort& address() const { return bound_address_; }

  // Adds the sockets that serve() reads and writes.
  void add_polled(std::vector<pollfd>& polled) const;
  // The time at which serve() must be called even if no socket is ready.
  Time next_deadline() const;
  struct Arrival {
    int peer, channel;
    Descriptor socket;
    LinkKeys keys;
  };
  // Accepts connections and advances their handshakes. Returns the connections whose handshakes have succeeded. A rank
  // may connect again: it has then given up its earlier connection. Throws CommError when the process has no file
  // descriptors left.
  std::vector<Arrival> serve();

 private:
  struct Pending {
    Descriptor socket;
    Handshake handshake;
    std::string from;
    Time deadline;
  };
  using PendingIterator = std::list<Pending>::iterator;

  bool accept_one();
  // Moves connections with a valid hello from unproved_ to proved_, and refuses those that have failed.
  void advance_unproved();
  bool advance(PendingIterator one);
  void refuse(PendingIterator one, const std::string& why);

  const GroupSecret& secret_;
  const int rank_;
  Descriptor socket_;
  HostPort bound_address_;
  std::set<Bytes32> seen_;
  std::list<Pending> unproved_;  // no valid hello yet, oldest first; at most kMaxUnproved
  std::list<Pending> proved_;    // with a valid, new hello: at most one for each rank and channel
};

}  // namespace lockstep::detail
