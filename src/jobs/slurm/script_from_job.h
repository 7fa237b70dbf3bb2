// Translates a job from a manifest into a batch script. Replicas become tasks, and the resource limits of the container
// become the resources of each task. Annotations `slurm.lockstep/...` set the options that only Slurm has. Pure
// functions, safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jobs/model/job.h"
#include "jobs/slurm/script.h"

namespace lockstep {

struct SlurmScriptContext {
  std::string program;    // path of `lockstep`
  std::string folder;     // folder of `lockstep apply`, base of relative paths
  std::string logs;       // see SlurmScript
  int first_attempt = 0;  // see SlurmScript
};

// Throws Error for an invalid annotation or limit. Passes to `note` a sentence for the user if the image is ignored.
SlurmScript slurm_script_from_job(const Job& job, const SlurmScriptContext& context,
                                  const std::function<void(std::string_view)>& note);

}  // namespace lockstep
