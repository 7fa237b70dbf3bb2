// AuthListener: the listening sockets of the coordinator, in front of its gRPC server. A connection reaches the server only
// after it has presented the job's pass, so that strangers cannot make the server allocate or compute. Connections that
// have not done so yet are bounded in number, bytes and time. Safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cluster/control_channel.h"

namespace lockstep {

struct AuthListenerOptions {
  std::vector<std::string> numbers = {};  // addresses to listen at
  int port = 0;                           // 0: any free one, for a single number
  std::string pass = {};                  // Security::pass
  int user_timeout_ms = 0;                // until unacknowledged data closes a connection; 0: the system's
  LogLine log = log_to_stderr;
};

// The status codes with which the gate answers a request.
namespace connect_status {
inline constexpr int kAdmitted = 200, kMalformed = 400, kWrongToken = 403, kOtherSecurity = 409;
}

// The status with which a gate with that pass answers a request (`CONNECT PASS HTTP/1.0` and headers).
int connect_status_for(std::string_view request, std::string_view pass);

class AuthListener {
 public:
  // Called by the gate's thread with a connection that was admitted; owns the descriptor `fd`.
  using Admit = std::function<void(int listener, int fd)>;

  // Listens when it returns; connections wait until open(). Throws Error when a port is taken, naming the process
  // that has it where the system tells.
  explicit AuthListener(AuthListenerOptions options);
  ~AuthListener();  // closes the sockets, and the connections that were not admitted
  AuthListener(const AuthListener&) = delete;
  AuthListener& operator=(const AuthListener&) = delete;

  int port() const { return port_; }
  void start(Admit admit);

 private:
  class AcceptLoop;

  const AuthListenerOptions options_;
  std::vector<int> listeners_;
  int port_ = 0;
  int wake_ = -1;  // an eventfd: the thread ends
  std::thread thread_;
};

}  // namespace lockstep
