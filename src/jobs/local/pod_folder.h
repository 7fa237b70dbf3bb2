// The folder of one replica, through which the daemon and the replica's shepherd speak, also when one of them died:
//
//   spec.json      what to start; there before anything else
//   shepherd.lock  locked by the shepherd for as long as it lives
//   started.json   there before the program starts: it is never started again
//   ended.json     there when it has ended, or will never start
//   log, log.1     what it printed
//
// Used by one thread of any process.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "jobs/local/lock.h"
#include "jobs/model/job.h"

namespace lockstep {

// What a shepherd starts.
struct ReplicaSpec {
  std::vector<std::string> argv, environment;  // NAME=value, all there are
  std::string folder;
  std::vector<int> cpus;           // empty: all
  std::chrono::seconds grace{30};  // between SIGTERM and SIGKILL
  int64_t log_limit = 0;           // PodLog
  int port = 0;                    // at which it is to listen as the coordinator; 0: it is another one
};

struct Started {
  JobTime time{};
  pid_t session = 0, process = 0;  // of the shepherd; of the replica, 0 until it runs
};

struct Ended {
  JobTime time{};
  std::optional<int> code;      // 128 + n for signal n; none: nobody knows
  std::string reason, message;  // "Completed", "Error", "OOMKilled", "StartError", "PortTaken", "Stopped", "Lost"
};

class PodFolder {
 public:
  explicit PodFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The state folder that it is in: <state>/jobs/<space>/<job>/attempt-<n>/<pod>.
  std::string state() const;
  std::string lock_path() const { return path_ + "/shepherd.lock"; }
  std::string log_path() const { return path_ + "/log"; }

  void write(const ReplicaSpec& spec, FileSystem& files) const;
  void write(const Started& started, FileSystem& files) const;
  void write(const Ended& ended, FileSystem& files) const;

  // Throw IoError or Error when the file is none.
  ReplicaSpec spec() const;
  // None when there is none.
  std::optional<Started> started() const;
  std::optional<Ended> ended() const;

 private:
  std::string path_;
};

enum class PodState {
  waiting,   // nothing was started, and nobody is about to
  starting,  // a shepherd is there
  running,
  ended,
  lost,  // it was started, and its shepherd is gone without a word
};

struct PodSight {
  PodState state = PodState::waiting;
  std::optional<LockHolder> shepherd;  // also of one that has ended a moment ago
  std::optional<Started> started;
  std::optional<Ended> ended;
};

// What the folder says now. An absent folder is a pod that waits.
PodSight look(const PodFolder& folder);

// As the model has it.
Pod as_pod(const PodSight& sight, int index, int attempt);

// Processes that a lost replica has left behind: those that carry its mark in their environment.
std::vector<pid_t> left_behind(const PodFolder& folder);

// Kills one of those, unless its number is somebody else's by now.
void kill_left_behind(pid_t pid, const PodFolder& folder);

// The variable that marks the processes of a replica, NAME=value.
std::string pod_mark(const PodFolder& folder);

JobTime current_time();

// A file with one JSON value. Reading throws Error for what is none, IoError when it cannot be read.
void write_json(FileSystem& files, const std::string& path, const nlohmann::ordered_json& value);
nlohmann::ordered_json read_json(const std::string& path);

}  // namespace lockstep
