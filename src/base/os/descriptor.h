// Descriptor: owns a file descriptor and closes it. Pipe: two of them. Values, used by one thread at a time.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep {

class Descriptor {
 public:
  Descriptor() = default;
  // Takes ownership of `fd`; negative: none.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) close(), fd_ = other.release();
    return *this;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

  // Gives up ownership.
  int release() { return std::exchange(fd_, -1); }

  // Returns false and sets errno if the system reports that an earlier write failed. No effect if there is none.
  bool close() { return fd_ < 0 || ::close(release()) == 0 || errno == EINTR; }

 private:
  int fd_ = -1;
};

struct Pipe {
  Descriptor reader, writer;
};

// Both ends are closed when a program is executed. `flags`: O_NONBLOCK or 0. Throws IoError.
Pipe make_pipe(int flags = 0);

}  // namespace lockstep
