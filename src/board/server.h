// Server: the web page of a board. It answers requests until the process ends or stop(). Requests are answered by
// several threads; its own functions are safe from any thread.
#pragma once

#include <memory>
#include <string>

namespace lockstep::board {

struct ServerOptions {
  std::string runs = "runs";       // the folder of runs
  std::string host = "127.0.0.1";  // address to listen on
  int port = 0;                    // 0: a free one
  std::string token = {};          // empty: none is required
};

class Server {
 public:
  // Listens. Throws Error if that is not possible.
  explicit Server(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // Returns after stop().
  void run();
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::board
