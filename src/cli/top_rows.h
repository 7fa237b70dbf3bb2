// The rows of `lockstep top`: training runs and jobs of this machine, read from run folders, the job state and /proc.
// Used by one thread.
#pragma once

#include <sys/types.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "jobs/runner.h"

namespace lockstep::cli {

struct TopRow {
  enum class Kind { run, job, replica };

  Kind kind = Kind::run;
  std::string name;                    // of a replica: of its pod
  std::string state;                   // "running", "complete", ...; of jobs and replicas as in `get`
  std::string what = {};               // the model, or "1/2 replicas"
  int64_t step = -1, total_steps = 0;  // -1: unknown
  double loss = NAN;
  std::vector<double> losses = {};
  std::string metric = {};  // the last evaluation: "test_accuracy 0.9709"
  double rate = 0;          // 0: unknown
  std::string rate_unit = {};
  double seconds_left = -1;                                     // -1: unknown
  int64_t memory = -1;                                          // bytes of its processes; -1: unknown
  pid_t process = 0;                                            // to stop a run; 0: none
  double updated = 0;                                           // seconds since 1970; 0: unknown
  std::vector<std::pair<std::string, std::string>> facts = {};  // for the details
  std::vector<std::string> log = {};                            // the last lines
};

// Processes of this machine.
class ProcessTable {
 public:
  // Reads /proc, or another folder of that form.
  explicit ProcessTable(const std::string& folder = "/proc");

  bool exists(pid_t process) const { return processes_.contains(process); }
  // The process, or the `lockstep launch` that started it.
  pid_t launcher_of(pid_t process) const;
  // Resident memory of a process and of those that it started, in bytes.
  int64_t memory_of(pid_t process) const;

 private:
  struct Process {
    pid_t parent = 0;
    std::string command;
    int64_t memory = 0;
  };
  std::map<pid_t, Process> processes_;
};

// The row of a run folder, which has run.json or metrics.jsonl (itself, or in log/). Fields that are missing or damaged
// are unknown. `host`: the name of this machine. `now`: seconds since 1970.
TopRow read_run_row(const std::string& folder, const ProcessTable& processes, const std::string& host, double now);

// Whether a folder is one of a run.
bool is_run_folder(const std::string& folder);

// The runs in these folders: each is a run, or contains runs.
std::vector<TopRow> read_run_rows(const std::vector<std::string>& folders, const ProcessTable& processes, double now);

// The jobs of a runner, each followed by its replicas.
std::vector<TopRow> read_job_rows(Runner& runner, const ProcessTable& processes);

}  // namespace lockstep::cli
