// The daemon of the local runner: one for each state folder, started by the commands that need it, gone when there is
// nothing to watch. It may be killed at any moment: replicas live on under their shepherds, and the next one goes on.
#pragma once

#include <string>

namespace lockstep {

// The program `lockstep __daemon FOLDER`. Returns at once when there is one already; else when nothing was to be done
// for LOCKSTEP_DAEMON_IDLE seconds (60), after SIGTERM, or when the folder is gone. Returns the exit code.
int run_daemon(const std::string& folder);

}  // namespace lockstep
