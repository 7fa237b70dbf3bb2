// Flags and arguments that the job commands share: the runner, the namespace, and the names of jobs and pods. Used by
// the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command/runtime_flags.h"
#include "jobs/runner.h"

namespace lockstep::cli {

struct JobFlags {
  std::string on;              // --on; empty: $LOCKSTEP_ON, else "local"
  std::string namespace_name;  // --namespace; empty: default_namespace() of jobs/runner.h
  bool all_namespaces = false;
  RuntimeFlags runtime;

  // The namespace whose jobs are listed; empty: all namespaces.
  std::string list_namespace() const { return all_namespaces ? "" : lookup_namespace(); }
  // The namespace in which names are looked up.
  std::string lookup_namespace() const;
};

// Adds --on, --state-dir, --namespace and, if `may_take_all`, --all-namespaces. REQUIRES: flags outlives the parse.
void add_job_flags(CLI::App& command, JobFlags& flags, bool may_take_all = false,
                   const char* namespace_flag = "-n,--namespace");

// Adds --timeout, which takes a duration such as 60s. REQUIRES: `timeout` outlives the parse.
void add_timeout_flag(CLI::App& command, std::string& timeout, const std::string& help);

// Accepts a label selector, such as app=x,tier!=y.
CLI::Validator label_selector();

// The runner that --on or $LOCKSTEP_ON selects: "local", "slurm" or "kubernetes". Throws UsageError for another value
// of the variable.
std::string runner_name(const JobFlags& flags);
std::unique_ptr<Runner> runner_for(const JobFlags& flags);

enum class Resource { jobs, pods, events };

// An argument of the command line: all objects of a resource ("pods"), or one of them ("pod/a").
struct ResourceArgument {
  Resource resource = Resource::jobs;
  std::optional<JobKind> kind = {};  // only jobs of this kind
  std::string name = {};             // empty: all objects
  bool bare = false;                 // a name without a resource: a job or a pod
};

// Whether the word is the name of a resource, such as "pods".
bool is_resource(const std::string& word);
[[noreturn]] void throw_unknown_resource(const std::string& command, const std::string& word);

// Parses the arguments "jobs", "pods a b", "pod/a job/b" or "a b". Throws UsageError for an unknown resource.
std::vector<ResourceArgument> parse_resource_arguments(const std::string& command,
                                                       const std::vector<std::string>& words);

// Throws Error when the job does not exist, with the namespace of another job of that name, if any.
Job find_job(Runner& runner, const JobFlags& flags, const ResourceArgument& asked);

// Returns a pod and its job. Throws Error with a suggestion when the pod does not exist.
std::pair<Job, Pod> find_pod(Runner& runner, const JobFlags& flags, const std::string& name);

// Returns the job of that name and no pod; else the pod of that name and its job. Throws Error when neither exists.
std::pair<Job, std::optional<Pod>> find_job_or_pod(Runner& runner, const JobFlags& flags,
                                                   const ResourceArgument& asked);

// Returns the jobs that the arguments name, without duplicates, for a command that changes jobs. Throws UsageError when
// an argument is not a job, or none is given.
std::vector<Job> find_jobs(Runner& runner, const JobFlags& flags, const std::string& command,
                           const std::vector<std::string>& words);

// Returns the replicas of a job in order. Where the runner shows waiting replicas, those that have not been started yet
// are included as pending.
std::vector<Pod> pods_of(Runner& runner, const Job& job);

// The last line of a replica's log; empty when the log is empty or missing.
std::string last_output_line(Runner& runner, const Job& job, const Pod& pod, bool before_restart = false);

// Prints "No resources found" to standard error, as kubectl does.
void print_none_found(const JobFlags& flags);

bool has_kind(const Job& job, const ResourceArgument& asked);

JobTime now();

}  // namespace lockstep::cli
