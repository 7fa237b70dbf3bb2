#include "comm/tcp/tcp_links.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "comm/tcp/connect.h"
#include "lockstep/error.h"

namespace lockstep {

namespace {

using detail::RecordCipher;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr int kChannels = 2;
constexpr size_t kAhead = size_t{16} << 10;
constexpr size_t kSealedHeader = 16 + RecordCipher::kTagBytes;
constexpr size_t kSealedRecord = RecordCipher::kMaxRecordBytes + RecordCipher::kTagBytes;
constexpr nanoseconds kMaxPollTime = std::chrono::minutes(1);
constexpr const char* kClosedByPeer = "it closed the connection";
constexpr const char* kChanged =
    "its data was changed, dropped or repeated on the way (the authentication failed); check the network between the "
    "hosts";

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

TcpLinks::TcpLinks(const Settings& settings, int rank, int size, const std::string& prefix, Time deadline)
    : settings_(settings),
      rank_(rank),
      size_(size),
      streams_(static_cast<size_t>(kChannels * size)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_) throw CommError(fmt::format("eventfd: {}", std::strerror(errno)));
  detail::RankConnections connections = detail::connect_ranks({.store = settings.store,
                                                               .prefix = prefix,
                                                               .rank = rank,
                                                               .size = size,
                                                               .channels = kChannels,
                                                               .security = settings.security,
                                                               .cipher = settings.cipher,
                                                               .address = settings.here.address,
                                                               .address_length = settings.here.length,
                                                               .ports = settings.here.ports,
                                                               .deadline = deadline});
  for (const Channel channel : {Channel::agreement, Channel::data})
    for (int peer = 0; peer < size; ++peer) {
      Stream& one = stream(channel, peer);
      one.peer = peer;
      if (peer != rank)
        open_stream(one, std::move(connections.by_channel[static_cast<size_t>(channel)][static_cast<size_t>(peer)]),
                    connections.cipher);
    }
}

void TcpLinks::open_stream(Stream& stream, detail::RankConnection connection, detail::Cipher cipher) {
  stream.socket = std::move(connection.socket);
  const int yes = 1;
  ::setsockopt(stream.socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  stream.ahead_room = kAhead;
  if (settings_.security != LinkSecurity::plain) {
    stream.protection = std::make_unique<Protection>(settings_.security, cipher, connection.keys);
    stream.protection->sealed = std::make_unique_for_overwrite<std::byte[]>(kSealedHeader + kSealedRecord);
    stream.ahead_room = 2 * kSealedRecord;
  }
  stream.ahead = std::make_unique_for_overwrite<std::byte[]>(stream.ahead_room);
}

// Closing a socket with unread bytes resets the connection, and bytes that the peer has not received yet are lost. So
// the bytes that have arrived are read first.
TcpLinks::~TcpLinks() {
  close();
  std::vector<std::byte> unread(size_t{64} << 10);
  constexpr int kMaxReads = 64;
  for (const Stream& one : streams_)
    for (int i = 0; i < kMaxReads && one.socket; ++i)
      if (::recv(one.socket.get(), unread.data(), unread.size(), MSG_DONTWAIT) <= 0) break;
}

TcpLinks::Stream& TcpLinks::stream(Channel channel, int peer) {
  return streams_[static_cast<size_t>(channel) * static_cast<size_t>(size_) + static_cast<size_t>(peer)];
}

std::unique_ptr<Links> TcpLinks::split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                                       Time deadline) {
  return std::make_unique<TcpLinks>(settings_, rank, static_cast<int>(ranks.size()), prefix, deadline);
}

int TcpLinks::begin(Stream& stream, bool sends) {
  if (closed_.load()) throw LinkBroken{-1, "closed"};
  if (free_ < 0) {
    free_ = static_cast<int>(messages_.size());
    messages_.emplace_back();
  }
  const int number = free_;
  free_ = message(number).next;
  Message& one = message(number);
  one = {};
  one.stream = static_cast<int>(&stream - streams_.data());
  one.sends = sends;
  Queue& queue = sends ? stream.sends : stream.receives;
  (queue.first < 0 ? queue.first : message(queue.last).next) = number;
  queue.last = number;
  return number;
}

// Marks the first message of the queue as complete.
void TcpLinks::finish(Queue& queue) {
  Message& one = message(queue.first);
  one.complete = true;
  queue.first = std::exchange(one.next, -1);
}

int TcpLinks::send(Channel channel, int to, const void* data, size_t bytes, uint64_t tag) {
  Stream& there = stream(channel, to);
  const int number = begin(there, true);
  Message& one = message(number);
  one.header = {bytes, tag};
  one.data = static_cast<std::byte*>(const_cast<void*>(data));  // not written to
  if (there.sends.first == number) write(there);
  return number;
}

int TcpLinks::receive(Channel channel, int from, void* data, size_t bytes) {
  const int number = begin(stream(channel, from), false);
  Message& one = message(number);
  one.data = static_cast<std::byte*>(data);
  one.room = bytes;
  return number;
}

ssize_t TcpLinks::write_plain(const Stream& stream, Message& one) {
  std::array<iovec, 2> parts;
  size_t count = 0;
  if (one.done < sizeof one.header)
    parts[count++] = {reinterpret_cast<std::byte*>(&one.header) + one.done, sizeof one.header - one.done};
  const size_t sent = one.done - std::min(one.done, sizeof one.header);
  if (sent < one.header.bytes) parts[count++] = {one.data + sent, one.header.bytes - sent};
  msghdr text = {};
  text.msg_iov = parts.data();
  text.msg_iovlen = count;
  const ssize_t written = ::sendmsg(stream.socket.get(), &text, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written > 0) one.done += static_cast<size_t>(written);
  return written;
}

// Bytes count as done when they are sealed. The message is complete when all sealed bytes are written.
ssize_t TcpLinks::write_sealed(Stream& stream, Message& one) {
  Protection& out = *stream.protection;
  if (out.sealed_begin == out.sealed_end) {
    out.sealed_begin = out.sealed_end = 0;
    const auto seal = [&](const std::byte* data, size_t bytes) {
      out.sealer.seal(data, bytes, out.sealed.get() + out.sealed_end);
      out.sealed_end += bytes + RecordCipher::kTagBytes;
      one.done += bytes;
    };
    if (one.done == 0) seal(reinterpret_cast<const std::byte*>(&one.header), sizeof one.header);
    const size_t sealed = one.done - sizeof one.header;
    if (const size_t left = one.header.bytes - sealed; left > 0)
      seal(one.data + sealed, std::min(left, RecordCipher::kMaxRecordBytes));
  }
  const ssize_t written = ::send(stream.socket.get(), out.sealed.get() + out.sealed_begin,
                                 out.sealed_end - out.sealed_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written > 0) out.sealed_begin += static_cast<size_t>(written);
  return written;
}

// Writes as many messages as the connection accepts now.
void TcpLinks::write(Stream& stream) {
  while (stream.sends.first >= 0 && stream.write_error.empty()) {
    Message& one = message(stream.sends.first);
    const Protection* const protection = stream.protection.get();
    const ssize_t written = protection ? write_sealed(stream, one) : write_plain(stream, one);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && would_block(errno)) return;
    if (written < 0) {
      stream.write_error = errno == EPIPE ? kClosedByPeer : std::strerror(errno);
      return;
    }
    const bool all_written = !protection || protection->sealed_begin == protection->sealed_end;
    if (all_written && one.done == sizeof one.header + one.header.bytes) finish(stream.sends);
  }
}

