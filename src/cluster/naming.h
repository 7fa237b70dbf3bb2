// Names of processes in messages: number, host and pid. Comms number lanes and call them ranks; these functions replace
// such ranks by processes, which users know. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/messages.h"

namespace lockstep {

// `process 1 (host n07, pid 4842)`; an empty host and pid 0 are omitted.
std::string process_label(int process, std::string_view host, int64_t pid);

// Replaces the ranks in a Comm's error by processes: with two lanes per process, `rank 3 (process 4842) is gone`
// becomes `process 1 (host n07, pid 4842) is gone`. Other text is unchanged.
std::string replace_ranks_with_processes(std::string_view text, const std::vector<Peer>& peers, int lanes_per_process);

// A Comm's error, split into the first cause and the operation that this process was in. Either may be empty.
struct CommCause {
  std::string cause, operation;
};
CommCause split_cause(std::string_view text);

}  // namespace lockstep
