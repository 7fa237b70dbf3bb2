#include "jobs/kubernetes/api_proxy.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "base/json.h"
#include "base/os/descriptor.h"
#include "base/os/environment.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/kubectl_text.h"
#include "jobs/runner.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxHeadBytes = 64 * 1024, kMaxMessageBytes = 64 * 1024;
constexpr int kForbiddenStatus = 403, kFirstServerFault = 500;

// Waits for data of a descriptor and appends it to `out`. Returns false at the end of the stream.
bool read_more(int fd, std::string& out, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) throw RunnerUnreachable("kubectl proxy: no response; check it with `kubectl version`");
    pollfd stream{fd, POLLIN, 0};
    if (::poll(&stream, 1, static_cast<int>(left)) <= 0) continue;
    std::array<char, 16384> chunk;
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return false;
    out.append(chunk.data(), static_cast<size_t>(n));
    return true;
  }
}

std::string lower_text(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Reads one HTTP/1.1 response from a socket.
class ProxyResponse {
 public:
  explicit ProxyResponse(int fd) : fd_(fd) {}

  // Reads the status line and the headers. Returns the status.
  int read_head() {
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == buffer_.npos) {
      if (buffer_.size() > kMaxHeadBytes) throw_broken();
      fill();
    }
    const std::string head = lower_text(buffer_.substr(0, end + 2));
    buffer_.erase(0, end + 4);
    chunked_ = head.find("\r\ntransfer-encoding: chunked\r\n") != head.npos;
    constexpr std::string_view kLength = "\r\ncontent-length: ";
    if (const size_t at = head.find(kLength); at != head.npos) length_ = number(head.substr(at + kLength.size()), 10);
    const size_t space = head.find(' ');
    return space == head.npos ? 0 : static_cast<int>(number(head.substr(space + 1), 10));
  }

  // Passes the body to `sink` until the end or until it returns false.
  void read_body(const ApiProxy::Sink& sink) {
    if (!chunked_ && length_ >= 0) {
      pass(length_, sink);
    } else if (!chunked_) {  // the end of the connection is the end of the body
      do {
        if (!buffer_.empty() && !sink(buffer_)) return;
        buffer_.clear();
      } while (read_more(fd_, buffer_, Clock::now() + kubectl::kAnswerTimeout));
    } else {
      for (int64_t size; (size = number(read_line(), 16)) > 0; read_line())
        if (!pass(size, sink)) return;
    }
  }

 private:
  [[noreturn]] static void throw_broken() {
    throw RunnerUnreachable("kubectl proxy: the connection ended within a response; try again");
  }

  static int64_t number(const std::string& text, int base) {
    int64_t value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (value < 0) throw_broken();
    return value;
  }

  void fill() {
    if (!read_more(fd_, buffer_, Clock::now() + kubectl::kAnswerTimeout)) throw_broken();
  }

  std::string read_line() {
    size_t end = 0;
    while ((end = buffer_.find("\r\n")) == buffer_.npos) {
      if (buffer_.size() > kMaxHeadBytes) throw_broken();
      fill();
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return line;
  }

  // Passes `size` bytes. Returns false if the sink does.
  bool pass(int64_t size, const ApiProxy::Sink& sink) {
    while (size > 0) {
      if (buffer_.empty()) fill();
      const size_t n = std::min(buffer_.size(), static_cast<size_t>(size));
      if (!sink(std::string_view(buffer_).substr(0, n))) return false;
      buffer_.erase(0, n);
      size -= static_cast<int64_t>(n);
    }
    return true;
  }

  const int fd_;
  std::string buffer_;
  bool chunked_ = false;
  int64_t length_ = -1;  // of the body; -1: unknown
};

Descriptor connect_to(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    throw IoError(fmt::format("kubectl proxy: {} is too long for a socket; set TMPDIR to a shorter path", path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Descriptor out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!out || ::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw RunnerUnreachable(fmt::format("kubectl proxy: cannot connect: {}; try again", std::strerror(errno)));
  return out;
}

// The message of a Status object of the API server, or the text of a proxy.
std::string message_of(const std::string& body) {
  try {
    const auto status = parse_json<nlohmann::ordered_json>(body, "the response", {});
    if (status.is_object() && status.contains("message") && status["message"].is_string()) return status["message"];
  } catch (const std::exception&) {  // no JSON
  }
  return body.substr(0, body.find('\n'));
}

ChildSpec proxy_spec(const std::string& socket) {
  return {.argv = {"kubectl", "proxy", "--unix-socket=" + socket},
          .environment = environment_strings(own_environment())};
}

}  // namespace

ApiProxy::ApiProxy() : child_(proxy_spec(socket_path())) {
  // It prints a line when it listens.
  std::string out;
  const auto deadline = Clock::now() + kubectl::kAnswerTimeout;
  while (out.find('\n') == out.npos) {
    if (read_more(child_.out().get(), out, deadline)) continue;
    ProgramResult failed{.code = 1};
    while (failed.err.size() < kMaxMessageBytes && read_more(child_.err().get(), failed.err, deadline)) {
    }
    kubectl::throw_failure("proxy", failed);
  }
}

void ApiProxy::get(const std::string& verb, const std::string& target, const Sink& sink) const {
  const Descriptor socket = connect_to(socket_path());
  const std::string request = fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", target);
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t n = ::send(socket.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) throw RunnerUnreachable("kubectl proxy: it closed the connection; try again");
    sent += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  ProxyResponse response(socket.get());
  const int status = response.read_head();
  if (status == 200) return response.read_body(sink);
  std::string body;
  response.read_body([&](std::string_view text) {
    body += text;
    return body.size() < kMaxMessageBytes;
  });
  const std::string message = fmt::format("kubectl {}: {}", verb, message_of(body));
  if (status == kForbiddenStatus) throw Forbidden(message);
  if (status >= kFirstServerFault && is_unreachable(body)) throw RunnerUnreachable(message);
  throw IoError(message);
}

}  // namespace lockstep
