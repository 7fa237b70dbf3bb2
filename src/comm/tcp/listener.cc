#include "comm/tcp/listener.h"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "base/say.h"
#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 4096;      // the system may allow less
constexpr int kMostAccepted = 512;  // in one call, so that ranks that have proved themselves are served in between
constexpr size_t kMostLogged = 64;

// Logs the first connection that was refused from each address, of the first kMostLogged addresses.
void log_stranger(const std::string& from, int port, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> logged;
  {
    const std::lock_guard lock(mutex);
    if (logged.size() >= kMostLogged || !logged.insert(from).second) return;
  }
  say("lockstep: refused a connection from {} to port {}, where only processes of this job may connect: {} (logged "
      "once per address)\n",
      from, port, why);
}

}  // namespace

HostPort host_port_of(const sockaddr_storage& address) {
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, host.data(), host.size(), port.data(),
                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {"an unknown address", 0};
  return {host.data(), std::atoi(port.data())};
}

RankListener::RankListener(const sockaddr_storage& address, socklen_t length, const GroupSecret& secret, int rank)
    : secret_(secret),
      rank_(rank),
      socket_(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (!socket_.is_open() || ::bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket_.fd(), kBacklog) != 0 ||
      ::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    throw CommError(fmt::format("cannot listen at {}: {}", host_port_of(address).host, std::strerror(errno)));
  where_ = host_port_of(bound);
}

void RankListener::add_polled(std::vector<pollfd>& polled) const {
  polled.push_back({.fd = socket_.fd(), .events = POLLIN, .revents = 0});
  for (const auto* list : {&unproved_, &proved_})
    for (const Pending& one : *list) {
      const int events = POLLIN | (one.handshake.wants_to_write() ? POLLOUT : 0);
      polled.push_back({.fd = one.socket.fd(), .events = static_cast<short>(events), .revents = 0});
    }
}

RankListener::Time RankListener::next_deadline() const {
  Time next = Time::max();
  for (const auto* list : {&unproved_, &proved_})
    for (const Pending& one : *list) next = std::min(next, one.deadline);
  return next;
}

void RankListener::refuse(Place one, const std::string& why) {
  log_stranger(one->from, where_.port, why);
  one->socket.reset();
  unproved_.erase(one);
}

// False when there is nothing to accept now.
bool RankListener::accept_one() {
  sockaddr_storage from = {};
  socklen_t size = sizeof from;
  const int fd = ::accept4(socket_.fd(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    if (error == EINTR || error == ECONNABORTED) return true;
    if (error != EMFILE && error != ENFILE) return false;
    if (unproved_.empty()) throw CommError(fmt::format("accept: {}; raise `ulimit -n`", std::strerror(error)));
    refuse(unproved_.begin(), "it said nothing while others were waiting");
    return true;
  }
  // A rank sends its hello as soon as it is connected, so the oldest that has not is a stranger.
  if (unproved_.size() >= kMostUnproved) refuse(unproved_.begin(), "it said nothing while others were waiting");
  unproved_.push_back({.socket = Socket(fd),
                       .handshake = Handshake::listener(secret_, rank_, seen_),
                       .from = host_port_of(from).host,
                       .deadline = Clock::now() + kHelloTime});
  advance(std::prev(unproved_.end()));
  return true;
}

// Advances a connection without a valid hello; true when it is in unproved_ no longer.
bool RankListener::advance(Place one) {
  const Handshake::State state = one->handshake.advance(one->socket.fd());
  if (one->handshake.peer_has_proved()) {
    // Its rank gave up the attempt before this one.
    std::erase_if(proved_, [&](const Pending& other) {
      return other.handshake.peer() == one->handshake.peer() && other.handshake.channel() == one->handshake.channel();
    });
    one->deadline = Clock::now() + kProofTime;
    proved_.splice(proved_.end(), unproved_, one);
    return true;
  }
  if (state == Handshake::State::failed) {
    refuse(one, one->handshake.failure());
    return true;
  }
  if (Clock::now() >= one->deadline) {
    refuse(one, fmt::format("it sent no complete greeting in {} s", kHelloTime.count()));
    return true;
  }
  return false;
}

void RankListener::advance_unproved() {
  for (Place one = unproved_.begin(); one != unproved_.end();) advance(one++);
}

std::vector<RankListener::Arrival> RankListener::serve() {
  advance_unproved();
  for (int i = 0; i < kMostAccepted && accept_one(); ++i) {
  }
  std::vector<Arrival> ranks;
  for (Place one = proved_.begin(); one != proved_.end();) {
    const Place current = one++;
    const Handshake::State state = current->handshake.advance(current->socket.fd());
    if (state == Handshake::State::done)
      ranks.push_back({current->handshake.peer(), current->handshake.channel(), std::move(current->socket)});
    if (state != Handshake::State::running || Clock::now() >= current->deadline) proved_.erase(current);
  }
  return ranks;
}

}  // namespace lockstep::detail
