// A server that runs in a thread of the test.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "http/server.h"
#include "support/http_connection.h"

namespace lockstep::http {

// A server that runs in a thread until the object is destroyed.
class RunningServer {
 public:
  explicit RunningServer(ServerOptions options = {})
      : server([&] {
          options.name = "test";
          return options;
        }()) {
    server.get("/", [](const Request&, Response& response) { response.set_content("hello", "text/plain"); });
    server.get_quick("/health", [](const Request&, Response& response) { response.set_content("ok", "text/plain"); });
  }
  ~RunningServer() {
    server.stop();
    if (thread_.joinable()) thread_.join();
  }
  void start() {
    thread_ = std::thread([this] { server.run(); });
  }
  int port() const { return server.port(); }

  Server server;

 private:
  std::thread thread_;
};

// A condition that threads wait for, a minute at most.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

// The head of a request, with further lines of headers.
inline std::string head(const std::string& line, const std::string& more = "") {
  return line + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}

}  // namespace lockstep::http
