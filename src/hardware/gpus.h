// Whether this machine has GPUs that this process can use. Opens no library if CUDA is not built in or if the machine
// has no NVIDIA hardware. Safe from any thread.
#pragma once

#include <string>

namespace lockstep {

// Whether this process can use a GPU.
struct GpuStatus {
  bool usable = false;
  std::string why_not;   // if not usable: the reason and the remedy
  bool present = false;  // NVIDIA hardware exists, so users should learn why it is not used
  int devices = 1;       // default number of devices: one per GPU of this process
};

// A library of CUDA.
struct GpuLibrary {
  std::string name;          // "cudart"
  std::string file;          // the file that was opened; empty if the library is missing
  std::string remedy;        // if missing: "cuda: fact; remedy"
  std::string without = {};  // what is slower or unavailable without it; empty if the library is required
};

// Detects the GPUs of this machine.
GpuStatus detect_gpus();

// The number of GPUs that CUDA shows to this process, including GPUs assigned to other processes.
int visible_gpu_count();

// Whether the machine has NVIDIA hardware, judged by the driver's device files.
bool nvidia_hardware_present();

// Formats a version number of CUDA: "13.0" for 13000, empty for 0.
std::string cuda_version_text(int version);

}  // namespace lockstep
