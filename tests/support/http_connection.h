// HttpConnection: a TCP connection to a server on the loopback, for requests that an HTTP client would not send.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

namespace lockstep {

class HttpConnection {
 public:
  // `may_fail`: a server that does not listen yet is not a failure of the test; then nothing can be sent.
  // `from`: the address of the client.
  explicit HttpConnection(int port, bool may_fail = false, const char* from = nullptr)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    if (from != nullptr) {
      ::inet_pton(AF_INET, from, &address.sin_addr);
      EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    }
    address.sin_port = ::htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    EXPECT_TRUE(connected_ || may_fail) << "no server listens on port " << port;
  }
  ~HttpConnection() { ::close(fd_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  bool is_connected() const { return connected_; }
  // The client sends nothing more, but reads.
  void shut_down() { ::shutdown(fd_, SHUT_WR); }
  // Whether the last read_all() ended with a reset.
  bool was_reset() const { return reset_; }
  // False: the server has closed the connection.
  bool send(std::string_view text) { return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == std::ssize(text); }

  // Whether bytes arrive, or the server closes the connection, within this time.
  bool is_readable(int milliseconds) const {
    pollfd ready{fd_, POLLIN, 0};
    return ::poll(&ready, 1, milliseconds) > 0;
  }

  // Reads until the text arrived or the server closed the connection, for a minute at most. Returns what was read since
  // the last call.
  std::string read_until(std::string_view end) {
    std::string out;
    std::array<char, 4096> bytes;
    while (end.empty() || out.find(end) == out.npos) {
      if (!is_readable(60'000)) {
        ADD_FAILURE() << "the server does not answer; so far:\n" << out;
        break;
      }
      const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), 0);
      reset_ = count < 0 && errno == ECONNRESET;
      if (count <= 0) break;
      out.append(bytes.data(), static_cast<size_t>(count));
    }
    return out;
  }
  std::string read_all() { return read_until(""); }

  // All of the answer to a request, after which the server closes the connection.
  std::string ask(std::string_view request) {
    EXPECT_TRUE(send(request));
    return read_all();
  }
  std::string get(const std::string& path) {
    return ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }

 private:
  const int fd_;
  bool connected_ = false, reset_ = false;
};

}  // namespace lockstep
