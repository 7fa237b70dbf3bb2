// TCP sockets on loopback, for tests of unauthorized clients and broken networks.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

class TestSocket {
 public:
  explicit TestSocket(int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) : fd_(fd) {}
  ~TestSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  TestSocket(TestSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TestSocket& operator=(TestSocket&&) = delete;

  int fd() const { return fd_; }

  // Listens on a port (0: any free one). Returns the port, or -1.
  int listen(int port = 0) {
    sockaddr_in address = loopback(port);
    socklen_t size = sizeof(address);
    const int yes = 1;  // connections that have just ended do not block the port
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd_, 64) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      return -1;
    return ntohs(address.sin_port);
  }
  bool connect(int port) {
    const sockaddr_in address = loopback(port);
    return ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  bool send(const std::string& bytes) {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Waits until the peer closes. Returns false on timeout.
  bool wait_closed(int timeout_ms) {
    char buffer[4096];
    pollfd waiting = {.fd = fd_, .events = POLLIN, .revents = 0};
    while (::poll(&waiting, 1, timeout_ms) > 0)
      if (::recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
    return false;
  }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  int fd_;
};

// Relays TCP connections to port `to`. cut() drops all traffic without closing a connection. Thread-safe.
class TcpRelay {
 public:
  explicit TcpRelay(int to, int port = 0) : port_(listener_.listen(port)), to_(to), thread_([this] { run(); }) {}
  ~TcpRelay() {
    ended_ = true;
    thread_.join();
  }

  int port() const { return port_; }
  void cut() { cut_ = true; }
  // All bytes relayed so far, in both directions.
  std::string recorded() const {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }

 private:
  void run() {
    std::vector<std::pair<TestSocket, TestSocket>> pairs;
    while (!ended_) {
      std::vector<pollfd> polled{{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
      for (const auto& [a, b] : pairs)
        for (int fd : {a.fd(), b.fd()}) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      // After cut() nothing is read or relayed.
      if (::poll(polled.data(), cut_ ? 0 : polled.size(), 10) <= 0) continue;
      for (size_t i = 1; i < polled.size(); ++i) {
        char buffer[65536];
        if (!polled[i].revents) continue;
        const ssize_t count = ::recv(polled[i].fd, buffer, sizeof(buffer), 0);
        const auto& [a, b] = pairs[(i - 1) / 2];
        const int other = polled[i].fd == a.fd() ? b.fd() : a.fd();
        if (count > 0) {
          const std::lock_guard lock(mutex_);
          recorded_.append(buffer, static_cast<size_t>(count));
        }
        if (count <= 0)
          ::shutdown(other, SHUT_RDWR);
        else
          (void)!::send(other, buffer, static_cast<size_t>(count), MSG_NOSIGNAL);
      }
      if (polled[0].revents) {
        TestSocket client(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC)), server;
        if (server.connect(to_)) pairs.emplace_back(std::move(client), std::move(server));
      }
    }
  }

  mutable std::mutex mutex_;
  std::string recorded_;
  TestSocket listener_;
  const int port_;
  const int to_;
  std::atomic<bool> cut_{false}, ended_{false};
  std::thread thread_;
};

}  // namespace lockstep
