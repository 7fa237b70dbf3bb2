// ControlServer: lets other processes reach a coordinator over the network. Its threads are a fixed few, however many
// calls wait. Safe from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cluster/address.h"
#include "cluster/address_auth.h"
#include "cluster/control_channel.h"
#include "cluster/coordinator_host.h"
#include "cluster/grpc/auth_listener.h"
#include "cluster/tls_files.h"

namespace lockstep {

struct ServerOptions {
  detail::Address address = {};                 // where to listen; port 0: any that is free
  std::string token = {};                       // who may ask; empty: everybody
  std::shared_ptr<AddressAuth> addresses = {};  // which addresses may ask, for a job without a token; or null
  TlsFiles tls = {};
  bool use_tls = true;  // SecurityOptions::tls
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds resolve_timeout = std::chrono::seconds(300);  // until the name must have an address
  LogLine log = log_to_stderr;
};

class ControlServer {
 public:
  // Listens when it returns. Throws Error when the port is taken, saying by whom where that can be known, or the name
  // has no address; Error for an address that is not this machine's and files that are no certificates.
  ControlServer(std::shared_ptr<CoordinatorHost> host, ServerOptions options);
  // Closes the coordinator, and gives the others a moment to hear it.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  int port() const { return listener_->port(); }

  // Waits, after a failure, until it has gone out to all who can hear, but not long: they learn the cause, and not only
  // that this process has ended.
  void flush_failure();

 private:
  class Service;

  const std::shared_ptr<CoordinatorHost> host_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<AuthListener> listener_;
};

}  // namespace lockstep
