// Socket: owns the file descriptor of a socket. Thread safety: a value, used by one thread at a time.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace lockstep::detail {

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Closes the connection with a reset: neither end keeps the port or unread bytes.
  void reset() {
    const linger no_linger{.l_onoff = 1, .l_linger = 0};
    if (fd_ >= 0) ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &no_linger, sizeof no_linger);
    close();
  }

 private:
  int fd_;
};

}  // namespace lockstep::detail
