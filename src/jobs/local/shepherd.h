// The shepherd of one replica: a small process that starts it, keeps its log and says how it ended. It depends on
// nobody: a daemon that died it starts again. When the shepherd itself dies, so does the replica.
#pragma once

#include <string>

namespace lockstep {

// The program `lockstep __shepherd FOLDER`, for a PodFolder that has a spec.json. Returns at once when another shepherd
// is there or was there. SIGTERM asks the replica to end, and kills it when its grace is over. Returns the exit code.
int run_shepherd(const std::string& folder);

}  // namespace lockstep
