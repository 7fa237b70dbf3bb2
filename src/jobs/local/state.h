// Where the local runner keeps what it knows, and in which form:
//
//   daemon.lock, daemon.log, socket      of the daemon
//   jobs/<space>/<name>/job.json         a LocalJob, replaced as a whole
//   jobs/<space>/<name>/attempt-<n>/     the token and the port of an attempt, and a PodFolder for each replica
//
// All of it is the user's alone. Used by one thread of any process; only the daemon writes job.json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "jobs/local/pod_folder.h"
#include "jobs/model/job.h"
#include "sharding/device_table.h"  // Environment

namespace lockstep {

// A job with what this runner has to know beside it.
struct LocalJob {
  Job job;
  std::string folder;                              // where it was applied
  std::string program;                             // `lockstep`, by its path
  std::map<std::string, std::string> environment;  // of the one who applied it: see kept_variables()
  std::vector<JobEvent> events;                    // the newest kMostEvents
  bool deleting = false;                           // it goes when its replicas have ended
  int told_attempt = 0;                            // of it the phases below were spoken of in events
  std::vector<PodPhase> told;                      // by index
};
inline constexpr size_t kMostEvents = 500;

nlohmann::ordered_json to_json(const LocalJob& job);
// Throws Error when it is none.
LocalJob local_job_from_json(const nlohmann::ordered_json& value);

class StateDir {
 public:
  // $LOCKSTEP_STATE_DIR, else $XDG_STATE_HOME/lockstep, else ~/.local/state/lockstep.
  static std::string default_path(const detail::Environment& environment);

  // Makes the folder, for the user alone. Throws Error when it belongs to somebody else, IoError.
  explicit StateDir(const std::string& path);

  const std::string& path() const { return path_; }
  std::string daemon_lock() const { return path_ + "/daemon.lock"; }
  std::string daemon_log() const { return path_ + "/daemon.log"; }
  std::string socket() const { return path_ + "/socket"; }
  std::string jobs_folder() const { return path_ + "/jobs"; }
  std::string space_folder(const std::string& space) const { return jobs_folder() + "/" + space; }
  std::string job_folder(const Job& job) const { return space_folder(job.space) + "/" + job.name; }
  std::string attempt_folder(const Job& job, int attempt) const;
  PodFolder pod_folder(const Job& job, int attempt, int index) const;

  // Of one attempt. Empty when its folder is not there.
  std::vector<PodSight> look_at(const Job& job, int attempt) const;

  // The numbers of those that have a folder, in order.
  std::vector<int> attempts(const Job& job) const;

  // None when there is none, or no job has such a name.
  std::optional<LocalJob> read(const std::string& space, const std::string& name) const;
  void write(const LocalJob& job, FileSystem& files) const;

  // Whether a daemon has something to do for it now or later.
  bool needs_daemon(const LocalJob& job) const;

  // Names, sorted; `space` empty: of all spaces.
  struct Name {
    std::string space, name;
  };
  std::vector<Name> list(const std::string& space) const;

 private:
  std::string path_;
};

}  // namespace lockstep
