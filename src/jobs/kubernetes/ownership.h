// Makes a job the owner of the objects that `lockstep render` wrote with it, so that Kubernetes deletes them together.
// Used by one thread.
#pragma once

#include <string>
#include <vector>

#include "jobs/model/manifest.h"

namespace lockstep {

// A job on the cluster; JobSets and TrainJobs, too.
struct ObjectName {
  std::string kind, name, namespace_name;
};

// Makes the job the owner of those of the applied `objects` that were rendered for it. Without the permission, prints a
// note. Throws as kubectl.h does.
void adopt_rendered_objects(const ObjectName& job, const std::vector<OtherObject>& objects);

}  // namespace lockstep
