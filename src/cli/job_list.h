// Lists of jobs, replicas and events, printed once or followed. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "cli/job_flags.h"

namespace lockstep::cli {

inline constexpr const char* kOneResource =
    "get: several resources at once; ask for jobs, pods and events one after the other";

struct ListOptions {
  JobFlags flags;
  std::string output;    // "", "wide", "yaml", "json" or "name"
  std::string selector;  // of labels
  std::string timeout;   // of watching; empty: none
  bool watch = false, no_headers = false;
};

// Prints what is asked for, and with `watch` a new line whenever something of it changes. Throws Error for a name that
// does not exist.
int print_list(const std::vector<Asked>& asked, const ListOptions& options);

}  // namespace lockstep::cli
