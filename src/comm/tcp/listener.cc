#include "comm/tcp/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "base/print_stderr.h"
#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 4096;     // the kernel may use a lower limit
constexpr int kMaxAccepted = 512;  // per call of serve(), so that proved connections advance in between
constexpr size_t kMaxLogged = 64;

// Logs the first refused connection of each address, for the first kMaxLogged addresses.
void log_refusal(const std::string& from, int port, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> logged;
  {
    const std::lock_guard lock(mutex);
    if (logged.size() >= kMaxLogged || !logged.insert(from).second) return;
  }
  print_stderr(
      "lockstep: refused a connection from {} to port {}, where only processes of this job may connect: {} (logged "
      "once per address)\n",
      from, port, why);
}

// Closes the connection with a reset: neither end keeps the port or unread bytes.
void reset_connection(Descriptor& socket) {
  const linger no_linger{.l_onoff = 1, .l_linger = 0};
  if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &no_linger, sizeof no_linger);
  socket.close();
}

// Listens on this port (0: any free one). Returns no socket, and sets errno, if that fails.
Descriptor listen_on(sockaddr_storage address, socklen_t length, int port) {
  Descriptor socket(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  const auto number = htons(static_cast<uint16_t>(port));
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = number;
  else
    reinterpret_cast<sockaddr_in*>(&address)->sin_port = number;
  const int yes = 1;  // connections of an earlier group do not keep the port
  if (port != 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      ::listen(socket.get(), kBacklog) == 0)
    return socket;
  const int error = errno;
  socket.close();
  errno = error;
  return socket;
}

// Listens on a free port of the range. Returns no socket, and sets errno, if that fails.
Descriptor listen_in_range(const sockaddr_storage& address, socklen_t length, const PortRange& ports) {
  const int count = ports.last - ports.first + 1;
  // Processes of one host start at different ports, so that they rarely try the same.
  static std::atomic<int> next = static_cast<int>(::getpid());
  const int start = next++ % count;
  for (int i = 0; i < count; ++i) {
    Descriptor socket = listen_on(address, length, ports.first + (start + i) % count);
    if (socket || errno != EADDRINUSE) return socket;
  }
  errno = EADDRINUSE;
  return {};
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

RankListener::RankListener(const sockaddr_storage& address, socklen_t length, const PortRange& ports,
                           const GroupSecret& secret, int rank)
    : secret_(secret), rank_(rank), socket_(listen_in_range(address, length, ports)) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (!socket_ || ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    throw CommError(fmt::format(
        "cannot listen on {}: {}{}", host_port_of(address).host, std::strerror(errno),
        ports.first == 0 ? "" : fmt::format("; its ports are {}-{} (--data-ports)", ports.first, ports.last)));
  bound_address_ = host_port_of(bound);
}

void RankListener::add_polled(std::vector<pollfd>& polled) const {
  polled.push_back({.fd = socket_.get(), .events = POLLIN, .revents = 0});
  for (const auto* list : {&unproved_, &proved_})
    for (const Pending& one : *list) {
      const int events = POLLIN | (one.handshake.wants_to_write() ? POLLOUT : 0);
      polled.push_back({.fd = one.socket.get(), .events = static_cast<short>(events), .revents = 0});
    }
}

RankListener::Time RankListener::next_deadline() const {
  Time next = Time::max();
  for (const auto* list : {&unproved_, &proved_})
    for (const Pending& one : *list) next = std::min(next, one.deadline);
  return next;
}

void RankListener::refuse(PendingIterator one, const std::string& why) {
  log_refusal(one->from, bound_address_.port, why);
  reset_connection(one->socket);
  unproved_.erase(one);
}

// False when no connection is waiting to be accepted.
bool RankListener::accept_one() {
  sockaddr_storage from = {};
  socklen_t size = sizeof from;
  const int fd = ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    if (error == EINTR || error == ECONNABORTED) return true;
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return false;
    if (unproved_.empty()) throw CommError(fmt::format("accept: {}; raise `ulimit -n`", std::strerror(error)));
    refuse(unproved_.begin(), "it sent no data while other connections were waiting");
    return true;
  }
  // A rank sends its hello as soon as it is connected, so the oldest connection without one is not from a rank.
  if (unproved_.size() >= kMaxUnproved)
    refuse(unproved_.begin(), "it sent no data while other connections were waiting");
  unproved_.push_back({.socket = Descriptor(fd),
                       .handshake = Handshake::listener(secret_, rank_, seen_),
                       .from = host_port_of(from).host,
                       .deadline = Clock::now() + kHelloTime});
  advance(std::prev(unproved_.end()));
  return true;
}

// Advances a connection without a valid hello. True when it is no longer in unproved_.
bool RankListener::advance(PendingIterator one) {
  const Handshake::State state = one->handshake.advance(one->socket.get());
  if (one->handshake.peer_has_proved()) {
    // The rank has given up its earlier attempts.
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
    refuse(one, fmt::format("it sent no complete hello in {} s", kHelloTime.count()));
    return true;
  }
  return false;
}

void RankListener::advance_unproved() {
  for (PendingIterator one = unproved_.begin(); one != unproved_.end();) advance(one++);
}

std::vector<RankListener::Arrival> RankListener::serve() {
  advance_unproved();
  for (int i = 0; i < kMaxAccepted && accept_one(); ++i) {
  }
  std::vector<Arrival> ranks;
  for (PendingIterator one = proved_.begin(); one != proved_.end();) {
    const PendingIterator current = one++;
    const Handshake::State state = current->handshake.advance(current->socket.get());
    if (state == Handshake::State::done)
      ranks.push_back({current->handshake.peer(), current->handshake.channel(), std::move(current->socket),
                       current->handshake.keys()});
    if (state != Handshake::State::running || Clock::now() >= current->deadline) proved_.erase(current);
  }
  return ranks;
}

}  // namespace lockstep::detail
