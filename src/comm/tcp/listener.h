// RankListener: the listening socket of one rank while a group connects. Anybody may connect to it; only ranks of the
// group get through. The rest is reset, logged once per address, and costs at most kMostUnproved descriptors and 84
// bytes each.
//
// Thread safety: one thread at a time.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <list>
#include <string>
#include <vector>

#include "comm/tcp/handshake.h"
#include "comm/tcp/socket.h"

namespace lockstep::detail {

// The address of a socket, as numbers: host and port.
struct HostPort {
  std::string host;
  int port = 0;
};
HostPort host_port_of(const sockaddr_storage& address);

class RankListener {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr size_t kMostUnproved = 128;
  static constexpr std::chrono::seconds kHelloTime{5};   // from the connection to its hello
  static constexpr std::chrono::seconds kProofTime{10};  // from the answer to the proof

  // Listens at a free port. The secret outlives the listener and may be filled in until the first serve(). Throws
  // CommError.
  RankListener(const sockaddr_storage& address, socklen_t length, const GroupSecret& secret, int rank);

  const HostPort& where() const { return where_; }

  // Adds the sockets that serve() acts on.
  void add_polled(std::vector<pollfd>& polled) const;
  // When serve() has to be called even if no socket is ready.
  Time next_deadline() const;
  struct Arrival {
    int peer, channel;
    Socket socket;
  };
  // Accepts connections and advances their handshakes. Returns those of ranks that have proved who they are. A rank may
  // come again: then it has given up its earlier connection. Throws CommError when there are no
  // descriptors left.
  std::vector<Arrival> serve();

 private:
  struct Pending {
    Socket socket;
    Handshake handshake;
    std::string from;
    Time deadline;
  };
  using Place = std::list<Pending>::iterator;

  bool accept_one();
  // Moves those that have proved to be ranks from unproved_ to proved_, and refuses those that cannot.
  void advance_unproved();
  bool advance(Place one);
  void refuse(Place one, const std::string& why);

  const GroupSecret& secret_;
  const int rank_;
  Socket socket_;
  HostPort where_;
  std::set<Bytes32> seen_;
  std::list<Pending> unproved_;  // no valid hello yet, oldest first; at most kMostUnproved
  std::list<Pending> proved_;  // with a valid hello that nobody had sent before: at most one for each rank and channel
};

}  // namespace lockstep::detail
