// A job of a manifest as a batch script: replicas are tasks, limits of the container are what each task gets, and
// annotations `slurm.lockstep/...` of the job say what only Slurm knows. Pure functions, safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jobs/model/job.h"
#include "jobs/slurm/script.h"

namespace lockstep {

struct SlurmPlace {
  std::string program;  // `lockstep`, by its path
  std::string folder;   // where the job was applied
  std::string logs;     // see SlurmScript
  int first_attempt = 0;
};

// Throws Error for an annotation or limit that makes no sense. What of the job is not used under Slurm is told to
// `note`.
SlurmScript slurm_script(const Job& job, const SlurmPlace& place, const std::function<void(std::string_view)>& note);

}  // namespace lockstep
