// Prints lists of jobs, replicas and events, once or with every change. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "cli/job_flags.h"

namespace lockstep::cli {

inline constexpr const char* kOneResource =
    "get: only one resource can be listed at a time; run `lockstep get` once each for jobs, pods and events";

struct ListOptions {
  JobFlags flags;
  std::string output;    // "", "wide", "yaml", "json" or "name"
  std::string selector;  // a label selector
  std::string timeout;   // of --watch; empty: none
  bool watch = false, no_headers = false;
};

// Prints the objects that the arguments select, and with `watch` a line for each change. Returns the exit code. Throws
// Error for a name that does not exist. REQUIRES: at least one argument.
int print_list(const std::vector<ResourceArgument>& asked, const ListOptions& options);

}  // namespace lockstep::cli
