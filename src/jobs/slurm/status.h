// SlurmJob: a job and its Slurm job. Translates Slurm's states into the conditions and events of a JAXJob. Pure
// functions, safe from any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/slurm/job_info.h"

namespace lockstep {

struct SlurmJob {
  Job job;
  std::string id;         // of the Slurm job; empty while suspended
  int first_attempt = 0;  // attempt with which this Slurm job started: a resume submits a new Slurm job
  std::string folder;     // folder of `lockstep apply`
  std::string program;    // path of `lockstep`
  SlurmJobInfo info;      // as last queried; an empty state: not queried yet
  std::vector<JobEvent> events;
};

// Updates the status from `info` and adds an event for each change. `exit_codes` has those of the current attempt's
// tasks; see parse_task_exit_codes().
void update_status(SlurmJob& job, const SlurmJobInfo& info, const std::map<int, int>& exit_codes, JobTime now);

// Set the status after `suspend` cancelled the Slurm job, and after `resume` submitted a new one.
void set_suspended(SlurmJob& job, JobTime now);
void set_resumed(SlurmJob& job, JobTime now);

// One pod for each replica; empty while the job is suspended.
std::vector<Pod> slurm_pods(const SlurmJob& job, const std::map<int, int>& exit_codes);

void add_event(SlurmJob& job, JobTime time, bool warning, std::string reason, std::string message);

nlohmann::ordered_json slurm_job_to_json(const SlurmJob& job);
// Throws Error if a value is missing or has the wrong type.
SlurmJob slurm_job_from_json(const nlohmann::ordered_json& value);

}  // namespace lockstep
