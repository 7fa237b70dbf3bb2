// AuthListener: the coordinator's listening sockets, in front of its gRPC server. gRPC clients send an HTTP CONNECT
// request first, as to a proxy. The listener checks the proof in it (connect_pass.h), and hands only authenticated
// connections to the server, so that strangers cannot make the server allocate or compute:
//
//   client                          listener                       gRPC server
//   CONNECT lockstep/tls/...    ->  checks the proof
//                               <-  200 (or 400, 401, 403, 409 and close)
//                                   passes the descriptor      ->  TLS, HTTP/2, calls
//
// Connections without an authenticated request are limited in number, bytes and time. So are those that the server has
// not heard a call from: their TLS handshake may still be running. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/os/descriptor.h"
#include "cluster/control_channel.h"
#include "cluster/grpc/tls_handshakes.h"
#include "cluster/security.h"

namespace lockstep {

struct AuthListenerOptions {
  std::vector<std::string> ips = {};  // addresses to listen on
  int port = 0;                       // 0: any free one; only with a single address
  Security security = {};
  int user_timeout_ms = 0;  // TCP_USER_TIMEOUT; 0: the system's default
  LogLine log = log_to_stderr;
};

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
  // Ends the thread: no more connections are admitted.
  void stop();
  // Starts the thread that authenticates connections. REQUIRES: called once.
  void start(Admit admit);
  // The server has received a call over the connection from this IP address and port: its TLS handshake is over.
  void mark_established(std::string_view ip, int port) { handshakes_.mark_over(ip, port); }

 private:
  class AcceptLoop;

  const AuthListenerOptions options_;
  std::vector<Descriptor> listeners_;
  int port_ = 0;
  Descriptor wake_;  // eventfd that stops the thread
  TlsHandshakes handshakes_;
  std::thread thread_;
};

}  // namespace lockstep
