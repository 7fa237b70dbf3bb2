// Maps the lanes of this process to GPUs. By default each GPU assigned to the runtime has one lane.
// LOCKSTEP_CUDA_LANES=n makes n lanes instead, several on one GPU if there are fewer GPUs: this is how programs for
// several GPUs are tested on one. Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Returns the GPU of each lane. `gpus` are the GPUs assigned to the process; `variable` is LOCKSTEP_CUDA_LANES. Without
// it there are as many lanes as GPUs, or the largest smaller number that divides `devices`. Throws Error unless the
// variable is a number from 1 to 64. REQUIRES: gpus is not empty.
std::vector<int> assign_gpus_to_lanes(const std::vector<int>& gpus, int devices,
                                      const std::optional<std::string>& variable);

// The number of devices of a process with these GPUs if the user does not set it: one for each lane. Throws like
// assign_gpus_to_lanes().
int default_gpu_device_count(const std::vector<int>& gpus, const std::optional<std::string>& variable);

// The value of LOCKSTEP_CUDA_LANES; nullopt if it is unset or empty.
std::optional<std::string> gpu_lanes_variable();

// Assigns some of the visible GPUs to the current runtime, because its process shares the host with others. Call before
// a GPU is used. Without any the runtime computes on the CPU, and `why_none` is the reason to report.
void set_assigned_gpus(std::vector<int> gpus, std::string why_none = "");
struct AssignedGpus {
  std::vector<int> gpus;
  std::string why_none;
};
// The value of set_assigned_gpus(); nullopt if it was not called: then all visible GPUs are assigned.
std::optional<AssignedGpus> assigned_gpus();

}  // namespace lockstep
