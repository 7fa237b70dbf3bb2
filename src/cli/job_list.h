// Prints lists of jobs, replicas and events, once or with every change. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "cli/job_flags.h"

namespace lockstep::cli {

struct ListOptions {
  JobFlags flags;
  std::string output;    // "", "wide", "yaml", "json", "name", "jsonpath=TEMPLATE" or "custom-columns=COLUMNS"
  std::string selector;  // a label selector
  std::string timeout;   // of --watch; empty: none
  bool watch = false, no_headers = false, show_labels = false;
};

// Throws UsageError for an output that does not exist, or has a syntax error.
void check_output(const std::string& output);

// Prints the objects that the arguments select, and with `watch` a line for each change. Each group of arguments is a
// table of one resource. Returns the exit code. Throws Error for a name that does not exist. REQUIRES: at least one group,
// each with an argument.
int print_lists(const std::vector<std::vector<ResourceArgument>>& groups, const ListOptions& options);

}  // namespace lockstep::cli
