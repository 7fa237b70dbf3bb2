// join_control(): registers this process with the coordinator of its job. Process 0 also runs the coordinator.
// Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/address.h"
#include "cluster/control.h"
#include "cluster/tls_files.h"
#include "comm/mailbox.h"

namespace lockstep {

struct JoinOptions {
  int process_id = 0;
  int process_count = 1;
  detail::Address coordinator = {};                  // address of process 0; ignored for a single process
  std::optional<detail::Address> bind_address = {};  // where process 0 listens, if different; port 0: any
  std::string token = {};                            // see find_token()
  // Without a token: process r is accepted only from an address that replica_names[r] resolves to. Empty: no check.
  std::vector<std::string> replica_names = {};
  TlsFiles tls = {};
  bool use_tls = true;  // SecurityOptions::tls
  std::chrono::nanoseconds initialization_timeout = std::chrono::seconds(300);
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds first_step_timeout = std::chrono::minutes(5);
  std::chrono::nanoseconds step_timeout = std::chrono::seconds(60);
  // A controller restarts each process independently. So a restarted process may reach the coordinator of the previous
  // attempt, which has failed or has not yet detected the failure. It then waits for the next coordinator.
  bool restarts_individually = false;
  std::string host = {};                // name of this machine in messages; empty: its host name
  std::vector<std::string> hosts = {};  // of all processes, if known, to name missing ones
  // Creates the transport of the control plane if MPI started the processes. Empty: gRPC.
  std::function<std::unique_ptr<Mailbox>()> make_mailbox = {};
  std::function<void(int port)> on_listening = {};  // called on process 0 once it listens
  LogLine log = log_to_stderr;
};

// Registers with the coordinator and returns when all processes have registered. Process 0 starts the coordinator,
// which lives as long as the returned Control. The others retry until they reach it. A single process opens no socket.
// Throws as Control, ControlServer and network_channel() do, and Error if process_id is not in 0 ... process_count - 1.
std::unique_ptr<Control> join_control(const JoinOptions& options);

}  // namespace lockstep
