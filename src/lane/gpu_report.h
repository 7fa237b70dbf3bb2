// Reports the GPUs and CUDA libraries of this machine, for commands that print them. Opens no library if CUDA is not
// built in or if the machine has no NVIDIA hardware. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hardware/gpus.h"

namespace lockstep {

struct Gpu {
  std::string name;          // "NVIDIA H200"
  int64_t memory = 0;        // bytes
  int64_t free = -1;         // bytes; -1 if unknown, see why_not
  int major = 0, minor = 0;  // compute capability
  int processors = 0;        // streaming multiprocessors
  std::string why_not = {};  // why this process cannot use it now: "cuda: fact; remedy"; empty if it can
};

struct GpuReport {
  bool built_in = false;              // this build can use GPUs
  bool seen = false;                  // the machine has NVIDIA hardware
  std::string driver, runtime;        // versions of CUDA: "13.0"; empty if unknown
  std::vector<GpuLibrary> libraries;  // empty if the machine has no NVIDIA hardware
  std::vector<Gpu> gpus;              // the GPUs visible to this process
  std::vector<int> used;              // the visible GPUs that lanes of this process use, by number; see gpu_lanes.h
  std::string why_not;                // why no GPU is usable: "cuda: fact; remedy"; empty if one is
};

// Reports all GPUs, including free memory, and all libraries. Creates a CUDA context on every visible GPU.
GpuReport report_gpus();
// Reports only the first GPU that this process uses, and no libraries.
GpuReport report_first_gpu();

// The GPU of each lane, and the number of lanes; see hardware/gpu_lanes.h. REQUIRES: a GPU is usable.
std::vector<int> lane_gpus();
int64_t gpu_lane_count();

// "NVIDIA H200, 139.8 GiB of memory, 138.9 GiB free, compute capability 9.0, 132 multiprocessors".
std::string to_string(const Gpu& gpu);

// The report as lines of name and value: the driver, the libraries (with a remedy for each missing one), the GPUs.
std::vector<std::pair<std::string, std::string>> report_lines(const GpuReport& report);

}  // namespace lockstep
