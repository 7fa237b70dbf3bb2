// The gRPC channel to the coordinator in another process. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cluster/address.h"
#include "cluster/control_channel.h"
#include "cluster/tls_files.h"

namespace lockstep {

struct ClientOptions {
  detail::Address coordinator = {};
  std::string token = {};
  TlsFiles tls = {};
  bool use_tls = true;  // SecurityOptions::tls
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  // A registration that reaches the coordinator of the job's previous attempt waits for the next one; see JoinOptions.
  bool restarts_individually = false;
  LogLine log = log_to_stderr;
};

// Connects with the first call, a registration, which retries until its timeout: the name may not resolve yet, and
// process 0 may not have started. Throws Error and IoError for invalid TLS files.
std::unique_ptr<ControlChannel> network_channel(ClientOptions options);

}  // namespace lockstep
