#include "jobs/local/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/json.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The socket's address. sun_path has room for about 100 characters; a longer path goes through /proc/self/fd.
class DaemonAddress {
 public:
  explicit DaemonAddress(const StateDir& state) {
    std::string path = state.socket();
    if (path.size() >= sizeof(address_.sun_path)) {
      folder_ = Descriptor(::open(state.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (!folder_) throw_io_error("open folder", state.path(), errno);
      path = fmt::format("/proc/self/fd/{}/socket", folder_.get());
    }
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, path.c_str(), path.size() + 1);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return sizeof(address_); }

 private:
  Descriptor folder_;
  sockaddr_un address_ = {};
};

Descriptor make_socket(int flags) {
  Descriptor out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!out) throw_io_error("open", "a socket", errno);
  return out;
}

// Waits until the socket is ready. Throws IoError at the deadline.
void wait_for(const Descriptor& socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0)
      throw IoError(
          "jobs: the daemon does not respond; see daemon.log in the state folder, kill the daemon, and try again");
    pollfd ready = {socket.get(), events, 0};
    if (::poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 60'000))) > 0) return;
  }
}

[[noreturn]] void throw_gone() { throw DaemonGone("jobs: the daemon died before it responded; try again"); }

}  // namespace

Descriptor listen_for_clients(const StateDir& state) {
  Descriptor out = make_socket(SOCK_NONBLOCK);
  const DaemonAddress address(state);
  ::unlink(state.socket().c_str());  // left by a daemon that was killed: this process holds its lock now
  const mode_t before = ::umask(0177);
  const bool bound = ::bind(out.get(), address.get(), address.size()) == 0;
  const int error = errno;
  ::umask(before);
  if (!bound) throw_io_error("listen at", state.socket(), error);
  if (::listen(out.get(), SOMAXCONN) != 0) throw_io_error("listen at", state.socket(), errno);
  return out;
}

Descriptor connect_to_daemon(const StateDir& state) {
  Descriptor out = make_socket(0);
  const DaemonAddress address(state);
  if (::connect(out.get(), address.get(), address.size()) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return {};
    throw_io_error("connect to", state.socket(), errno);
  }
  if (!is_own_user(out))
    throw_error("jobs: another user's process listens at {}; remove it, and try again", state.socket());
  return out;
}

bool is_own_user(const Descriptor& socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

std::string send_request(const Descriptor& socket, const nlohmann::ordered_json& request,
                         std::chrono::milliseconds deadline) {
  const Clock::time_point until = Clock::now() + deadline;
  const std::string text = request.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (text.size() > kMaxMessageBytes)
    throw_error("jobs: the manifest has {} bytes; at most {} are allowed", text.size(), kMaxMessageBytes);
  for (size_t sent = 0; sent < text.size();) {
    wait_for(socket, POLLOUT, until);
    const ssize_t n = ::send(socket.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent += static_cast<size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) throw_gone();
  }
  std::string answer;
  std::array<char, 4096> bytes;
  while (!answer.ends_with('\n')) {
    wait_for(socket, POLLIN, until);
    const ssize_t n = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) throw_gone();
    if (n > 0) answer.append(bytes.data(), static_cast<size_t>(n));
    if (answer.size() > kMaxMessageBytes) throw_gone();
  }
  nlohmann::ordered_json value;
  try {
    value = parse_json<nlohmann::ordered_json>(answer, "the answer", {.bytes = kMaxMessageBytes});
  } catch (const Error&) {
    throw_gone();
  }
  if (value.is_object() && value.contains("result") && value["result"].is_string()) return value["result"];
  if (!value.is_object() || !value.contains("error") || !value["error"].is_string()) throw_gone();
  const std::string message = value["error"];
  if (value.value("kind", "") == "IoError") throw IoError(message);
  throw Error(message);
}

}  // namespace lockstep
