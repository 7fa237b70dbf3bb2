// Reads the manifests that -f names. Used by the main thread only.
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
  std::vector<OtherObject> others;  // Namespaces first, then in the order of the files
  std::vector<std::string> notes;   // about objects and fields that are ignored outside of Kubernetes
};

// Reads the objects of all files, folders (their *.yaml, *.yml and *.json) and "-", standard input. Throws UsageError
// for a wrong file, a URL, and a namespace that contradicts --namespace.
JobFiles read_jobs(const std::string& command, const std::vector<std::string>& files, const JobFlags& flags);

}  // namespace lockstep::cli
