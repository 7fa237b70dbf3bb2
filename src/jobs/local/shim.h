// The shim: a small process beside each local replica that starts it, writes its log and records how it ended. It does
// not depend on the daemon, and restarts a daemon that died. If the shim itself is killed, so is the replica.
#pragma once

#include <string>

namespace lockstep {

// Implements `lockstep __shim FOLDER` for a PodFolder with a spec.json, and returns its exit code. Returns immediately
// if another shim is running or has run there. On SIGTERM, sends SIGTERM to the replica, and SIGKILL after its grace
// period.
int run_shim(const std::string& folder);

}  // namespace lockstep
