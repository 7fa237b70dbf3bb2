// TcpLinks: Links over TCP, with one connection to each rank for each channel. Thread safety: as Links.
//
// There is no background thread: a thread that waits reads from and writes to all connections. A message is a header
// followed by its bytes. The memory of a message is accessed only inside send() and wait().
//
// On a connection that is signed or encrypted, the header is one record (record_cipher.h) and the bytes are further ones,
// of kMaxRecordBytes each and a shorter last one. So the length of every record follows from bytes that have been
// authenticated. While the kernel sends one record, the next one is sealed.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/os/descriptor.h"
#include "comm/key_store.h"
#include "comm/links.h"
#include "comm/tcp/connect.h"
#include "comm/tcp/local_address.h"
#include "comm/tcp/record_cipher.h"

namespace lockstep {

class TcpLinks final : public Links {
 public:
  // What a rank has in common with the groups that are split off.
  struct Settings {
    detail::LocalAddress here;
    KeyStore& store;
    LinkSecurity security = LinkSecurity::plain;
    detail::Cipher cipher = detail::fastest_cipher();
  };

  // Connects to all other ranks, whose addresses are in the store. Throws LinkTimeout, LinkBroken and CommError.
  TcpLinks(const Settings& settings, int rank, int size, const std::string& prefix, Time deadline);
  ~TcpLinks() override;

  int send(Channel channel, int to, const void* data, size_t bytes, uint64_t tag) override;
  int receive(Channel channel, int from, void* data, size_t bytes) override;
  Arrival wait(int message, Time deadline) override;
  std::vector<LinkBroken> broken_links() override;
  void close() noexcept override;
  std::unique_ptr<Links> split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                               Time deadline) override;
  uint64_t tag_limit() const override { return uint64_t{1} << 63; }

 private:
  struct Header {
    uint64_t bytes = 0, tag = 0;
  };
  struct Message {
    Header header;
    std::byte* data = nullptr;
    size_t room = 0;  // receive: bytes of memory at `data`
    size_t done = 0;  // bytes written or read so far, including the header
    int stream = -1;
    int next = -1;  // in the queue of its stream, or in the free list
    bool sends = false, complete = false;
  };
  // The messages in one direction of a stream, in order.
  struct Queue {
    int first = -1, last = -1;
  };
  // Protects a connection that is not plain.
  struct Protection {
    Protection(LinkSecurity security, detail::Cipher cipher, const detail::LinkKeys& keys)
        : sealer(detail::RecordCipher::Use::seal, security, cipher, keys.send),
          opener(detail::RecordCipher::Use::open, security, cipher, keys.receive) {}

    detail::RecordCipher sealer, opener;
    // Sealed records of the first message in `sends` that are still to be written.
    std::unique_ptr<std::byte[]> sealed;
    size_t sealed_begin = 0, sealed_end = 0;
  };
  struct Stream {
    Descriptor socket;
    int peer = -1;
    Queue sends, receives;
    std::string read_error, write_error;
    // Bytes that were read ahead, so that one system call can read several small messages.
    std::unique_ptr<std::byte[]> ahead;
    size_t ahead_begin = 0, ahead_end = 0, ahead_room = 0;
    std::unique_ptr<Protection> protection;  // null: plain
  };

  Message& message(int number) { return messages_[static_cast<size_t>(number)]; }
  Stream& stream(Channel channel, int peer);
  int begin(Stream& stream, bool sends);
  void finish(Queue& queue);
  void open_stream(Stream& stream, detail::RankConnection connection, detail::Cipher cipher);
  void write(Stream& stream);
  // Write once. The result is that of sendmsg().
  ssize_t write_plain(const Stream& stream, Message& one);
  ssize_t write_sealed(Stream& stream, Message& one);
  void read(Stream& stream);
  bool read_sealed(Stream& stream, Message& one);
  bool read_header(Stream& stream, Message& one);
  bool check_room(Stream& stream, const Message& one);
  bool read_bytes(Stream& stream, Message& one);
  bool read_ahead(Stream& stream);
  bool receive_into(Stream& stream, std::byte* data, size_t room, size_t& count);
  void throw_if_broken(const Message& one);
  // Waits until a stream with unfinished messages is ready, and serves those that are.
  void poll_once(int peer, Time deadline);

  const Settings settings_;
  const int rank_;
  const int size_;
  std::vector<Stream> streams_;
  std::vector<Message> messages_;
  int free_ = -1;
  std::vector<pollfd> polled_;
  std::vector<Stream*> polled_streams_;

  const Descriptor wake_;  // an eventfd that ends a poll
  std::atomic<bool> closed_{false};
};

}  // namespace lockstep
