// Jobs on Kubernetes, through kubectl: it knows the clusters of its user, their certificates and plugins for logging
// in. Used by one thread.
#pragma once

#include <memory>

#include "jobs/runner.h"

namespace lockstep {

// Throws Error where there is no kubectl.
std::unique_ptr<Runner> make_kubernetes_runner();

}  // namespace lockstep
