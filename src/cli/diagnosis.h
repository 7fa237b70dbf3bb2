// What `lockstep doctor` finds out about this process and its surroundings. Used by the main thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/address.h"
#include "cluster/detect.h"
#include "lane/gpu_report.h"

namespace lockstep::cli {

struct Diagnosis {
  // Something to be changed, and how.
  struct Problem {
    std::string what, remedy;
  };
  // A part of this build: "control plane", "gRPC"; empty: left out.
  struct Part {
    std::string name, used;
  };
  struct Coordinator {
    std::vector<std::string> numbers;  // what its name means here
    std::string answer;                // what came of asking
    std::string own_address;           // this machine's, on the way there
  };
  struct Devices {
    int cores = 0;
    int cpu_devices = 0;
    int64_t lanes = 0;
    int gpus_visible = 0;
    std::vector<int> gpus;
    std::string platform;  // what it computes on: "cpu", "cuda"; empty: what was asked for cannot be
  };

  std::string compiler, machine;
  std::vector<Part> parts;
  detail::Detection detection;
  Devices devices;
  GpuReport gpus;
  std::string host_name, full_host_name;
  std::vector<detail::Interface> interfaces;   // those that may be used, the best first
  std::vector<std::string> proxies;            // variables that name one
  uint64_t shared_bytes = 0, shared_free = 0;  // of /dev/shm
  std::string why_no_shared_memory;            // between processes of this host; empty: it works
  std::optional<Coordinator> coordinator;      // where one is needed and known

  std::vector<std::string> notes;
  std::vector<Problem> problems;
};

// Waits for an answer of a name server or a coordinator for at most so long, each. `platform` is what
// --platform says, empty where it was not given. Throws only for an unknown Options::cluster_detection_method.
Diagnosis diagnose(const distributed::Options&, const detail::LaunchEnvironment&, std::chrono::milliseconds timeout,
                   const std::string& platform);

}  // namespace lockstep::cli