// False when no bytes are available now. Sets read_error when none will follow.
bool TcpLinks::receive_into(Stream& stream, std::byte* data, size_t room, size_t& count) {
  while (true) {
    const ssize_t got = ::recv(stream.socket.get(), data, room, MSG_DONTWAIT);
    if (got > 0) {
      count += static_cast<size_t>(got);
      return true;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) return false;
    stream.read_error = got == 0 ? kClosedByPeer : std::strerror(errno);
    return false;
  }
}

bool TcpLinks::read_ahead(Stream& stream) {
  if (stream.ahead_begin == stream.ahead_end) stream.ahead_begin = stream.ahead_end = 0;
  if (stream.ahead_begin > 0) {
    std::memmove(stream.ahead.get(), stream.ahead.get() + stream.ahead_begin, stream.ahead_end - stream.ahead_begin);
    stream.ahead_end -= std::exchange(stream.ahead_begin, 0);
  }
  return receive_into(stream, stream.ahead.get() + stream.ahead_end, stream.ahead_room - stream.ahead_end,
                      stream.ahead_end);
}

bool TcpLinks::read_header(Stream& stream, Message& one) {
  while (stream.ahead_end - stream.ahead_begin < sizeof one.header)
    if (!read_ahead(stream)) return false;
  std::memcpy(&one.header, stream.ahead.get() + stream.ahead_begin, sizeof one.header);
  stream.ahead_begin += sizeof one.header;
  one.done = sizeof one.header;
  return check_room(stream, one);
}

bool TcpLinks::check_room(Stream& stream, const Message& one) {
  if (one.header.bytes <= one.room) return true;
  stream.read_error = fmt::format("it sent {} bytes where {} were expected", one.header.bytes, one.room);
  return false;
}

bool TcpLinks::read_bytes(Stream& stream, Message& one) {
  const size_t all = sizeof one.header + one.header.bytes;
  while (one.done < all) {
    const size_t left = all - one.done, there = std::min(left, stream.ahead_end - stream.ahead_begin);
    std::byte* const to = one.data + (one.done - sizeof one.header);
    if (there > 0) {
      std::memcpy(to, stream.ahead.get() + stream.ahead_begin, there);
      stream.ahead_begin += there;
      one.done += there;
    } else if (left >= kAhead) {
      if (!receive_into(stream, to, left, one.done)) return false;
    } else if (!read_ahead(stream)) {
      return false;
    }
  }
  return true;
}

