// Applies the objects of manifests: for `lockstep apply` and `lockstep submit`. Used by the main thread only.
#pragma once

#include <functional>
#include <string_view>

#include "cli/job_files.h"

namespace lockstep::cli {

// Applies all objects, the jobs last, and prints a line for each. On Kubernetes, makes the jobs the owners of what was
// rendered with them, and says why the first pods are refused, if they are. Elsewhere applies only the jobs.
void apply_jobs(Runner& runner, const JobFlags& flags, const JobFiles& files,
                const std::function<void(std::string_view)>& note);

}  // namespace lockstep::cli
