// What Slurm's programs say about a job, read. Pure functions, safe from any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "jobs/model/job.h"

namespace lockstep {

// A job as Slurm sees it.
struct SlurmSight {
  std::string state;                                // "RUNNING", "NODE_FAIL"...
  std::string reason = {};                          // why it waits: "Resources", "JobHeldUser"; "None"
  int restarts = 0;                                 // so often it went back into the queue
  int exit_code = 0;                                // of the script: 128 + n for signal n
  std::optional<JobTime> started = {}, ended = {};  // of the last start
  std::string nodes = {};                           // "n[1-2]"; empty while it waits

  bool operator==(const SlurmSight&) const = default;
};

enum class SlurmStage { waiting, running, succeeded, failed };

// Words that Slurm may add one day are taken for `running`: nothing is decided because of them.
SlurmStage stage_of(const SlurmSight& sight);

// The line of `scontrol show job --oneliner`, with times in seconds (SLURM_TIME_FORMAT=%s). None when it is none.
std::optional<SlurmSight> parse_scontrol(std::string_view line);

// The first line of `sacct --parsable2 --noheader -X -o State,ExitCode,Start,End,NodeList,Restarts`, without the last
// field where an older one knows no restarts.
std::optional<SlurmSight> parse_sacct(std::string_view text);

// How tasks ended, by what srun said (`srun: error: n1: tasks 0-2: Exited with exit code 75`): exit codes, 128 + n for
// signal n. A task that is not there ended well, or nothing was said.
std::map<int, int> parse_task_ends(std::string_view text);

// What of a job's own output belongs to one attempt: it begins with slurm_attempt_mark(attempt).
std::string slurm_attempt_mark(int attempt);
std::string_view attempt_text(std::string_view text, int attempt);

nlohmann::ordered_json sight_to_json(const SlurmSight& sight);
SlurmSight sight_from_json(const nlohmann::ordered_json& value);

}  // namespace lockstep
