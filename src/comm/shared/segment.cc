#include "comm/shared/segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/digest.h"
#include "base/text_bytes.h"
#include "lane/memory.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace lockstep::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

struct AbstractAddress {
  sockaddr_un address = {};
  socklen_t size = 0;

  explicit AbstractAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    LOCKSTEP_CHECK(name.size() + 1 < sizeof address.sun_path);
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // the first byte is 0: the abstract namespace
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Descriptor new_socket() { return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

std::optional<ucred> peer_of(const Descriptor& socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

int timeout_of(nanoseconds time) {
  const auto count = std::chrono::ceil<milliseconds>(time).count();
  return static_cast<int>(std::clamp<int64_t>(count, 0, 60'000));
}

// Kernels before 6.3 do not know MFD_NOEXEC_SEAL, and some later ones are configured to require it.
Descriptor new_memory(const std::string& name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor file(::memfd_create(name.c_str(), kFlags | MFD_NOEXEC_SEAL));
  if (!file && errno == EINVAL) file = Descriptor(::memfd_create(name.c_str(), kFlags));
  return file;
}

// Memory that the kernel can allocate without swapping; machine_memory() where the kernel does not report it.
double available_memory() {
  std::ifstream in("/proc/meminfo");
  auto limit = static_cast<double>(machine_memory());
  for (std::string line; std::getline(in, line);)
    if (double kibibytes = 0; std::sscanf(line.c_str(), "MemAvailable: %lf kB", &kibibytes) == 1)
      limit = std::min(limit, kibibytes * 1024);
  return limit;
}

void send_file(const Descriptor& connection, const Descriptor& file) {
  char byte = 'm';
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = file.get();
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  // Errors are ignored: the receiver may have ended meanwhile.
  [[maybe_unused]] const ssize_t sent = ::sendmsg(connection.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Returns a descriptor that is not open when the other end closed the connection.
Descriptor receive_file(const Descriptor& connection) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  if (::recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0) return Descriptor();
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
      head->cmsg_len != CMSG_LEN(sizeof(int)))
    return Descriptor();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return Descriptor(fd);
}

}  // namespace

std::string segment_name(const std::string& key) {
  return fmt::format("lockstep-{}-{}", ::geteuid(),
                     md5_hex(text_bytes(key)));
}

std::string mebibytes(double bytes) { return fmt::format("{:.3g} MiB", bytes / (1 << 20)); }

Segment::Segment(const std::string& key, const std::string& group, int64_t bytes) : bytes_(bytes) {
  memory_ = new_memory(segment_name(key));
  if (!memory_)
    throw IoError(
        fmt::format("shared memory: \"{}\" could not create an anonymous file (memfd_create): {}; use "
                    "--collectives tcp",
                    group, std::strerror(errno)));
  allocate(group);
  listen(key, group);
}

// Allocates all pages now: a page that cannot be allocated later would raise SIGBUS in the middle of a copy.
void Segment::allocate(const std::string& group) {
  const auto wanted = static_cast<double>(bytes_);
  rlimit limit = {};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  if (limit.rlim_cur < static_cast<rlim_t>(bytes_))
    throw IoError(fmt::format("shared memory: \"{}\" needs {}, but the file size limit is {}; raise `ulimit -f`", group,
                              mebibytes(wanted), mebibytes(static_cast<double>(limit.rlim_cur))));
  const double available = available_memory();
  int error = wanted > available ? ENOMEM : EINTR;
  while (error == EINTR) error = ::posix_fallocate(memory_.get(), 0, bytes_);
  if (error == ENOSPC || error == ENOMEM)
    throw IoError(
        fmt::format("shared memory: \"{}\" needs {}, but only {} of memory are available; free memory, raise the "
                    "memory limit of the container, or run fewer processes on this host",
                    group, mebibytes(wanted), mebibytes(available)));
  if (error != 0)
    throw IoError(
        fmt::format("shared memory: \"{}\" could not allocate {}: {}", group, mebibytes(wanted), std::strerror(error)));
  // Sealed, because the other processes would get SIGBUS if one of them made the file smaller.
  ::fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

void Segment::listen(const std::string& key, const std::string& group) {
  constexpr int kAttempts = 50;
  const AbstractAddress address(segment_name(key));
  listener_ = new_socket();
  int error = listener_ ? EADDRINUSE : errno;
  pid_t holder = 0;
  // A process that is being killed may hold the address a little longer.
  for (int attempt = 0; attempt < kAttempts && error == EADDRINUSE && holder == 0; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(milliseconds(10));
    error = ::bind(listener_.get(), address.get(), address.size) == 0 ? 0 : errno;
    if (error != EADDRINUSE) break;
    const Descriptor other = new_socket();
    if (other && ::connect(other.get(), address.get(), address.size) == 0)
      if (const auto peer = peer_of(other)) holder = peer->pid;
  }
  if (error == EADDRINUSE)
    throw_error("shared memory: {} is already rank 0 of a group with this key; use a different key for every run",
                holder == 0 ? "another process" : fmt::format("process {}", holder));
  if (error == 0 && ::listen(listener_.get(), SOMAXCONN) != 0) error = errno;
  if (error != 0)
    throw IoError(
        fmt::format("shared memory: \"{}\" could not listen on an abstract Unix socket: {}; use "
                    "--collectives tcp",
                    group, std::strerror(error)));
}

void Segment::accept() {
  while (true) {
    Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) return;
    if (const auto peer = peer_of(connection); !peer || peer->uid != ::geteuid()) continue;
    send_file(connection, memory_);
    connections_.push_back(std::move(connection));
  }
}

void Segment::serve(nanoseconds time) {
  std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
  for (const Descriptor& each : connections_) polled.push_back({each.get(), POLLIN, 0});
  if (::poll(polled.data(), polled.size(), timeout_of(time)) <= 0) return;
  for (size_t i = connections_.size(); i-- > 0;)
    if (polled[i + 1].revents != 0) connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
  if (polled[0].revents != 0) accept();
}

void Segment::close() {
  listener_.close();
  connections_.clear();
  memory_.close();
}

SegmentReceiver::SegmentReceiver(const std::string& key, const std::string& group)
    : name_(segment_name(key)), group_(group) {}

bool SegmentReceiver::connect() {
  const AbstractAddress address(name_);
  connection_ = new_socket();
  if (connection_ && ::connect(connection_.get(), address.get(), address.size) == 0) return true;
  const int error = errno;
  connection_.close();
  // Rank 0 does not listen yet, or its queue of connections is full.
  if (error == ECONNREFUSED || error == EAGAIN || error == EINTR) return false;
  throw IoError(fmt::format("shared memory: \"{}\" could not connect to rank 0: {}", group_, std::strerror(error)));
}

void SegmentReceiver::check_owner() const {
  const auto peer = peer_of(connection_);
  if (peer && peer->uid != ::geteuid())
    throw_error("shared memory: process {} of user {} owns the socket of \"{}\", expected user {}; use another key",
                peer->pid, peer->uid, group_, ::geteuid());
}

std::optional<Descriptor> SegmentReceiver::receive(nanoseconds time) {
  if (!connection_) {
    if (!connect()) return std::nullopt;
    check_owner();
  }
  pollfd polled = {connection_.get(), POLLIN, 0};
  if (::poll(&polled, 1, timeout_of(time)) <= 0) return std::nullopt;
  Descriptor file = receive_file(connection_);
  if (file) return file;
  connection_.close();
  return std::nullopt;
}

}  // namespace lockstep::detail
