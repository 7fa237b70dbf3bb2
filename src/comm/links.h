// Links: the transport interface of MessageComm: messages between the ranks of one group. Each pair of ranks has two
// channels; the messages of one rank to another arrive in the order of their send() calls, per channel. TcpLinks and
// MpiLinks implement it.
//
// Thread safety: one thread at a time calls send(), receive() and wait(); close() and broken_links() may be called from
// any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// Thrown: the connection to a peer is closed, because the peer has ended or closed its links. peer is -1 when this rank
// itself has closed its links.
struct LinkBroken {
  int peer = -1;
  std::string what;
};

// Thrown: the deadline has passed while this rank waited for `peer`; -1: unknown.
struct LinkTimeout {
  int peer = -1;
};

class Links {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `agreement` carries what each rank requests, with small payloads; `data` carries large payloads.
  enum class Channel : uint8_t { agreement, data };

  virtual ~Links() = default;

  // Start a message and return its id, which must be passed to wait() exactly once. The memory belongs to the transport
  // until wait() has returned. A message may be shorter than the memory of its receiver. `tag` is below tag_limit(), or
  // 0. Throw LinkBroken.
  virtual int send(Channel channel, int to, const void* data, size_t bytes, uint64_t tag = 0) = 0;
  virtual int receive(Channel channel, int from, void* data, size_t bytes) = 0;

  // The length and tag of a received message; both are 0 where tag_limit() is 0.
  struct Arrival {
    size_t bytes = 0;
    uint64_t tag = 0;
  };

  // Returns when the message has been sent or received. Throws LinkTimeout and LinkBroken: the links can then no longer
  // be used, and the memory of messages is free only after close().
  virtual Arrival wait(int message, Time deadline) = 0;

  // The peers whose connections are known to be closed. A wait() for such a peer throws.
  virtual std::vector<LinkBroken> broken_links() = 0;

  // Makes wait() and all later calls of this rank throw LinkBroken. The other ranks still receive what was sent before;
  // a wait() of theirs for anything later throws LinkBroken. When close() has returned and no other call is running,
  // the transport no longer accesses the memory of messages. The destructor has the same effect on the other ranks.
  virtual void close() noexcept = 0;

  // Tells the transport that all ranks have connected. Until then the transport ignores that the group has failed:
  // another rank may already have connected to all and failed, while its earlier messages are still in flight.
  virtual void mark_all_connected() noexcept {}

  // The links of a subgroup, called by all of its members. `ranks` are the members, and `rank` is the index of this
  // rank in them. `prefix` is a key prefix that is the same for all members and was never used before. Throws
  // LinkTimeout and LinkBroken.
  virtual std::unique_ptr<Links> split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                                       Time deadline) = 0;

  // How many bytes to put into the first message where two messages are faster than one of `bytes` bytes; at least 32.
  // Returns `bytes` where one message is faster.
  virtual size_t first_message_bytes(size_t bytes) const { return bytes; }

  // Messages carry a tag below this limit, and wait() reports their length and tag. 0: the transport has no tags, and
  // wait() reports neither.
  virtual uint64_t tag_limit() const { return 0; }

  static constexpr size_t kMaxMessageBytes = size_t{1} << 28;
};

}  // namespace lockstep
