// Where jobs run: on this machine, under Slurm, on Kubernetes. Commands of the program speak to this interface only.
// Used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

struct LogOptions {
  int replica = 0;
  bool follow = false;              // until the replica has ended
  bool previous = false;            // of the attempt before
  std::optional<int64_t> tail = {};  // only the last lines
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Creates the job, or changes what may change (suspend, the policies). What is worth telling about it (an image that is
  // not used here) goes to `note`. Returns "created", "configured" or "unchanged".
  virtual std::string apply(Job job, const std::function<void(std::string_view)>& note) = 0;

  // Throw Error naming the job and those there are when there is none of that name.
  virtual Job get(const std::string& space, const std::string& name) = 0;
  virtual std::vector<Pod> pods(const Job& job) = 0;
  virtual std::vector<JobEvent> events(const Job& job) = 0;
  virtual void set_suspend(const Job& job, bool suspend) = 0;
  virtual void remove(const Job& job) = 0;  // returns when its replicas have ended

  // In the order of their names; an empty space: of all.
  virtual std::vector<Job> list(const std::string& space) = 0;

  // Writes what a replica printed to `sink`, which returns false to stop.
  virtual void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) = 0;

  // Returns when something may have changed, or after a second.
  virtual void wait_for_change() = 0;
};

// `on` is "local", "slurm" or "kubernetes".
std::unique_ptr<Runner> make_runner(const std::string& on);

}  // namespace lockstep
