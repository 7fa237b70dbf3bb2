// join_control(): a process takes its place in a job, whichever one it is.
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
  detail::Address coordinator = {};                  // where process 0 is found; of no account for one process
  std::optional<detail::Address> bind_address = {};  // where process 0 listens, when not there; port 0: any
  std::string token = {};                            // see find_token()
  // Without a token: process r is accepted only from an address to which name r resolves; empty: from anywhere.
  std::vector<std::string> replica_names = {};
  TlsFiles tls = {};
  bool use_tls = true;  // SecurityOptions::tls
  std::chrono::nanoseconds initialization_timeout = std::chrono::seconds(300);
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds first_step_timeout = std::chrono::minutes(5);
  std::chrono::nanoseconds step_timeout = std::chrono::seconds(60);
  // A controller restarts each process by itself. So a process may find the coordinator of the previous attempt, which
  // has failed or is about to notice that a process died; it then waits for the next coordinator.
  bool restarts_individually = false;
  std::string host = {};                // this machine, for messages; empty: its name
  std::vector<std::string> hosts = {};  // of all processes, where known, to name those who are missing
  // How processes that were brought together by MPI reach each other; empty: over the network.
  std::function<std::unique_ptr<Mail>()> mail = {};
  std::function<void(int port)> on_listening = {};  // on process 0, once it can be reached
  LogLine log = log_to_stderr;
};

// Process 0 begins to listen (to the mail, where there is some) and stays the coordinator as long as its Control lives;
// the others look for it. Returns when all have met. One process alone opens no socket. Throws as Control,
// ControlServer and network_channel() do, and Error for an id not in 0 ... count - 1.
std::unique_ptr<Control> join_control(const JoinOptions& options);

}  // namespace lockstep
