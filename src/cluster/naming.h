// How messages call the processes of a job: by number, host and pid. What connects lanes counts lanes and calls them
// ranks, which means nothing to a reader who knows processes. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/messages.h"

namespace lockstep {

// `process 1 (host n07, pid 4842)`; what is not known is left out.
std::string process_label(int process, std::string_view host, int64_t pid);

// An error of a Comm with processes for ranks: `rank 3 (process 4842) is gone` becomes `process 1 (host n07, pid 4842)
// is gone` where each process has two lanes. Other text stays as it is.
std::string replace_ranks_with_processes(std::string_view text, const std::vector<Peer>& peers, int lanes_per_process);

// An error of a Comm in two parts: what went wrong, and in which operation this process was then. Either may be empty.
struct CommCause {
  std::string cause, operation;
};
CommCause split_cause(std::string_view text);

}  // namespace lockstep
