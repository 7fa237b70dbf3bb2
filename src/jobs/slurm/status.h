// What a job of Slurm is in the words of JAXJob. Pure functions, safe from any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/slurm/sight.h"

namespace lockstep {

// A job with what the runner has to know beside it.
struct SlurmJob {
  Job job;
  std::string id;         // Slurm's number of it; empty while it is suspended
  int first_attempt = 0;  // the one with which Slurm's job began: one suspended and resumed is another job there
  std::string folder;     // where it was applied
  std::string program;    // `lockstep`, by its path
  SlurmSight sight;       // the last one; an empty state: none yet
  std::vector<JobEvent> events;
};

// Moves the status to what Slurm says now, and tells of it in events. `ends` are those of the present attempt's tasks.
void see(SlurmJob& job, const SlurmSight& sight, const std::map<int, int>& ends, JobTime now);

// It is not there any more: asked for by `suspend`.
void see_suspended(SlurmJob& job, JobTime now);

// Slurm has it again.
void see_resumed(SlurmJob& job, JobTime now);

std::vector<Pod> slurm_pods(const SlurmJob& job, const std::map<int, int>& ends);

void tell(SlurmJob& job, JobTime time, bool warning, std::string reason, std::string message);

nlohmann::ordered_json slurm_job_to_json(const SlurmJob& job);
// Throws Error when it is none.
SlurmJob slurm_job_from_json(const nlohmann::ordered_json& value);

}  // namespace lockstep