// True when the message is complete. The header is used only once it has been authenticated.
bool TcpLinks::read_sealed(Stream& stream, Message& one) {
  while (one.done < sizeof one.header + one.header.bytes) {
    const bool is_header = one.done == 0;
    const size_t received = one.done - (is_header ? 0 : sizeof one.header);
    const size_t bytes =
        is_header ? sizeof one.header : std::min(one.header.bytes - received, RecordCipher::kMaxRecordBytes);
    while (stream.ahead_end - stream.ahead_begin < bytes + RecordCipher::kTagBytes)
      if (!read_ahead(stream)) return false;
    Header header;
    std::byte* const to = is_header ? reinterpret_cast<std::byte*>(&header) : one.data + received;
    if (!stream.protection->opener.open(stream.ahead.get() + stream.ahead_begin, bytes, to)) {
      stream.read_error = kChanged;
      return false;
    }
    stream.ahead_begin += bytes + RecordCipher::kTagBytes;
    one.done += bytes;
    if (!is_header) continue;
    one.header = header;
    if (!check_room(stream, one)) return false;
  }
  return true;
}

// Reads the available bytes of the expected messages, and at most ahead_room bytes beyond them.
void TcpLinks::read(Stream& stream) {
  while (stream.receives.first >= 0 && stream.read_error.empty()) {
    Message& one = message(stream.receives.first);
    if (stream.protection) {
      if (!read_sealed(stream, one)) return;
    } else {
      if (one.done == 0 && !read_header(stream, one)) return;
      if (!read_bytes(stream, one)) return;
    }
    finish(stream.receives);
  }
}

void TcpLinks::throw_if_broken(const Message& one) {
  if (closed_.load()) throw LinkBroken{-1, "closed"};
  const Stream& there = streams_[static_cast<size_t>(one.stream)];
  const std::string& error = one.sends ? there.write_error : there.read_error;
  if (!error.empty()) throw LinkBroken{there.peer, error};
}

void TcpLinks::poll_once(int peer, Time deadline) {
  polled_.clear();
  polled_streams_.clear();
  for (Stream& one : streams_) {
    const bool reads = one.receives.first >= 0 && one.read_error.empty();
    const bool writes = one.sends.first >= 0 && one.write_error.empty();
    if (!reads && !writes) continue;
    const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT | POLLRDHUP : 0);
    polled_.push_back({.fd = one.socket.get(), .events = static_cast<short>(events), .revents = 0});
    polled_streams_.push_back(&one);
  }
  polled_.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
  const nanoseconds left = deadline - std::min(deadline, Clock::now());
  if (left <= nanoseconds::zero()) throw LinkTimeout{peer};
  const auto time = std::chrono::ceil<milliseconds>(std::min(left, kMaxPollTime));
  if (::poll(polled_.data(), polled_.size(), static_cast<int>(time.count())) <= 0) return;
  for (size_t i = 0; i < polled_streams_.size(); ++i) {
    Stream& one = *polled_streams_[i];
    const int ready = polled_[i].revents;
    if (ready == 0) continue;
    read(one);
    write(one);
    // A peer that has closed its end receives nothing more, although the connection may still accept some bytes.
    if ((ready & (POLLRDHUP | POLLHUP | POLLERR)) != 0 && one.sends.first >= 0 && one.write_error.empty())
      one.write_error = kClosedByPeer;
  }
}

Links::Arrival TcpLinks::wait(int number, Time deadline) {
  Stream& there = streams_[static_cast<size_t>(message(number).stream)];
  if (!message(number).complete) message(number).sends ? write(there) : read(there);
  while (!message(number).complete) {
    throw_if_broken(message(number));
    poll_once(there.peer, deadline);
  }
  Message& one = message(number);
  one.next = free_;
  free_ = number;
  return {one.header.bytes, one.header.tag};
}

std::vector<LinkBroken> TcpLinks::broken_links() {
  if (closed_.load()) return {{-1, "closed"}};
  std::vector<LinkBroken> found;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    // A peer that has ended has closed all its connections, so checking one channel is enough.
    std::byte next{};
    const ssize_t count = ::recv(stream(Channel::agreement, peer).socket.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count == 0) found.push_back({peer, kClosedByPeer});
    if (count < 0 && errno != EINTR && !would_block(errno)) found.push_back({peer, std::strerror(errno)});
  }
  return found;
}

// The other ranks receive everything sent before, and then the end of the stream.
void TcpLinks::close() noexcept {
  if (closed_.exchange(true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t count = ::write(wake_.get(), &one, sizeof one);
  for (const Stream& each : streams_)
    if (each.socket) ::shutdown(each.socket.get(), SHUT_WR);
}

}  // namespace lockstep
