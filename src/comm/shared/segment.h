// Segment: the shared memory of a group on one host, created by rank 0.
//
// It is an anonymous file (memfd), which rank 0 sends to the other ranks through a Unix socket in the abstract
// namespace. Neither has a name in a file system. The kernel frees both when the last process that holds them ends, so
// nothing is left behind when processes are killed. The size of /dev/shm does not matter.
//
// Thread safety: each object is used by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os/descriptor.h"

namespace lockstep::detail {

class Segment {
 public:
  // Allocates `bytes` and listens for ranks that know the key. `group` is the name of the group in messages. Throws
  // IoError when there is not enough memory or the system has no memfd or abstract sockets, and Error when another
  // process uses the key.
  Segment(const std::string& key, const std::string& group, int64_t bytes);

  const Descriptor& memory() const { return memory_; }
  int64_t bytes() const { return bytes_; }

  // Sends the memory to ranks that connect. Returns after `time`, or earlier when a rank connects or closes its
  // connection, which a rank does after it has registered.
  void serve(std::chrono::nanoseconds time);

  // Stops listening, which frees the key, and closes the memory file. Called when all ranks have joined.
  void close();

 private:
  void allocate(const std::string& group);
  void listen(const std::string& key, const std::string& group);
  void accept();

  const int64_t bytes_;
  Descriptor memory_, listener_;
  std::vector<Descriptor> connections_;
};

// Receives the segment from rank 0 of a group.
class SegmentReceiver {
 public:
  SegmentReceiver(const std::string& key, const std::string& group);

  // Returns the memory; nullopt when rank 0 is not listening yet, has ended, or does not answer within `time`. Throws
  // Error when a process of another user listens there, and IoError when the system call fails.
  std::optional<Descriptor> receive(std::chrono::nanoseconds time);

  // Closes the connection, which tells rank 0 that this rank has registered.
  void close() { connection_.close(); }

 private:
  bool connect();
  void check_owner() const;

  const std::string name_, group_;
  Descriptor connection_;
};

// `lockstep-UID-HASH`: the name of the abstract socket for a key, and of the memory in /proc/PID/maps.
std::string segment_name(const std::string& key);

// `4.2 MiB`.
std::string mebibytes(double bytes);

}  // namespace lockstep::detail
