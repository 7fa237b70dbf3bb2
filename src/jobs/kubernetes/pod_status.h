// Computes the columns READY and STATUS as `kubectl get pods` does. Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

struct PodStatusText {
  std::string status;  // "Running", "ImagePullBackOff", "Init:0/1", "Terminating", "Evicted"...
  int ready = 0, containers = 0;
};

// `pod` is a Pod object of the API server.
PodStatusText kubectl_pod_status(const nlohmann::ordered_json& pod);

}  // namespace lockstep
