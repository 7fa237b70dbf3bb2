// Segment: memory that the ranks of a group on one host share, made by rank 0. It has no name in any file system: it is
// an anonymous file (memfd), which rank 0 sends to the other ranks through a Unix socket in the abstract namespace. The
// kernel frees both when the last process that holds them ends, so a kill at any moment leaves nothing behind. The size
// of /dev/shm does not matter. Each object is used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

// An open file, closed by the destructor.
class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~File();
  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

class Segment {
 public:
  // Allocates `bytes` and listens for ranks that know the key. `group` is the name in messages. Throws IoError when the
  // memory is not available or the system has no memfd or abstract sockets, Error when another process uses the key.
  Segment(const std::string& key, const std::string& group, int64_t bytes);

  const File& memory() const { return memory_; }
  int64_t bytes() const { return bytes_; }

  // Sends the memory to ranks that connect. Returns when one of them closes its connection, which it does after it
  // registered, or when the time is over.
  void serve(std::chrono::nanoseconds time);

  // All ranks have it: the key is free again.
  void close();

 private:
  void allocate(const std::string& group);
  void listen(const std::string& key, const std::string& group);
  void accept();

  const int64_t bytes_;
  File memory_, listener_;
  std::vector<File> connections_;
};

// The other end: a connection to rank 0 of a group.
class SegmentSource {
 public:
  SegmentSource(const std::string& key, const std::string& group);

  // The memory, or nothing when rank 0 does not listen yet, has ended, or does not answer within the time. Throws Error
  // when another user listens there, IoError when the system refuses.
  std::optional<File> receive(std::chrono::nanoseconds time);

  // Closes the connection: this rank registered.
  void close() { connection_ = File(); }

 private:
  bool connect();
  void check_owner() const;

  const std::string name_, group_;
  File connection_;
};

// `lockstep-USER-HASH`: the abstract socket of a key, and what /proc/PID/maps shows of the memory.
std::string segment_name(const std::string& key);

// "4.2 MiB".
std::string mebibytes(double bytes);

}  // namespace lockstep::detail
