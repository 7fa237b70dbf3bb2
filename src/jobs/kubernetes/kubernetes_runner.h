// The runner for Kubernetes. It runs kubectl, which has the user's clusters, certificates and credential plugins. Used
// by one thread.
#pragma once

#include <memory>

#include "jobs/runner.h"

namespace lockstep {

// Throws Error if kubectl is not on the PATH.
std::unique_ptr<Runner> make_kubernetes_runner();

}  // namespace lockstep
