// Where jobs run: on this machine, under Slurm, on Kubernetes. Commands of the program speak to this interface only.
// Used by one thread.
#pragma once

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

// What runs the jobs (the API server of Kubernetes) does not answer now; asking again may help.
class Unreachable : public IoError {
 public:
  using IoError::IoError;
};

struct LogOptions {
  int replica = 0;
  std::string pod = {};              // on Kubernetes: this pod of the replica; empty: the newest
  bool follow = false;               // until the replica has ended
  bool previous = false;             // of the attempt before
  std::optional<int64_t> tail = {};  // only the last lines
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Creates the job, or changes what may change (suspend, the policies). What is worth telling about it (an image that
  // is not used here) goes to `note`. Returns "created", "configured" or "unchanged".
  virtual std::string apply(Job job, const std::function<void(std::string_view)>& note) = 0;

  // Throw Error naming the job and those there are when there is none of that name. On Kubernetes a JAXJob and a Job
  // may have the same name: `kind` says which; without it that is an Error too.
  virtual Job get(const std::string& space, const std::string& name, std::optional<JobKind> kind = {}) = 0;
  virtual std::vector<Pod> pods(const Job& job) = 0;
  virtual std::vector<JobEvent> events(const Job& job) = 0;
  virtual void set_suspend(const Job& job, bool suspend) = 0;
  virtual void remove(const Job& job) = 0;  // returns when its replicas have ended

  // In the order of their names; an empty space: of all. Where a kind is given, others may be left out.
  virtual std::vector<Job> list(const std::string& space, std::optional<JobKind> kind = {}) = 0;

  // The pod of that name, and its job; none where there is none.
  virtual std::optional<std::pair<Job, Pod>> find_pod(const std::string& space, const std::string& name);

  // Whether replicas that wait for their start count as pods. On Kubernetes a pod exists when it was made.
  virtual bool shows_waiting_replicas() const { return true; }

  // Writes what a replica printed to `sink`, which returns false to stop.
  virtual void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) = 0;

  // Returns when something may have changed, or after a second.
  virtual void wait_for_change() = 0;
};

// `on` is "local", "slurm" or "kubernetes".
std::unique_ptr<Runner> make_runner(const std::string& on);

// The namespace of jobs that name none: "default", on Kubernetes that of kubectl's current context.
std::string default_space(const std::string& on);

}  // namespace lockstep
