// SlurmJobInfo: the state of a Slurm job, parsed from the output of scontrol, sacct and srun. Pure functions, safe from
// any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "jobs/model/job.h"

namespace lockstep {

struct SlurmJobInfo {
  std::string state;                                // "RUNNING", "NODE_FAIL"...
  std::string reason = {};                          // why it is pending: "Resources", "JobHeldUser"; "None"
  int restarts = 0;                                 // number of requeues
  int exit_code = 0;                                // of the batch script: 128 + n for signal n
  std::optional<JobTime> started = {}, ended = {};  // of the last start
  std::string nodes = {};                           // "n[1-2]"; empty while pending

  bool operator==(const SlurmJobInfo&) const = default;
};

enum class SlurmStage { waiting, running, succeeded, failed };

// A state that Lockstep does not know counts as `running`.
SlurmStage stage_of(const SlurmJobInfo& info);

// Parses the output of `scontrol show job --oneliner` with SLURM_TIME_FORMAT=%s. Returns nullopt if it is not a job.
std::optional<SlurmJobInfo> parse_scontrol(std::string_view line);

// Parses the first line of `sacct --parsable2 --noheader -X -o State,ExitCode,Start,End,NodeList,Restarts`. The last
// field may be missing: older versions of sacct do not have it. Returns nullopt if it is not a job.
std::optional<SlurmJobInfo> parse_sacct(std::string_view text);

// Parses srun's messages (`srun: error: n1: tasks 0-2: Exited with exit code 75`). Returns the exit code of each failed
// task, 128 + n for signal n. A missing task either succeeded, or srun did not report it.
std::map<int, int> parse_task_exit_codes(std::string_view text);

// The line that the batch script prints at the start of an attempt.
std::string slurm_attempt_marker(int attempt);
// The part of the batch script's output that belongs to one attempt, from its marker to the next.
std::string_view output_of_attempt(std::string_view text, int attempt);

nlohmann::ordered_json job_info_to_json(const SlurmJobInfo& info);
SlurmJobInfo job_info_from_json(const nlohmann::ordered_json& value);

}  // namespace lockstep
