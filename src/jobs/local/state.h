// StateDir: the files of the local runner. Only the user can access them:
//
//   daemon.lock, daemon.log, socket      of the daemon
//   jobs/<namespace>/<name>/job.json         a LocalJob; replaced atomically, only by the daemon
//   jobs/<namespace>/<name>/attempt-<n>/     token and port of an attempt, and a PodFolder for each replica
//
// May be used by several processes, by one thread of each.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/os/environment.h"
#include "jobs/local/pod_folder.h"
#include "jobs/model/job.h"

namespace lockstep {

// A job with the additional state of this runner.
struct LocalJob {
  Job job;
  std::string folder;                              // the folder of `lockstep apply`
  std::string program;                             // the path of `lockstep`
  std::map<std::string, std::string> environment;  // inherited_variables() of `lockstep apply`
  std::vector<JobEvent> events;                    // the newest kMaxEvents
  bool deleting = false;                           // delete it when its replicas have ended
  int reported_attempt = 0;                        // of it the phases below were spoken of in events
  std::vector<PodPhase> reported_phases;           // by index
};
inline constexpr size_t kMaxEvents = 500;

// Removes the oldest event if there are more than kMaxEvents.
void add_event(LocalJob& job, JobEvent event);

nlohmann::ordered_json to_json(const LocalJob& job);
// Throws Error for invalid JSON.
LocalJob local_job_from_json(const nlohmann::ordered_json& value);

class StateDir {
 public:
  // $LOCKSTEP_STATE_DIR, else $XDG_STATE_HOME/lockstep, else ~/.local/state/lockstep.
  static std::string default_path(const detail::Environment& environment);

  // Creates the folder with mode 0700. Throws Error if it belongs to another user, IoError.
  explicit StateDir(const std::string& path);

  const std::string& path() const { return path_; }
  std::string daemon_lock() const { return path_ + "/daemon.lock"; }
  std::string daemon_log() const { return path_ + "/daemon.log"; }
  std::string socket() const { return path_ + "/socket"; }
  std::string jobs_folder() const { return path_ + "/jobs"; }
  std::string namespace_folder(const std::string& namespace_name) const { return jobs_folder() + "/" + namespace_name; }
  std::string job_folder(const Job& job) const { return namespace_folder(job.namespace_name) + "/" + job.name; }
  std::string attempt_folder(const Job& job, int attempt) const;
  PodFolder pod_folder(const Job& job, int attempt, int index) const;

  // The status of each replica in an attempt; empty if the attempt has no folder.
  std::vector<PodStatus> read_pod_statuses(const Job& job, int attempt) const;

  // The numbers of the attempts that have a folder, ascending.
  std::vector<int> attempts(const Job& job) const;

  // nullopt if the job does not exist or the name is invalid. Throws Error if job.json is invalid, IoError.
  std::optional<LocalJob> read(const std::string& namespace_name, const std::string& name) const;
  void write(const LocalJob& job, FileSystem& files) const;

  // Whether the daemon has something to do for the job, now or later.
  bool needs_daemon(const LocalJob& job) const;

  // The jobs of a namespace, or of all namespaces if `namespace_name` is empty; sorted.
  struct Name {
    std::string namespace_name, name;
  };
  std::vector<Name> list(const std::string& namespace_name) const;

 private:
  std::string path_;
};

}  // namespace lockstep
