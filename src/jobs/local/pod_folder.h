// PodFolder: the folder of one replica. The daemon and the replica's shim communicate through its files, so that either
// can die and be replaced:
//
//   spec.json      ReplicaSpec: what to start; written first
//   shim.lock      locked by the shim as long as it lives
//   started.json   StartRecord; written before the program starts, so that it is never started twice
//   ended.json     EndRecord; written when the replica has ended or will never start
//   log, log.1     the replica's output (PodLog)
//
// May be used by several processes, by one thread of each.
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

// What a shim starts.
struct ReplicaSpec {
  std::vector<std::string> argv, environment;  // the complete environment, NAME=value
  std::string folder;                          // working directory
  std::vector<int> cpus;                       // CPU affinity; empty: all
  std::chrono::seconds grace{30};              // between SIGTERM and SIGKILL
  int64_t log_limit = 0;                       // PodLog
  int port = 0;                                // the coordinator's port for replica 0; 0 for all others
};

struct StartRecord {
  JobTime time{};
  pid_t session = 0, process = 0;  // the shim's session; the replica's pid, 0 until it runs
};

struct EndRecord {
  JobTime time{};
  std::optional<int> code;  // exit code; 128 + n for signal n; nullopt: unknown
  std::string reason;       // "Completed", "Error", "OOMKilled", "StartError", "PortTaken", "Stopped", "Lost"
  std::string message;
};

class PodFolder {
 public:
  explicit PodFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The state folder that contains it: <state>/jobs/<namespace>/<job>/attempt-<n>/<pod>.
  std::string state() const;
  std::string lock_path() const { return path_ + "/shim.lock"; }
  std::string log_path() const { return path_ + "/log"; }

  void write(const ReplicaSpec& spec, FileSystem& files) const;
  void write(const StartRecord& started, FileSystem& files) const;
  void write(const EndRecord& ended, FileSystem& files) const;

  // Throws IoError if the file is missing, Error if it is invalid.
  ReplicaSpec spec() const;
  // nullopt if the file does not exist. Throw Error if it is invalid.
  std::optional<StartRecord> started() const;
  std::optional<EndRecord> ended() const;

 private:
  std::string path_;
};

enum class PodState {
  waiting,   // not started, and no shim is running
  starting,  // a shim is running, the replica was not started yet
  running,
  ended,
  lost,  // it was started, but its shim died without writing ended.json
};

// The contents of a PodFolder, and the shim that holds its lock.
struct PodStatus {
  PodState state = PodState::waiting;
  std::optional<LockHolder> shim;  // may still be set for a moment after `ended`
  std::optional<StartRecord> started;
  std::optional<EndRecord> ended;
};

// Reads the current status. A folder that does not exist is `waiting`.
PodStatus read_pod_status(const PodFolder& folder);

// The status as a Pod of the job model.
Pod to_pod(const PodStatus& status, int index, int attempt);

// Processes that a lost replica left behind: those with its pod_marker() in their environment.
std::vector<pid_t> find_leftover_processes(const PodFolder& folder);

// Kills such a process, unless its pid was reused in the meantime.
void kill_leftover_process(pid_t pid, const PodFolder& folder);

// The environment variable (NAME=value) that marks the processes of a replica.
std::string pod_marker(const PodFolder& folder);

// The wall-clock time in seconds.
JobTime current_time();

// Write and read a file with one JSON value. read_json() throws Error for invalid JSON, IoError if the file cannot be
// read.
void write_json(FileSystem& files, const std::string& path, const nlohmann::ordered_json& value);
nlohmann::ordered_json read_json(const std::string& path);

}  // namespace lockstep
