// How Connections accepts connections, and chooses those that it closes to make room.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "http/connections.h"

namespace lockstep::http {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr int kAcceptsPerRound = 64;
constexpr size_t kExtraPlaces = 32;  // for answers that the server is full

// Whether bytes wait in a socket.
bool has_bytes(const Descriptor& socket) {
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace

void Connections::accept_some() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    Descriptor socket(
        ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      try {
        accept_one(std::move(socket), peers_.of(address));
      } catch (const std::exception& error) {  // such as no memory
        service_.log(fmt::format("a connection was not accepted: {}", error.what()));
      }
    } else if (!would_block(errno) && errno != ECONNABORTED) {
      const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (is_full && make_room()) continue;
      accept_again_ = Clock::now() + kAcceptPause;
      return;
    } else {
      return;
    }
  }
}

void Connections::accept_one(Descriptor socket, Peer& peer) {
  const int yes = 1;
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  const bool is_full = all_.size() >= static_cast<size_t>(limits_.connections) + extra_ && !make_room();
  if (is_full && extra_ >= kExtraPlaces) return;
  Connection& connection = all_.emplace_back(std::move(socket), peer);
  if (is_full) {
    connection.is_extra = true;
    ++extra_;
    Response response;
    response.set_busy(fmt::format("{} connections are open already; try again later", limits_.connections));
    return refuse(connection, response, true);
  }
  begin_reading(connection);
  read(connection);  // the request usually arrives with the connection
}

// Closes a connection, unless one is closed already. Returns false if all of them are answered at present.
bool Connections::make_room() {
  // Those that are closed have a place until the end of the round.
  bool found_place = false;
  all_.remove_if([&](const Connection& each) {
    if (!each.is_closed) return false;
    if (each.is_extra)
      --extra_;
    else
      found_place = true;
    return true;
  });
  if (found_place) return true;
  const auto now = Clock::now();
  for (auto found = next_to_evict(now); found != all_.end(); found = next_to_evict(now)) {
    // A request that has just arrived is not thrown away.
    if (found->phase == Phase::reading && !found->parser.has_begun() && has_bytes(found->socket)) {
      read(*found);
      if (found->phase == Phase::reading && !found->parser.has_head()) close(*found);
    } else {
      close(*found);
    }
    if (found->is_closed) {
      all_.erase(found);
      return true;
    }
  }
  return false;
}

// Chooses among the connections of the addresses with the most: the lowest rank, then the oldest.
std::list<Connection>::iterator Connections::next_to_evict(Clock::time_point now) {
  const int64_t most = peers_.most();
  auto found = all_.end();
  std::pair<int64_t, int> best;
  for (auto each = all_.begin(); each != all_.end(); ++each) {  // in the order in which they were accepted
    const int rank = eviction_rank(*each, now);
    if (rank < 0) continue;
    const std::pair<int64_t, int> place(-each->peer.connections, rank);
    if (found != all_.end() && (place > best || (place == best && each->since >= found->since))) continue;
    found = each;
    best = place;
    if (place == std::pair<int64_t, int>(-most, 0)) break;
  }
  return found;
}

}  // namespace lockstep::http
