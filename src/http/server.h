// Server: an HTTP/1.1 server with bounds on everything that a client can occupy.
//
// One thread reads all requests and writes all answers, so a slow client holds no thread, and neither does an answer
// that comes later (Reply). A fixed number of threads calls the handlers. The Host header, the check and the size of the
// body are judged before the body is read. A request and an answer have a deadline each: the timeout, and the time that
// the slowest client takes for that many bytes. Connections are limited; for new ones those of the address with the
// most are closed, first those that have not sent a request. If all are being answered, the new one gets status 503.
//
// Handlers are called from several threads. Add them before run(); everything else is safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "http/message.h"
#include "http/reply.h"

namespace lockstep::http {

struct ServerOptions {
  std::string name = {};  // begins the messages of errors, such as "board"
  std::string host = "127.0.0.1";
  int port = 0;             // 0: a free one
  int threads = 4;          // that call handlers
  int connections = 2048;   // at a time; at most half as many as the process may open files
  size_t max_body = 4096;   // bytes, unless a route has another limit
  size_t bodies = 1 << 20;  // bytes of all bodies that are in memory
  // Whether requests may name any host: those that carry a secret. Otherwise, on a loopback address, only names of this
  // machine are allowed.
  bool any_host_name = false;
  std::chrono::milliseconds timeout{10'000};               // also of an idle connection
  int64_t slowest_client = 65536;                          // bytes per second
  Headers headers = {};                                    // of every answer
  std::string help = {};                                   // ends the answer to an unknown path
  std::string port_flag = "--port", host_flag = "--host";  // that an error recommends
};

class Server {
 public:
  // Sets the answer. An Error that it throws is answered with status 400, any other exception with 500.
  using Handler = std::function<void(const Request&, Response&)>;
  // Answers `reply`, or keeps it (by a move) to answer later.
  using LaterHandler = std::function<void(const Request&, Reply& reply)>;

  // Listens; requests wait until run(). Throws Error if that is not possible.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Adds a handler for the paths that match a regular expression completely. HEAD is answered as GET is. Handlers
  // compute or read files; they do not wait for other requests.
  void get(const std::string& pattern, Handler handler);
  void post(const std::string& pattern, Handler handler);
  // With a body of at most `max_body` bytes.
  void post_later(const std::string& pattern, size_t max_body, LaterHandler handler);
  void get_later(const std::string& pattern, LaterHandler handler);
  // Called by the thread that reads all requests, so it answers whatever other handlers do. It must not wait.
  void get_quick(const std::string& pattern, Handler handler);
  // Called for every request when its headers have arrived, before the body is read; true: it has answered the request.
  // It must not wait.
  void set_check(std::function<bool(const Request&, Response&)> check);

  int port() const;
  // Answers requests until stop(). Requests that have arrived completely are still answered.
  void run();
  void stop();
  bool is_stopping() const;

  struct Count {
    std::string path;  // the pattern
    int status = 0;
    int64_t requests = 0;
    double seconds = 0;  // in handlers
  };
  std::vector<Count> counts() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::http
