#include "cluster/join_events.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/file.h"
#include "base/os/environment.h"
#include "cluster/token.h"

namespace lockstep {
namespace {

constexpr const char *kJoining = "joining", *kJoined = "joined";

// Returns false if the name does not fit a socket address.
bool set_address(const std::string& name, sockaddr_un& address, socklen_t& size) {
  address = {};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading 0 selects the abstract namespace
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return true;
}

bool parse(const char* text, JoinEvent& event) {
  std::array<char, 16> word = {};
  if (std::sscanf(text, "%15s %d", word.data(), &event.process) != 2) return false;
  event.joined = std::string_view(word.data()) == kJoined;
  return event.joined || std::string_view(word.data()) == kJoining;
}

}  // namespace

void notify_launcher(const JoinEvent& event) {
  const std::optional<std::string> name = environment_variable(kLauncherVariable);
  sockaddr_un address;
  socklen_t size = 0;
  if (!name || !set_address(*name, address, size)) return;
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  // The socket's queue is short: do not block on a launcher that does not read.
  const timeval timeout{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  const std::string text = fmt::format("{} {}", event.joined ? kJoined : kJoining, event.process);
  [[maybe_unused]] const ssize_t sent =
      ::sendto(socket.get(), text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
}

JoinEventReceiver::JoinEventReceiver() : name_(fmt::format("lockstep-launch-{}", make_token().substr(0, 32))) {
  sockaddr_un address;
  socklen_t size = 0;
  set_address(name_, address, size);
  socket_ = Descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0 ||
      ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    throw_io_error("listen on", "a Unix socket for the processes of the job", errno);
}

std::vector<JoinEvent> JoinEventReceiver::receive() {
  std::vector<JoinEvent> out;
  while (true) {
    std::array<char, 64> text = {};
    iovec data{text.data(), text.size() - 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> space = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    if (::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) {
      if (errno == EINTR) continue;
      return out;
    }
    const cmsghdr* const head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender = {};
    std::memcpy(&sender, CMSG_DATA(head), sizeof sender);
    if (JoinEvent event; sender.uid == ::geteuid() && parse(text.data(), event)) out.push_back(event);
  }
}

}  // namespace lockstep
