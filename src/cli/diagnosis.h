// The checks of `lockstep doctor`: the environment, devices and network of this process. Used by the main thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/features.h"
#include "cluster/address.h"
#include "cluster/detect.h"
#include "lane/gpu_report.h"

namespace lockstep::cli {

struct Diagnosis {
  // A problem and how to fix it.
  struct Problem {
    std::string what, remedy;
  };
  struct Coordinator {
    std::vector<std::string> addresses;  // that its name resolves to
    std::string status;                  // the result of connecting to it, or of listening if this is process 0
    std::string own_address;             // the address of this host on the route to it
  };
  struct Devices {
    int cores = 0;
    int cpu_devices = 0;
    int64_t lanes = 0;
    int gpus_visible = 0;
    std::vector<int> gpus;
    std::string platform;  // "cpu" or "cuda"; empty: the requested platform is not usable
  };

  std::string compiler, machine;
  std::vector<Feature> parts;
  detail::Detection detection;
  Devices devices;
  GpuReport gpus;
  std::string host_name, full_host_name;
  std::vector<detail::Interface> interfaces;   // usable network interfaces, preferred first
  std::vector<std::string> proxies;            // names of proxy variables that are set
  uint64_t shared_bytes = 0, shared_free = 0;  // size and free space of /dev/shm
  std::string why_no_shared_memory;            // error of shared memory between processes; empty: it works
  std::optional<Coordinator> coordinator;      // set if the job needs a coordinator and its address is known

  std::vector<std::string> notes;
  std::vector<Problem> problems;
};

// Runs all checks. Waits at most `timeout` for each name server and coordinator. `platform` is the value of --platform;
// empty: not given. Throws only for an unknown Options::cluster_detection_method.
Diagnosis diagnose(const distributed::Options&, const detail::LaunchEnvironment&, std::chrono::milliseconds timeout,
                   const std::string& platform);

}  // namespace lockstep::cli
