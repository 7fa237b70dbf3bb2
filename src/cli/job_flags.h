// What the commands about jobs have in common: where the jobs run, which of them are meant, and how they are found.
// Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jobs/runner.h"

namespace lockstep::cli {

struct JobFlags {
  std::string on;     // empty: $LOCKSTEP_ON, or "local"
  std::string space;  // empty: default_space() of jobs/runner.h
  bool all_spaces = false;

  // Of which jobs are listed; empty: of all.
  std::string listed_space() const { return all_spaces ? "" : named_space(); }
  // In which names are looked up.
  std::string named_space() const;
};

// Adds --on and --namespace and, where a command may look into all, --all-namespaces. REQUIRES: flags outlives the
// parse.
void add_job_flags(CLI::App& command, JobFlags& flags, bool may_take_all = false);

// Adds --timeout with a length of time such as 60s. REQUIRES: `timeout` outlives the parse.
void add_timeout_flag(CLI::App& command, std::string& timeout, const std::string& help);

// Accepts a selector of labels, such as app=x,tier!=y.
CLI::Validator label_selector();

// Where jobs run: "local", "slurm" or "kubernetes". Throws UsageError when there is no such place.
std::string place_of(const JobFlags& flags);
std::unique_ptr<Runner> runner_of(const JobFlags& flags);

enum class Resource { jobs, pods, events };

// What a word of the command line means: all jobs, jaxjobs, jobs of batch, pods or events, or one of them.
struct Asked {
  Resource resource = Resource::jobs;
  std::optional<JobKind> kind = {};  // only such jobs
  std::string name = {};             // empty: all
  bool bare = false;                 // the name was given alone, and might be a pod's
};

// Whether the word names a kind of objects: "pods".
bool is_resource(const std::string& word);
[[noreturn]] void throw_no_resource(const std::string& command, const std::string& word);

// "jobs", "pods a b", "pod/a job/b", "a b". Throws UsageError for a resource that does not exist.
std::vector<Asked> parse_words(const std::string& command, const std::vector<std::string>& words);

// Throws Error when there is none, saying where one of that name is.
Job find_job(Runner& runner, const JobFlags& flags, const Asked& asked);

// A pod by its name, and its job. Throws Error naming those that there are.
std::pair<Job, Pod> find_pod(Runner& runner, const JobFlags& flags, const std::string& name);

// A job or, when there is none of that name, a pod; without a pod the job is meant.
std::pair<Job, std::optional<Pod>> find_either(Runner& runner, const JobFlags& flags, const Asked& asked);

// The jobs that are meant, each once, for a command that changes jobs. Throws UsageError when a word means something
// else, or none is named.
std::vector<Job> find_jobs(Runner& runner, const JobFlags& flags, const std::string& command,
                           const std::vector<std::string>& words);

// Its replicas in order. Where the runner shows waiting replicas, those that have not been started yet are pending.
std::vector<Pod> pods_of(Runner& runner, const Job& job);

// The last line that a replica printed; empty when it printed none, or when its log is gone.
std::string last_line(Runner& runner, const Job& job, const Pod& pod);

// Says on standard error, as kubectl does, that there is nothing to show.
void say_nothing_found(const JobFlags& flags);

bool is_of_kind(const Job& job, const Asked& asked);

JobTime now();

}  // namespace lockstep::cli
