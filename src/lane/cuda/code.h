// Compiles kernels from source text at run time (NVRTC) for the lane's GPU. Caches machine code on disk, keyed by the
// source, headers, options and compiler version; a cache that cannot be read or written only costs time. Safe from any
// thread.
#pragma once

#include <string>
#include <vector>

#include "lane/cuda/cuda_stream.h"

namespace lockstep {

// A header that kernels may include by name.
struct CudaHeader {
  const char* name;
  const char* text;
};

// A loaded kernel. Never unloaded.
class CudaFunction {
 public:
  // Enqueues the kernel. `arguments` holds a pointer to each argument; `shared_bytes` is the dynamic shared memory of a
  // thread block. `co_resident`: thread blocks wait for each other at grid barriers, so all must be resident together.
  //
  // The residency rule. A thread block that waits occupies its multiprocessor, so one that is not resident might never
  // start. Two conditions prevent that:
  //  1. All thread blocks of the kernel fit on the GPU at the same time: check_residency() before the first launch.
  //  2. Nothing else keeps multiprocessors occupied. On an exclusive GPU (CudaStream::is_exclusive()) this holds: only the
  //     previous kernel of the stream can still run, and it never waits for this one. There, kernels use programmatic
  //     dependent launch: they may start before the previous one has ended, and must execute griddepcontrol.wait before
  //     they access memory that it accesses. Elsewhere a cooperative launch starts all thread blocks or none.
  void launch(CudaStream& lane, int64_t blocks, int threads, void** arguments, int64_t shared_bytes = 0,
              bool co_resident = false) const;
  // Whether co-resident kernels use programmatic dependent launch on this GPU while it is exclusive. Kernels that are made
  // for it may be launched without.
  static bool uses_dependent_launch(const CudaInfo& info) { return info.exclusive && info.major >= 9; }
  // Throws Error unless that many thread blocks fit on the GPU at the same time. REQUIRES: the lane's GPU is current.
  void check_residency(const CudaStream& lane, int64_t blocks, int threads, int64_t shared_bytes) const;

 private:
  friend class CudaCode;
  void reserve_shared(int64_t bytes) const;

  cudaKernel_t kernel_ = nullptr;
};

// A pointer as an argument of launch().
inline void* argument(const void* const& pointer) { return const_cast<void*>(static_cast<const void*>(&pointer)); }
void* argument(const void* const&& pointer) = delete;  // the pointer would be a temporary

class CudaCode {
 public:
  // Returns the only kernel of `source`, which may have any name. Compiles equal sources once. Throws Error with the
  // compiler's log if the source does not compile.
  static CudaFunction get(CudaStream& lane, const std::string& source, const std::vector<CudaHeader>& headers);
  // Starts to compile the source, or to read it from the disk cache, on another thread. A later get() waits for it.
  static void compile_in_background(CudaStream& lane, const std::string& source,
                                    const std::vector<CudaHeader>& headers);
};

// How much the compiler optimizes. `least` takes half the time, for checks that a kernel compiles.
enum class CudaOptimization : uint8_t { full, least };

// Compiles a source for an architecture ("sm_90") and returns the machine code. Needs no GPU; also used by tests.
std::vector<char> compile_cuda(const std::string& source, const std::vector<CudaHeader>& headers,
                               const std::string& architecture, CudaOptimization = CudaOptimization::full);

// The folder of compiled kernels: cuda/ in $LOCKSTEP_CACHE_DIR, else in $XDG_CACHE_HOME/lockstep, else in
// ~/.cache/lockstep. Empty if none of the variables is set.
std::string cuda_cache_folder();

}  // namespace lockstep
