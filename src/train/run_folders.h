// The folders that `lockstep train` keeps its runs in: runs/<date>-<model>-<n> below the working directory. A run's
// folder has its settings (config.yaml), its state (run.json), its checkpoints (step_00000938, ...), its metrics
// (log/metrics.jsonl, ...) and flight records (flight/). Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/job_attempts.h"
#include "train/run_record.h"

namespace lockstep {

// The folder of runs below the working directory.
inline constexpr const char* kRunsFolder = "runs";

// Creates the folder of a new run of a task, and returns its path. The name ends in the next free number, also if
// several processes create one at the same time. Throws IoError, with the ways to train anyway, if that is impossible.
std::string create_run_folder(const std::string& task);

// The folder of the run of this command that an earlier attempt of one of these jobs began; empty if there is none.
std::string find_restarted_run(const std::vector<JobAttempt>& jobs, const std::vector<std::string>& command);

// The folder of the run that a command's argument names: a path, the name of a run in runs/, `last`, the newest run, or
// `best`, see best_run(). Throws Error, starting with the name of the command, if there is none.
std::string find_run(const std::string& command, const std::string& argument);

// A run in runs/.
struct ListedRun {
  std::string name, folder;
  RunRecord record;
  bool lost = false;  // its process has ended without a word, such as by kill -9
};
// "running", "lost", "complete", "stopped" or "failed".
std::string state_of(const ListedRun& run);
// The run in a folder. None if it has no record. Throws Error for a damaged record.
std::optional<ListedRun> read_run(const std::string& folder);
// All runs below the working directory, in the order in which they were created. Appends the reason to `problems` for
// each one that cannot be read.
std::vector<ListedRun> list_runs(std::vector<std::string>& problems);

// The run with the best value of a metric, among those with the data set of the newest run; an empty metric stands for
// the main one of the newest run that has a metric. Null if no run has measured it.
const ListedRun* best_run(const std::vector<ListedRun>& runs, std::string metric = {});

}  // namespace lockstep
