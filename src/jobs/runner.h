// Runner: runs jobs on this host, on Slurm or on Kubernetes. The job commands (apply, get, logs...) use only this
// interface. Used by one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jobs/model/job.h"
#include "lockstep/error.h"

namespace lockstep {

// The system that runs the jobs (such as the Kubernetes API server) does not respond. A retry may succeed.
class RunnerUnreachable : public IoError {
 public:
  using IoError::IoError;
};

struct LogOptions {
  int replica = 0;
  std::string pod = {};                            // Kubernetes: a specific pod of the replica; empty: the newest
  bool follow = false;                             // wait for more output until the replica has ended
  bool previous = false;                           // the log of the previous attempt
  std::optional<int64_t> tail = {};                // only this many lines from the end
  std::optional<std::chrono::seconds> since = {};  // only lines that are at most this old
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Creates the job, or updates its mutable fields (update_job()). Passes notes for the user, such as an ignored image,
  // to `note`. Returns "created", "configured" or "unchanged".
  virtual std::string apply(Job job, const std::function<void(std::string_view)>& note) = 0;

  // All functions that take a job throw Error if it does not exist.

  // Throws Error, listing the existing jobs, if the job does not exist. On Kubernetes a JAXJob and a Job may have the
  // same name; then `kind` must be given.
  virtual Job get(const std::string& namespace_name, const std::string& name, std::optional<JobKind> kind = {}) = 0;
  virtual std::vector<Pod> pods(const Job& job) = 0;
  virtual std::vector<JobEvent> events(const Job& job) = 0;
  virtual void set_suspend(const Job& job, bool suspend) = 0;
  // Deletes the job. Returns when its replicas have ended.
  virtual void remove(const Job& job) = 0;

  // The jobs of a namespace (empty: of all namespaces), sorted by name. With `kind`, may omit jobs of the other kind.
  virtual std::vector<Job> list(const std::string& namespace_name, std::optional<JobKind> kind = {}) = 0;

  // Attempts before the current ones whose exit code and log are still known, oldest first.
  virtual std::vector<EarlierAttempt> earlier_attempts(const Job&) { return {}; }

  // The pod with this name and its job; nullopt if it does not exist.
  virtual std::optional<std::pair<Job, Pod>> find_pod(const std::string& namespace_name, const std::string& name);

  // Why replicas of the job do not start: a quota, a policy, no free node. "" if nothing prevents it, or if that is
  // unknown.
  virtual std::string why_waiting(const Job&) { return ""; }

  // Whether replicas that were not started yet are listed as pending pods. Kubernetes lists only existing pods.
  virtual bool lists_pending_replicas() const { return true; }

  // Passes the output of a replica to `sink`, in pieces, until the end or until `sink` returns false.
  virtual void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) = 0;

  // Passes the output of one of pods(job), as logs() does. Faster than logs() for many pods. REQUIRES: !options.follow.
  virtual void pod_log(const Job& job, const Pod& pod, LogOptions options,
                       const std::function<bool(std::string_view)>& sink);

  // Blocks until a job may have changed, for at most two seconds.
  virtual void wait_for_change() = 0;
};

// `on` is "local", "slurm" or "kubernetes".
std::unique_ptr<Runner> make_runner(const std::string& on);

// The namespace of jobs without one: "default", or on Kubernetes that of kubectl's current context.
std::string default_namespace(const std::string& on);

}  // namespace lockstep
