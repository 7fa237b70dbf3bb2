#include "cluster/grpc/tls_handshakes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "cluster/grpc/crowding.h"

namespace lockstep {

namespace {

// The server ends a handshake after 10 s.
constexpr std::chrono::seconds kMaxHandshakeTime(15);

}  // namespace

size_t TlsHandshakes::add(int fd, std::string address, int port, std::string& ended) {
  const std::lock_guard lock(mutex_);
  remove_closed();
  Descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return 0;
  entries_.push_back({std::move(copy), std::move(address), port, std::chrono::steady_clock::now() + kMaxHandshakeTime});
  if (entries_.size() <= limit_) return 0;
  const auto [at, count] = find_crowding(entries_);
  ended = entries_[at].address;
  ::shutdown(entries_[at].socket.get(), SHUT_RDWR);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  return count;
}

// The server shuts a socket down before it closes its own descriptor of it.
void TlsHandshakes::remove_closed() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<pollfd> polled;
  for (const Entry& each : entries_) polled.push_back({.fd = each.socket.get(), .events = 0, .revents = 0});
  ::poll(polled.data(), polled.size(), 0);
  size_t i = 0;
  std::erase_if(entries_, [&](const Entry& each) { return polled[i++].revents != 0 || each.end <= now; });
}

void TlsHandshakes::mark_over(std::string_view address, int port) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& each) { return each.port == port && each.address == address; });
  remove_closed();
}

size_t TlsHandshakes::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace lockstep
