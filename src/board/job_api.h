// The jobs of this machine, as JSON for a board's page, and what its buttons do. Each call uses a runner of its own.
// Safe from any thread.
#pragma once

#include <string>

namespace lockstep::board {

// `{"jobs": [...]}` with the replicas of each job.
std::string jobs_json();

// The last lines that a replica printed, as plain text. Throws Error if the job does not exist.
std::string job_log(const std::string& namespace_name, const std::string& name, int replica);

// `action` is "suspend", "resume" or "delete". Throws Error if the job does not exist or the action is unknown.
void change_job(const std::string& namespace_name, const std::string& name, const std::string& action);

}  // namespace lockstep::board
