// HttpService: a small HTTP server by cpp-httplib, with limits and counters. Handlers are called from several threads;
// everything else is used by one thread, except stop().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::cli {

struct HttpRequest {
  std::string body;
  std::map<std::string, std::string> parameters = {};  // of the query
};

struct HttpReply {
  int status = 200;
  std::string body = {};
  std::string type = "application/json";
  // Writes the body in pieces instead; `write` returns false when the client has gone.
  std::function<void(const std::function<bool(std::string_view)>& write)> stream = {};
};
HttpReply json_error(int status, const std::string& message);

struct HttpServiceOptions {
  std::string host = "127.0.0.1";
  int port = 0;            // 0: a free one
  std::string token = {};  // clients must send it as a bearer token; empty: none
  int64_t max_body = int64_t{16} << 20;
  int threads = 8;           // requests in progress
  int waiting = 64;          // connections that wait for a thread; more are closed
  int timeout_seconds = 10;  // of a read or write
};

class HttpService {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  // Throws Error in a build without cpp-httplib.
  explicit HttpService(HttpServiceOptions options);
  ~HttpService();

  // Adds a handler. An Error that it throws is answered with status 400, any other exception with 500. `secured`: it
  // needs the token.
  void get(const std::string& path, Handler handler, bool secured = true);
  void post(const std::string& path, Handler handler);

  // Binds the port and returns it. Throws Error when that is not possible.
  int bind();
  // Serves until stop() is called from another thread. REQUIRES: bind() was called.
  void run();
  void stop();

  // The counters of all requests in the text format of Prometheus.
  std::string metrics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::cli
