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
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "cluster/address.h"
#include "cluster/port_owner.h"
#include "cluster/token.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxWaiting = 256;  // connections that have not presented the pass
constexpr size_t kMaxBytes = 1024;   // of one request
constexpr std::chrono::seconds kMaxTime(10);
constexpr int kAcceptsPerRound = 64;
constexpr size_t kMaxLogged = 1000;  // addresses
constexpr std::chrono::milliseconds kNoDescriptors(10);

std::string address_of(const sockaddr_storage& address, socklen_t size) {
  char text[NI_MAXHOST];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return "an unknown address";
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 at a socket of IPv6
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

void send_status(int fd, int status) {
  const std::string_view reason = status == connect_status::kAdmitted        ? "OK"
                                  : status == connect_status::kMalformed     ? "Bad Request"
                                  : status == connect_status::kOtherSecurity ? "Conflict"
                                                                             : "Forbidden";
  const std::string text = fmt::format("HTTP/1.0 {} {}\r\n\r\n", status, reason);
  (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

int connect_status_for(std::string_view request, std::string_view pass) {
  constexpr std::string_view kMethod = "CONNECT ", kVersion = " HTTP/1.";
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t end = line.rfind(kVersion);
  if (!line.starts_with(kMethod) || end == line.npos || end < kMethod.size()) return connect_status::kMalformed;
  const std::string_view shown = line.substr(kMethod.size(), end - kMethod.size());
  if (!shown.starts_with("lockstep/")) return connect_status::kMalformed;
  if (same_token(shown, pass)) return connect_status::kAdmitted;
  // lockstep/SECURITY/PROOF: with the right proof only the security differs.
  const auto proof = [](std::string_view text) { return text.substr(text.rfind('/') + 1); };
  return same_token(proof(shown), proof(pass)) ? connect_status::kOtherSecurity : connect_status::kWrongToken;
}

// What the thread of a gate does.
class AuthListener::AcceptLoop {
 public:
  AcceptLoop(const AuthListenerOptions& options, const std::vector<int>& listeners, int wake, Admit admit)
      : options_(options), listeners_(listeners), wake_(wake), admit_(std::move(admit)) {}
  ~AcceptLoop() {
    for (const PendingConnection& pending : pending_) ::close(pending.fd);
  }

  void run() {
    std::vector<pollfd> polled;
    while (true) {
      polled.assign(1, {.fd = wake_, .events = POLLIN, .revents = 0});
      for (const int fd : listeners_) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      for (const PendingConnection& pending : pending_)
        polled.push_back({.fd = pending.fd, .events = POLLIN, .revents = 0});
      ::poll(polled.data(), polled.size(), milliseconds_left());
      if (polled[0].revents) return;
      const size_t first = 1 + listeners_.size();
      std::vector<PendingConnection> waiting = std::exchange(pending_, {});
      for (size_t i = 0; i < waiting.size(); ++i)
        if (!polled[first + i].revents || !receive(waiting[i])) pending_.push_back(std::move(waiting[i]));
      expire();
      for (size_t i = 0; i < listeners_.size(); ++i)
        if (polled[1 + i].revents) accept_some(listeners_[i]);
    }
  }

 private:
  struct PendingConnection {
    int fd;
    int listener;
    std::string address;
    Clock::time_point deadline;
    std::string bytes = {};
  };

  int milliseconds_left() const {
    if (pending_.empty()) return -1;
    const auto left = pending_.front().deadline - Clock::now();  // they are in the order of arrival
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Clock::duration(0))).count());
  }

  void accept_some(int listener) {
    for (int i = 0; i < kAcceptsPerRound; ++i) {
      sockaddr_storage address = {};
      socklen_t size = sizeof(address);
      const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) make_room();
        return;
      }
      set_option(fd, TCP_NODELAY, 1);
      if (options_.user_timeout_ms > 0) set_option(fd, TCP_USER_TIMEOUT, options_.user_timeout_ms);
      PendingConnection pending{fd, listener, address_of(address, size), Clock::now() + kMaxTime};
      // The request of a process of the job has usually arrived with the connection.
      if (receive(pending)) continue;
      pending_.push_back(std::move(pending));
      if (pending_.size() > kMaxWaiting) evict();
    }
  }

  // The process has no descriptors left.
  void make_room() {
    if (!pending_.empty()) return evict();
    pollfd waiting = {.fd = wake_, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, static_cast<int>(kNoDescriptors.count()));
  }

  // Reads what has come. Whether the pending is done with: admitted or closed.
  bool receive(PendingConnection& pending) {
    char buffer[kMaxBytes];
    const ssize_t count = ::recv(pending.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      // A probe that looks whether the port is open sends nothing.
      if (!pending.bytes.empty()) log(pending.address, "it ended before it had presented this job's token");
      return close(pending);
    }
    pending.bytes.append(buffer, static_cast<size_t>(count));
    constexpr std::string_view kEnd = "\r\n\r\n", kBegin = "CONNECT lockstep/";
    const size_t end = pending.bytes.find(kEnd);
    const size_t compared = std::min(kBegin.size(), pending.bytes.size());
    const bool speaks = std::string_view(pending.bytes).substr(0, compared) == kBegin.substr(0, compared);
    if (speaks && end == pending.bytes.npos && pending.bytes.size() < kMaxBytes) return false;
    // A client sends nothing more before it has the answer.
    const bool whole = end != pending.bytes.npos && end + kEnd.size() == pending.bytes.size();
    const int status = whole ? connect_status_for(pending.bytes, options_.pass) : connect_status::kMalformed;
    send_status(pending.fd, status);
    if (status == connect_status::kAdmitted) {
      admit_(pending.listener, pending.fd);
      return true;
    }
    log(pending.address, status == connect_status::kWrongToken      ? "it does not have this job's token"
                         : status == connect_status::kOtherSecurity ? "its TLS settings differ from this process's"
                                                                    : "it is not a process of this job");
    return close(pending);
  }

  static bool close(const PendingConnection& pending) {
    ::close(pending.fd);
    return true;
  }

  void expire() {
    const auto now = Clock::now();
    std::erase_if(pending_, [&](const PendingConnection& pending) {
      if (pending.deadline > now) return false;
      log(pending.address, fmt::format("it did not present this job's token within {} s", kMaxTime.count()));
      return close(pending);
    });
  }

  // Closes the oldest connection of the address that has the most, so that no address can keep out the others.
  void evict() {
    std::map<std::string_view, size_t> counts;
    for (const PendingConnection& pending : pending_) ++counts[pending.address];
    const auto most = std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; })->second;
    const auto found =
        std::ranges::find_if(pending_, [&](const PendingConnection& v) { return counts[v.address] == most; });
    log(found->address, fmt::format("{} of its connections wait without having presented this job's token, and {} in "
                                    "all; at most {} may",
                                    most, pending_.size(), kMaxWaiting));
    close(*found);
    pending_.erase(found);
  }

  void log(const std::string& address, const std::string& why) {
    if (logged_.size() >= kMaxLogged || !logged_.insert(address).second) return;
    options_.log(
        fmt::format("the coordinator refused a connection from {}: {} (logged once per address)", address, why));
  }

  const AuthListenerOptions& options_;
  const std::vector<int>& listeners_;
  const int wake_;
  const Admit admit_;
  std::vector<PendingConnection> pending_;  // the oldest first
  std::set<std::string> logged_;
};

AuthListener::AuthListener(AuthListenerOptions options)
    : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  std::string why = wake_ < 0 ? std::strerror(errno) : "";
  detail::Address place;
  for (size_t i = 0; i < options_.numbers.size() && why.empty(); ++i) {
    place = {options_.numbers[i], options_.port};
    const int fd = detail::listen_at(place.host, place.port, why);
    if (fd < 0) break;
    listeners_.push_back(fd);
    port_ = bound_port(fd);
  }
  if (why.empty()) return;
  for (const int fd : listeners_) ::close(fd);
  if (wake_ >= 0) ::close(wake_);
  const std::string owner = detail::port_owner(place.port);
  throw_error("listen at {}: {}{}; choose another port, or end that process", to_string(place), why,
              owner.empty() ? "" : fmt::format(": {} listens there", owner));
}

void AuthListener::start(Admit admit) {
  thread_ = std::thread([this, admit = std::move(admit)] { AcceptLoop(options_, listeners_, wake_, admit).run(); });
}

AuthListener::~AuthListener() {
  const uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  for (const int fd : listeners_) ::close(fd);
  ::close(wake_);
}

}  // namespace lockstep
