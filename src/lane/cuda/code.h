// Kernels compiled while the program runs, from text, for the GPU that is there. What was compiled once is kept on
// disk, by what it was made of and for; a cache that cannot be read or written only costs time. Safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "lane/cuda/cuda_lane.h"

namespace lockstep {

// A header that kernels may include by name.
struct CudaHeader {
  const char* name;
  const char* text;
};

// A function on the GPU, for as long as the process lives.
class CudaFunction {
 public:
  // `arguments` points to each of them; a block has `shared_bytes` of memory of its own. `together`: all blocks run at
  // the same time, so that they may wait for each other; there must not be more than fit. Such a kernel may be started
  // before the one before it has ended, and must wait for that (griddepcontrol.wait) before it touches memory.
  void launch(CudaLane& lane, int64_t blocks, int threads, void** arguments, int64_t shared_bytes = 0,
              bool together = false) const;
  // Is it, on such a GPU?
  static bool starts_early(const CudaInfo& info) { return info.alone && info.major >= 9; }

 private:
  friend class CudaCode;
  cudaKernel_t kernel_ = nullptr;
};

// A pointer as an argument of launch().
inline void* argument(const void* const& pointer) { return const_cast<void*>(static_cast<const void*>(&pointer)); }
void* argument(const void* const&& pointer) = delete;  // which would be gone

class CudaCode {
 public:
  // The function `f`, extern "C" in `source`. Equal sources are compiled once. Throws Error with the compiler's words
  // when the source is wrong.
  static CudaFunction get(CudaLane& lane, const std::string& source, const std::vector<CudaHeader>& headers);
  // Has it compiled, or read from the disk, by another thread, for a get() to come, which waits for that.
  static void begin(CudaLane& lane, const std::string& source, const std::vector<CudaHeader>& headers);
};

// The machine code of a source for an architecture ("sm_90"); for tests, which need no GPU.
std::vector<char> compile_cuda(const std::string& source, const std::vector<CudaHeader>& headers,
                               const std::string& architecture);

// Where compiled kernels are kept: $LOCKSTEP_CACHE_DIR, else $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep, and
// there cuda/; empty when there is no such place.
std::string cuda_cache_folder();

}  // namespace lockstep
