// Links: what a transport offers to LinkedComm: messages between the ranks of one group. Those from one rank to another
// arrive in the order in which they were sent, on each of two ways.
//
// Threads: one at a time sends, receives and waits; close() and broken() may be called from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// The way to a peer is no more: it has ended, or has closed its links. -1: closed by this rank itself.
struct LinkBroken {
  int peer = -1;
  std::string what;
};

// The deadline has passed.
struct LinkTimeout {
  int peer = -1;
};

class Links {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class Way : uint8_t { meeting, data };

  virtual ~Links() = default;

  // Begin, and return what wait() is to be given, once for each. The memory belongs to the transport until then. A
  // message may be shorter than what its receiver has room for. Throw LinkBroken.
  virtual int send(Way way, int to, const void* data, size_t bytes, uint64_t stamp = 0) = 0;
  virtual int receive(Way way, int from, void* data, size_t bytes) = 0;

  // What came: where stamps() is 0, neither is known.
  struct Arrival {
    size_t bytes = 0;
    uint64_t stamp = 0;
  };

  // Returns when that message is on its way, or has come. Throws LinkTimeout and LinkBroken; after that the links are
  // of no more use, and close() must be called before the memory is free again.
  virtual Arrival wait(int message, Time deadline) = 0;

  // The peers that are known to be gone. One who waits for such a peer is made to throw.
  virtual std::vector<LinkBroken> broken() = 0;

  // Everything under way throws LinkBroken, here at once, on the other ranks as soon as they learn of it and wait for
  // what was not sent before. When it returns, and no call is under way, the transport has let go of all memory.
  // Destroying the links has that effect on the others too.
  virtual void close() noexcept = 0;

  // All ranks have met, as this one knows. Before that, the failure of a group that others have found complete is none:
  // what they sent before it may still be on its way.
  virtual void met() noexcept {}

  // The links of some of these ranks, called by all of them, `rank` of which is this one. `prefix` is the same for all,
  // and was never used. Throws LinkTimeout, LinkBroken.
  virtual std::unique_ptr<Links> split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                                       Time deadline) = 0;

  // How much of so many bytes to send first, where two messages arrive sooner than one, at least 32; else all of them.
  virtual size_t first_part(size_t bytes) const { return bytes; }

  // A number below this travels with each message beside its bytes, and its length is told; 0: neither.
  virtual uint64_t stamps() const { return 0; }

  // The greatest message.
  static constexpr size_t kMostBytes = size_t{1} << 28;
};

}  // namespace lockstep
