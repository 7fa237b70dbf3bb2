// The manifests of -f. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "cli/job_flags.h"
#include "jobs/model/manifest.h"

namespace lockstep::cli {

// Adds -f. REQUIRES: files outlives the parse.
CLI::Option* add_files_flag(CLI::App& command, std::vector<std::string>& files);

struct JobFiles {
  std::vector<Job> jobs;
  std::vector<OtherObject> others;  // Namespaces first, else in the order of the files
  std::vector<std::string> notes;   // what is read over outside of Kubernetes
};

// Reads the jobs of all files, folders (their *.yaml, *.yml and *.json) and "-", standard input. Throws UsageError for
// an address and for a namespace that contradicts --namespace, Error for what is wrong in a file.
JobFiles read_jobs(const std::string& command, const std::vector<std::string>& files, const JobFlags& flags);

}  // namespace lockstep::cli
