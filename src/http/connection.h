// Connection: the state of one client's socket, of the thread that reads them all. Peers: how many connections each
// address has. Values of that thread.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/os/descriptor.h"
#include "http/exchange.h"
#include "http/request_parser.h"

namespace lockstep::http {

using Clock = std::chrono::steady_clock;

struct Peer {
  int64_t connections = 0;
};

// By IPv4 address, or by the first 64 bits of an IPv6 address, which is what one host may choose from.
class Peers {
 public:
  Peer& of(const sockaddr_storage& address);
  // The connections of the address with the most.
  int64_t most() const;
  // Forgets the addresses without connections.
  void forget_gone();

 private:
  std::map<std::pair<bool, uint64_t>, Peer> all_;
};

struct Connection {
  // reading: waits for a request, or reads one. waiting: others answer it. writing: an answer is sent. draining: what
  // the client still sends is ignored, so that it can read the answer before the connection is closed.
  enum class Phase { reading, waiting, writing, draining };

  Connection(Descriptor accepted, Peer& from) : socket(std::move(accepted)), peer(from) { ++peer.connections; }
  ~Connection() { --peer.connections; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Descriptor socket;
  Peer& peer;
  RequestParser parser = {};
  Phase phase = Phase::reading;
  Clock::time_point since = {};  // when the phase began, or when the first byte of the request arrived
  Clock::time_point deadline = {};
  size_t body_held = 0;         // bytes of the body that count towards the limit of all bodies
  bool has_unread = false;      // the parser has bytes behind the last request
  bool was_served = false;      // a handler has answered a request
  bool is_quick = false;        // the reading thread answers this request
  bool is_half_closed = false;  // the client sends nothing more
  bool is_last = false;         // the connection is closed after this answer
  bool is_closed = false;
  bool is_extra = false;  // without a place: its answer is that the server is full

  // The answer.
  std::shared_ptr<Exchange> exchange = nullptr;
  bool has_head = false;                     // its head is in `out`, or was sent
  bool is_complete = false, is_cut = false;  // with what is in `out`
  BodyEnd end = BodyEnd::length;
  std::string out = {};
  size_t sent = 0;
};

// Whether a function of a socket failed because it would have to wait.
inline bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// How soon a connection is closed to make room for others; those with the lowest go first. -1: never.
int eviction_rank(const Connection& connection, Clock::time_point now);

}  // namespace lockstep::http
