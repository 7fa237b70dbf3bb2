// The daemon of the local runner: starts and restarts the replicas of local jobs. There is one for each state folder.
// Commands start it on demand, and it exits when it is idle. It may be killed at any time: replicas keep running under
// their shims, and the next daemon continues from the state folder.
#pragma once

#include <string>

namespace lockstep {

// Implements `lockstep __daemon FOLDER` and returns its exit code. Returns immediately if another daemon is running.
// Otherwise returns after LOCKSTEP_DAEMON_IDLE seconds (default 60) without work, after SIGTERM, or when the folder was
// deleted.
int run_daemon(const std::string& folder);

}  // namespace lockstep
