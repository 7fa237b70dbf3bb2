// Server: an HTTP/1.1 server with bounds on everything that a client can occupy.
//
// One thread reads all requests and writes all answers, so a slow client holds no thread. Threads of a fixed number call
// the handlers. A request and an answer have a deadline each: the timeout, and the time that the slowest client takes for
// that many bytes. A stream may wait as long for its client. Above the limit of connections the longest idle one is
// closed; if all are in use, the new one is answered with status 503.
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

namespace lockstep::http {

struct ServerOptions {
  std::string name = {};  // begins the messages of errors, such as "board"
  std::string host = "127.0.0.1";
  int port = 0;            // 0: a free one
  int threads = 8;         // that call handlers; 0: the thread of run() does, and streams are not possible
  int connections = 64;    // at a time
  size_t max_body = 4096;  // bytes
  std::chrono::milliseconds timeout{10'000};                      // also of an idle connection
  int64_t slowest_client = 65536;                                 // bytes per second
  std::vector<std::pair<std::string, std::string>> headers = {};  // of every answer
  std::string help = {};                                          // ends the answer to an unknown path
  std::string port_flag = "--port", host_flag = "--host";         // that an error recommends
};

class Server {
 public:
  using Handler = std::function<void(const Request&, Response&)>;

  // Listens; requests wait until run(). Throws Error if that is not possible.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Adds a handler for the paths that match a regular expression completely. An Error that it throws is answered with
  // status 400, any other exception with 500. HEAD is answered as GET is.
  void get(const std::string& pattern, Handler handler);
  void post(const std::string& pattern, Handler handler);
  // Called before every handler; true: it has answered the request.
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
