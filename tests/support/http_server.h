// A local HTTP server for tests; sends one response per connection. Runs in its own thread until it is destroyed.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "support/listener.h"

namespace lockstep {

class HttpServer {
 public:
  // Returns the complete response for a path. If it ends in kStall, the server then sends nothing more until the
  // client disconnects.
  using Answer = std::function<std::string(const std::string& path)>;
  static constexpr std::string_view kStall = "<stall>";

  explicit HttpServer(Answer answer) : answer_(std::move(answer)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    stop_ = true;
    ::shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(listener_.port()) + "/"; }

  static std::string ok(std::string_view body) {
    return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           std::string(body);
  }

 private:
  void serve() {
    while (!stop_) {
      const int client = ::accept(listener_.fd(), nullptr, nullptr);
      if (client < 0) continue;
      std::string request;
      char byte;
      while (!request.ends_with("\r\n\r\n") && ::recv(client, &byte, 1, 0) == 1) request += byte;
      const size_t start = request.find(' ') + 1;
      std::string answer = answer_(request.substr(start, request.find(' ', start) - start));
      const bool stall = answer.ends_with(kStall);
      if (stall) answer.resize(answer.size() - kStall.size());
      ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      if (stall) ::recv(client, &byte, 1, 0);
      ::close(client);
    }
  }

  Answer answer_;
  Listener listener_{16};
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep
