// Plain TCP on the loopback, for strangers and broken networks.
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

  // At that port, 0: at any free one. Returns it, or -1.
  int listen(int port = 0) {
    sockaddr_in address = loopback(port);
    socklen_t size = sizeof(address);
    const int yes = 1;  // connections that have just ended are no obstacle
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
  // Waits until the other end closes. False when it does not in time.
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

// A wire between a client and a server that can be cut without either of them being told.
class Wire {
 public:
  explicit Wire(int to, int port = 0) : port_(door_.listen(port)), to_(to), thread_([this] { run(); }) {}
  ~Wire() {
    ended_ = true;
    thread_.join();
  }

  int port() const { return port_; }
  void cut() { cut_ = true; }
  // All bytes that came by so far, in both directions.
  std::string recorded() const {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }

 private:
  void run() {
    std::vector<std::pair<TestSocket, TestSocket>> pairs;
    while (!ended_) {
      std::vector<pollfd> polled{{.fd = door_.fd(), .events = POLLIN, .revents = 0}};
      for (const auto& [a, b] : pairs)
        for (int fd : {a.fd(), b.fd()}) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      // A wire that is cut says nothing, whatever comes.
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
        TestSocket near(::accept4(door_.fd(), nullptr, nullptr, SOCK_CLOEXEC)), far;
        if (far.connect(to_)) pairs.emplace_back(std::move(near), std::move(far));
      }
    }
  }

  mutable std::mutex mutex_;
  std::string recorded_;
  TestSocket door_;
  const int port_;
  const int to_;
  std::atomic<bool> cut_{false}, ended_{false};
  std::thread thread_;
};

}  // namespace lockstep
