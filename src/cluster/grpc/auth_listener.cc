#include "cluster/grpc/auth_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/start_thread.h"
#include "cluster/address.h"
#include "cluster/grpc/connect_pass.h"
#include "cluster/grpc/crowding.h"
#include "cluster/port_owner.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxPending = 256;     // connections that have not authenticated
constexpr size_t kMaxHandshakes = 512;  // connections that have, and from which no call has arrived yet
constexpr size_t kMaxBytes = 1024;      // of a request
constexpr std::chrono::seconds kMaxTime(10);
constexpr int kAcceptsPerRound = 64;
constexpr size_t kMaxLogged = 1000;  // addresses
constexpr std::chrono::milliseconds kNoDescriptors(10);

std::string address_of(const sockaddr_storage& address, socklen_t size, int& port) {
  char text[NI_MAXHOST], number_of_port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof(text), number_of_port,
                    sizeof(number_of_port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  port = std::atoi(number_of_port);
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 peer of an IPv6 socket
  const std::string_view number = text;
  return std::string(number.starts_with(kMapped) ? number.substr(kMapped.size()) : number);
}

int bound_port(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void set_option(int fd, int what, int value) { ::setsockopt(fd, IPPROTO_TCP, what, &value, sizeof(value)); }

}  // namespace

// The loop of the listener's thread.
class AuthListener::AcceptLoop {
 public:
  AcceptLoop(AuthListener& listener, Admit admit)
      : options_(listener.options_),
        listeners_(listener.listeners_),
        wake_(listener.wake_.get()),
        handshakes_(listener.handshakes_),
        admit_(std::move(admit)),
        gate_(options_.security) {}

  void run() {
    std::vector<pollfd> polled;
    while (true) {
      polled.assign(1, {.fd = wake_, .events = POLLIN, .revents = 0});
      for (const Descriptor& each : listeners_) polled.push_back({.fd = each.get(), .events = POLLIN, .revents = 0});
      for (const PendingConnection& connection : pending_)
        polled.push_back({.fd = connection.socket.get(), .events = POLLIN, .revents = 0});
      ::poll(polled.data(), polled.size(), milliseconds_left());
      if (polled[0].revents) return;
      const size_t first = 1 + listeners_.size();
      std::vector<PendingConnection> waiting = std::exchange(pending_, {});
      for (size_t i = 0; i < waiting.size(); ++i)
        if (!polled[first + i].revents || !receive(waiting[i])) pending_.push_back(std::move(waiting[i]));
      waiting.clear();  // closes the refused ones
      expire();
      for (size_t i = 0; i < listeners_.size(); ++i)
        if (polled[1 + i].revents) accept_some(listeners_[i].get());
    }
  }

 private:
  struct PendingConnection {
    Descriptor socket;
    int listener;
    std::string address;
    int port;
    Clock::time_point deadline;
    std::string bytes = {};
  };

  int milliseconds_left() const {
    if (pending_.empty()) return -1;
    const auto left = pending_.front().deadline - Clock::now();  // the oldest first
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Clock::duration(0))).count());
  }

  void accept_some(int listener) {
    for (int i = 0; i < kAcceptsPerRound; ++i) {
      sockaddr_storage address = {};
      socklen_t size = sizeof(address);
      Descriptor socket(
          ::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) make_room();
        return;
      }
      set_option(socket.get(), TCP_NODELAY, 1);
      if (options_.user_timeout_ms > 0) set_option(socket.get(), TCP_USER_TIMEOUT, options_.user_timeout_ms);
      int port = 0;
      std::string from = address_of(address, size, port);
      PendingConnection connection{std::move(socket), listener, std::move(from), port, Clock::now() + kMaxTime};
      // The request usually arrives with the connection.
      if (receive(connection)) continue;
      pending_.push_back(std::move(connection));
      if (pending_.size() > kMaxPending) evict();
    }
  }

  // The process has run out of file descriptors.
  void make_room() {
    if (!pending_.empty()) return evict();
    pollfd waiting = {.fd = wake_, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, static_cast<int>(kNoDescriptors.count()));
  }

  // Reads available bytes. Returns whether the connection was authenticated or closed.
  bool receive(PendingConnection& connection) {
    char buffer[kMaxBytes];
    const ssize_t count = ::recv(connection.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      // A probe of the port sends nothing and is not logged.
      if (!connection.bytes.empty())
        log(connection.address, "it closed the connection before it presented this job's token");
      return true;
    }
    connection.bytes.append(buffer, static_cast<size_t>(count));
    constexpr std::string_view kEnd = "\r\n\r\n", kBegin = "CONNECT lockstep/";
    const size_t end = connection.bytes.find(kEnd);
    const size_t compared = std::min(kBegin.size(), connection.bytes.size());
    const bool is_connect = std::string_view(connection.bytes).substr(0, compared) == kBegin.substr(0, compared);
    if (is_connect && end == connection.bytes.npos && connection.bytes.size() < kMaxBytes) return false;
    // A client sends nothing more before it receives the answer.
    const bool complete = end != connection.bytes.npos && end + kEnd.size() == connection.bytes.size();
    const int status = complete ? gate_.judge(connection.bytes) : connect_status::kMalformed;
    const std::string answer = gate_.answer(status);
    // Added before the client can send more.
    if (status == connect_status::kAdmitted && options_.security.tls.any()) limit_handshakes(connection);
    (void)!::send(connection.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (status == connect_status::kAdmitted) admit_(connection.listener, connection.socket.release());
    if (status == connect_status::kAdmitted || status == connect_status::kChallenge) return true;
    log(connection.address, status == connect_status::kWrongToken ? "its token is missing or wrong"
                            : status == connect_status::kOtherSecurity
                                ? "its TLS settings differ from those of the coordinator"
                                : "its first bytes are not a lockstep connection");
    return true;
  }

  void expire() {
    const auto now = Clock::now();
    std::erase_if(pending_, [&](const PendingConnection& connection) {
      if (connection.deadline > now) return false;
      log(connection.address, fmt::format("it did not present this job's token within {} s", kMaxTime.count()));
      return true;
    });
  }

  // Closes the oldest connection of the address with the most pending ones, so that no address can lock out others.
  void evict() {
    const auto [at, most] = find_crowding(pending_);
    const auto found = pending_.begin() + static_cast<std::ptrdiff_t>(at);
    log(found->address, fmt::format("{} of its connections have not presented this job's token, {} in "
                                    "total; at most {} are allowed",
                                    most, pending_.size(), kMaxPending));
    pending_.erase(found);
  }

  void limit_handshakes(const PendingConnection& connection) {
    std::string ended;
    if (const size_t most = handshakes_.add(connection.socket.get(), connection.address, connection.port, ended))
      log(ended, fmt::format("{} of its connections have not finished their TLS handshake; at most {} of all addresses "
                             "are allowed",
                             most, kMaxHandshakes));
  }

  void log(const std::string& address, const std::string& why) {
    if (logged_.size() >= kMaxLogged || !logged_.insert(address).second) return;
    options_.log(
        fmt::format("the coordinator refused a connection from {}: {} (logged once per address)", address, why));
  }

  const AuthListenerOptions& options_;
  const std::vector<Descriptor>& listeners_;
  const int wake_;
  TlsHandshakes& handshakes_;
  const Admit admit_;
  ConnectGate gate_;
  std::vector<PendingConnection> pending_;  // the oldest first
  std::set<std::string> logged_;
};

AuthListener::AuthListener(AuthListenerOptions options)
    : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), handshakes_(kMaxHandshakes) {
  std::string why = !wake_ ? std::strerror(errno) : "";
  detail::Address place;
  for (size_t i = 0; i < options_.ips.size() && why.empty(); ++i) {
    place = {options_.ips[i], options_.port};
    Descriptor listener = detail::listen_at(place.host, place.port, why);
    if (!listener) break;
    port_ = bound_port(listener.get());
    listeners_.push_back(std::move(listener));
  }
  if (why.empty()) return;
  const std::string owner = detail::port_owner(place.port);
  throw_error("listen on {}: {}{}; choose another port, or stop that process", to_string(place), why,
              owner.empty() ? "" : fmt::format(": {} listens there", owner));
}

void AuthListener::start(Admit admit) {
  thread_ = start_thread([loop = std::make_shared<AcceptLoop>(*this, std::move(admit))] { loop->run(); });
}

AuthListener::~AuthListener() { stop(); }

void AuthListener::stop() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
}

}  // namespace lockstep
