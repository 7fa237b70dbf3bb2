// The columns READY and STATUS of `kubectl get pods`. Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

struct PodStatusText {
  std::string status;  // "Running", "ImagePullBackOff", "Init:0/1", "Terminating", "Evicted"...
  int ready = 0, containers = 0;
};

// Of a Pod as the API server has it.
PodStatusText kubectl_pod_status(const nlohmann::ordered_json& pod);

}  // namespace lockstep
