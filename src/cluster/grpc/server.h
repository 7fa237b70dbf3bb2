// ControlServer: makes a coordinator reachable over gRPC. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cluster/address.h"
#include "cluster/address_auth.h"
#include "cluster/control_channel.h"
#include "cluster/coordinator_host.h"
#include "cluster/tls_files.h"

namespace lockstep {

class CallServer;

struct ServerOptions {
  detail::Address address = {};                 // where to listen; port 0: any free one
  std::string token = {};                       // required from clients; empty: accepts all
  std::shared_ptr<AddressAuth> addresses = {};  // authenticates by address, for a job without a token; or null
  TlsFiles tls = {};
  bool use_tls = true;  // SecurityOptions::tls
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds resolve_timeout = std::chrono::seconds(300);  // for the name in `address`
  LogLine log = log_to_stderr;
};

class ControlServer {
 public:
  // Begins to listen. Throws Error if the port is in use (naming the process that uses it, if known), if the address is
  // not one of this machine, and for invalid certificate files; IoError if the name does not resolve in time.
  ControlServer(std::shared_ptr<CoordinatorHost> host, ServerOptions options);
  // Closes the coordinator, and waits briefly until the other processes were notified.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  int port() const;

  // Waits briefly until a failure was sent to all reachable processes, so that they learn the cause, and not only that
  // process 0 has exited.
  void flush_failure();

 private:
  const std::shared_ptr<CoordinatorHost> host_;
  std::unique_ptr<CallServer> calls_;
};

}  // namespace lockstep
