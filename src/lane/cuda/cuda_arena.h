// CudaArena: device memory that a plan needs during its runs only. It stays between runs, so that captured graphs remain
// valid, until the GPU has no other memory left: then CudaStream::allocate() frees it. Safe from any thread; one run of a
// plan at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "lane/buffer.h"

namespace lockstep {

class CudaStream;

class CudaArena {
 public:
  explicit CudaArena(CudaStream& stream);
  ~CudaArena();
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;

  // The memory while a run is enqueued. Inside another run of this thread, the work may become part of its graph: then the
  // arena keeps its memory for good.
  class Run {
   public:
    // Throws OutOfMemory. Without bytes, there is no memory.
    Run(CudaArena& arena, int64_t bytes);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    std::byte* data() const { return data_; }

   private:
    CudaArena& arena_;
    std::byte* data_ = nullptr;
  };

 private:
  friend class CudaStream;

  CudaStream& stream_;
  BufferPtr memory_;
  // Protected by CudaStream::arenas_mutex_:
  bool running_ = false, kept_ = false;
  std::list<CudaArena*>::iterator at_;  // in CudaStream::arenas_
};

}  // namespace lockstep
