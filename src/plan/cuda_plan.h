// What a plan needs of a GPU. Where CUDA is not built in there is no GPU, and none of these is ever called.
#pragma once

#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "program/op.h"

namespace lockstep::detail {

// A copy in the GPU's memory.
BufferPtr on_gpu(CudaLane&, const Buffer& host);

// The kernel of a row there. One that has none is computed on the host, as `host` says: it is added to the plan's text,
// and `waits` is set.
Kernel gpu_kernel(const Op&, const KernelSpec&, const KernelSpec& host, std::string& text, bool& waits);

// Has its code compiled by other threads, for a call to come; where it is not known yet, nothing.
void begin_gpu_kernel(const Kernel&);

Kernel gpu_copy(CudaLane&, int64_t bytes);
BufferPtr gpu_memory(CudaLane&, int64_t bytes);
// Is what is queued now recorded?
bool is_recording(const CudaLane&);
// What this thread queues from now on is for that GPU.
void enter_gpu(const CudaLane&);
// Returns when it has nothing to do any more.
void wait_for_gpu(CudaLane&);

// Recordings of what a plan queues, one for each set of pointers it was run with lately: replaying one costs the host
// one call. Made when the same pointers come again. Not copied; used by one thread at a time.
class Recordings {
 public:
  Recordings();
  ~Recordings();
  // Runs `work`, or the recording of it that was made with these pointers. Work that is seen to wait for the GPU is
  // never recorded.
  void run(CudaLane&, const std::vector<const void*>& pointers, const std::function<void()>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Work space of so many bytes, in `own`, which grows.
std::byte* gpu_work_space(CudaLane&, BufferPtr& own, int64_t bytes);

}  // namespace lockstep::detail
