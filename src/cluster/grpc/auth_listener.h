// AuthListener: the coordinator's listening sockets, in front of its gRPC server. gRPC clients send an HTTP CONNECT
// request first, as to a proxy. The listener checks the job's pass in it, and hands only authenticated connections to
// the server, so that strangers cannot make the server allocate or compute:
//
//   client                          listener                       gRPC server
//   CONNECT lockstep/tls/PROOF  ->  compares with its own pass
//                               <-  200 (or 400, 403, 409 and close)
//                                   passes the descriptor      ->  TLS, HTTP/2, calls
//
// Connections without an authenticated request are limited in number, bytes and time. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/os/descriptor.h"
#include "cluster/control_channel.h"

namespace lockstep {

struct AuthListenerOptions {
  std::vector<std::string> ips = {};  // addresses to listen on
  int port = 0;                       // 0: any free one; only with a single address
  std::string pass = {};              // Security::pass
  int user_timeout_ms = 0;            // TCP_USER_TIMEOUT; 0: the system's default
  LogLine log = log_to_stderr;
};

// HTTP status codes of the answers to CONNECT.
namespace connect_status {
inline constexpr int kAdmitted = 200, kMalformed = 400, kWrongToken = 403, kOtherSecurity = 409;
}

// The status of the answer to a request (`CONNECT PASS HTTP/1.0` and headers), if the listener's pass is `pass`.
int connect_status_for(std::string_view request, std::string_view pass);

class AuthListener {
 public:
  // Called by the listener's thread for an authenticated connection; takes ownership of `fd`.
  using Admit = std::function<void(int listener, int fd)>;

  // Begins to listen; connections wait until start(). Throws Error if the port is in use, naming the process that uses
  // it if known.
  explicit AuthListener(AuthListenerOptions options);
  ~AuthListener();  // closes the sockets, and the connections that are not authenticated
  AuthListener(const AuthListener&) = delete;
  AuthListener& operator=(const AuthListener&) = delete;

  int port() const { return port_; }
  // Starts the thread that authenticates connections. REQUIRES: called once.
  void start(Admit admit);

 private:
  class AcceptLoop;

  const AuthListenerOptions options_;
  std::vector<Descriptor> listeners_;
  int port_ = 0;
  Descriptor wake_;  // eventfd that stops the thread
  std::thread thread_;
};

}  // namespace lockstep
