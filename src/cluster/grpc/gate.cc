#include "cluster/grpc/gate.h"

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

constexpr size_t kMostWaiting = 256;  // connections that have not presented the pass
constexpr size_t kMostBytes = 1024;   // of one request
constexpr std::chrono::seconds kMostTime(10);
constexpr int kAcceptsPerRound = 64;
constexpr size_t kMostLogged = 1000;  // addresses
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
  const std::string_view reason = status == gate_status::kAdmitted        ? "OK"
                                  : status == gate_status::kMalformed     ? "Bad Request"
                                  : status == gate_status::kOtherSecurity ? "Conflict"
                                                                          : "Forbidden";
  const std::string text = fmt::format("HTTP/1.0 {} {}\r\n\r\n", status, reason);
  (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

int gate_answer(std::string_view request, std::string_view pass) {
  constexpr std::string_view kMethod = "CONNECT ", kVersion = " HTTP/1.";
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t end = line.rfind(kVersion);
  if (!line.starts_with(kMethod) || end == line.npos || end < kMethod.size()) return gate_status::kMalformed;
  const std::string_view shown = line.substr(kMethod.size(), end - kMethod.size());
  if (!shown.starts_with("lockstep/")) return gate_status::kMalformed;
  if (same_token(shown, pass)) return gate_status::kAdmitted;
  // lockstep/SECURITY/PROOF: with the right proof only the security differs.
  const auto proof = [](std::string_view text) { return text.substr(text.rfind('/') + 1); };
  return same_token(proof(shown), proof(pass)) ? gate_status::kOtherSecurity : gate_status::kWrongToken;
}

// What the thread of a gate does.
class Gate::Door {
 public:
  Door(const GateOptions& options, const std::vector<int>& listeners, int wake, Admit admit)
      : options_(options), listeners_(listeners), wake_(wake), admit_(std::move(admit)) {}
  ~Door() {
    for (const Visitor& visitor : visitors_) ::close(visitor.fd);
  }

  void run() {
    std::vector<pollfd> polled;
    while (true) {
      polled.assign(1, {.fd = wake_, .events = POLLIN, .revents = 0});
      for (const int fd : listeners_) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      for (const Visitor& visitor : visitors_) polled.push_back({.fd = visitor.fd, .events = POLLIN, .revents = 0});
      ::poll(polled.data(), polled.size(), milliseconds_left());
      if (polled[0].revents) return;
      const size_t first = 1 + listeners_.size();
      std::vector<Visitor> waiting = std::exchange(visitors_, {});
      for (size_t i = 0; i < waiting.size(); ++i)
        if (!polled[first + i].revents || !receive(waiting[i])) visitors_.push_back(std::move(waiting[i]));
      expire();
      for (size_t i = 0; i < listeners_.size(); ++i)
        if (polled[1 + i].revents) accept_some(listeners_[i]);
    }
  }

 private:
  struct Visitor {
    int fd;
    int listener;
    std::string address;
    Clock::time_point deadline;
    std::string bytes = {};
  };

  int milliseconds_left() const {
    if (visitors_.empty()) return -1;
    const auto left = visitors_.front().deadline - Clock::now();  // they are in the order of arrival
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
      Visitor visitor{fd, listener, address_of(address, size), Clock::now() + kMostTime};
      // The request of a process of the job has usually arrived with the connection.
      if (receive(visitor)) continue;
      visitors_.push_back(std::move(visitor));
      if (visitors_.size() > kMostWaiting) evict();
    }
  }

  // The process has no descriptors left.
  void make_room() {
    if (!visitors_.empty()) return evict();
    pollfd waiting = {.fd = wake_, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, static_cast<int>(kNoDescriptors.count()));
  }

  // Reads what has come. Whether the visitor is done with: admitted or closed.
  bool receive(Visitor& visitor) {
    char buffer[kMostBytes];
    const ssize_t count = ::recv(visitor.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      // A probe that looks whether the port is open sends nothing.
      if (!visitor.bytes.empty()) log(visitor.address, "it ended before it had presented this job's token");
      return close(visitor);
    }
    visitor.bytes.append(buffer, static_cast<size_t>(count));
    constexpr std::string_view kEnd = "\r\n\r\n", kBegin = "CONNECT lockstep/";
    const size_t end = visitor.bytes.find(kEnd);
    const size_t compared = std::min(kBegin.size(), visitor.bytes.size());
    const bool speaks = std::string_view(visitor.bytes).substr(0, compared) == kBegin.substr(0, compared);
    if (speaks && end == visitor.bytes.npos && visitor.bytes.size() < kMostBytes) return false;
    // A client sends nothing more before it has the answer.
    const bool whole = end != visitor.bytes.npos && end + kEnd.size() == visitor.bytes.size();
    const int status = whole ? gate_answer(visitor.bytes, options_.pass) : gate_status::kMalformed;
    send_status(visitor.fd, status);
    if (status == gate_status::kAdmitted) {
      admit_(visitor.listener, visitor.fd);
      return true;
    }
    log(visitor.address, status == gate_status::kWrongToken      ? "it does not have this job's token"
                         : status == gate_status::kOtherSecurity ? "its TLS settings differ from this process's"
                                                                 : "it is not a process of this job");
    return close(visitor);
  }

  static bool close(const Visitor& visitor) {
    ::close(visitor.fd);
    return true;
  }

  void expire() {
    const auto now = Clock::now();
    std::erase_if(visitors_, [&](const Visitor& visitor) {
      if (visitor.deadline > now) return false;
      log(visitor.address, fmt::format("it did not present this job's token within {} s", kMostTime.count()));
      return close(visitor);
    });
  }

  // Closes the oldest connection of the address that has the most, so that no address can keep out the others.
  void evict() {
    std::map<std::string_view, size_t> counts;
    for (const Visitor& visitor : visitors_) ++counts[visitor.address];
    const auto most = std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; })->second;
    const auto found = std::ranges::find_if(visitors_, [&](const Visitor& v) { return counts[v.address] == most; });
    log(found->address, fmt::format("{} of its connections wait without having presented this job's token, and {} in "
                                    "all; at most {} may",
                                    most, visitors_.size(), kMostWaiting));
    close(*found);
    visitors_.erase(found);
  }

  void log(const std::string& address, const std::string& why) {
    if (logged_.size() >= kMostLogged || !logged_.insert(address).second) return;
    options_.log(
        fmt::format("the coordinator refused a connection from {}: {} (logged once per address)", address, why));
  }

  const GateOptions& options_;
  const std::vector<int>& listeners_;
  const int wake_;
  const Admit admit_;
  std::vector<Visitor> visitors_;  // the oldest first
  std::set<std::string> logged_;
};

Gate::Gate(GateOptions options) : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
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

void Gate::open(Admit admit) {
  thread_ = std::thread([this, admit = std::move(admit)] { Door(options_, listeners_, wake_, admit).run(); });
}

Gate::~Gate() {
  const uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  for (const int fd : listeners_) ::close(fd);
  ::close(wake_);
}

}  // namespace lockstep
