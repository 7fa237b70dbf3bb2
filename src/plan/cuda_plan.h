// The GPU functions that plans use. In a build without CUDA they exist but must not be called. Safe from any thread
// except where noted.
#pragma once

#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "program/op.h"

namespace lockstep::detail {

// Copies host memory to the GPU.
BufferPtr copy_to_gpu(CudaLane&, const Buffer& host);

// The GPU kernel of an op. An op without one runs on the host, prepared with the spec `host`, between copies; then
// "on the host" is appended to `text`, and `waits` is set.
Kernel gpu_kernel(const Op&, const KernelSpec&, const KernelSpec& host, std::string& text, bool& waits);

// Starts to compile the kernel's code on another thread, if its source is known already.
void compile_gpu_kernel_in_background(const Kernel&);

// A kernel that copies device memory.
Kernel gpu_copy(CudaLane&, int64_t bytes);
BufferPtr gpu_memory(CudaLane&, int64_t bytes);
// Whether the calling thread is capturing a graph.
bool is_capturing(const CudaLane&);
// Makes the GPU current for the calling thread.
void enter_gpu(const CudaLane&);
// Waits for all enqueued work and collectives.
void wait_for_gpu(CudaLane&);

// The captured graphs of a plan's section, one for each recent set of pointers. Captures when the same pointers occur a
// second time; replaying costs the host one call. Used by one thread at a time.
class GraphCache {
 public:
  GraphCache();
  ~GraphCache();
  // Runs `work`, or replays the graph that was captured with these pointers. Never captures work that waits.
  void run(CudaLane&, const std::vector<const void*>& pointers, const std::function<void()>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns device memory of at least `bytes`, kept in `arena`, which grows if needed.
std::byte* reserve_gpu_arena(CudaLane&, BufferPtr& arena, int64_t bytes);

}  // namespace lockstep::detail
