// The GPUs of this machine and what is there to use them, for commands that report. Where CUDA is not built in, or no
// NVIDIA hardware is there, nothing is opened. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct Gpu {
  std::string name;          // "NVIDIA H200"
  int64_t memory = 0;        // bytes
  int64_t free = -1;         // bytes; -1: it does not say, see why_not
  int major = 0, minor = 0;  // compute capability
  int processors = 0;        // streaming multiprocessors
  std::string why_not = {};  // why this process cannot use it now: "cuda: fact; remedy"; empty: it can
};

struct GpuLibrary {
  std::string name;          // "cudart"
  std::string file;          // as it was opened; empty: it is not there
  std::string remedy;        // where it is not: "cuda: fact; remedy"
  std::string without = {};  // what is slower, or cannot be, without it; empty: nothing can be computed
};

struct GpuReport {
  bool built_in = false;              // this build can use GPUs
  bool seen = false;                  // the machine shows NVIDIA hardware
  std::string driver, runtime;        // versions of CUDA: "13.0"; empty: unknown
  std::vector<GpuLibrary> libraries;  // where there is something to use them with
  std::vector<Gpu> gpus;              // those visible to this process
  std::vector<int> used;              // those that its lanes compute on, by number; see gpu_lanes.h
  std::string why_not;                // why none is usable: "cuda: fact; remedy"; empty: one is
};

// Opens the GPUs to ask for their free memory, and looks for the libraries.
GpuReport report_gpus();
// Opens one only, the first that this process computes on, and looks for no libraries.
GpuReport report_first_gpu();

// Those that this process sees and CUDA can use, whosever they are.
int visible_gpu_count();

// How many lanes of this process compute on GPUs; see gpu_lanes.h. REQUIRES: there is one to compute on.
int64_t gpu_lane_count();

// Whether the machine shows NVIDIA hardware: the driver's device files are there.
bool gpu_seen();

// "NVIDIA H200, 139.8 GiB of memory, 138.9 GiB free, compute capability 9.0, 132 multiprocessors".
std::string to_string(const Gpu& gpu);

// Names and values, a line each: the driver, the libraries, those that are missing with the remedy, the GPUs.
std::vector<std::pair<std::string, std::string>> lines_of(const GpuReport& report);

// "13.0" of 13000; empty for 0.
std::string cuda_version_text(int version);

}  // namespace lockstep
