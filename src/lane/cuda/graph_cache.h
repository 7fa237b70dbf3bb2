// GraphCache: the captured graphs of some work, one for each recent set of pointers. Captures when the same pointers
// occur a second time; replaying costs the host one call. Used by one thread at a time.
#pragma once

#include <functional>
#include <vector>

#include "lane/cuda/cuda_stream.h"

namespace lockstep {

class GraphCache {
 public:
  explicit GraphCache(CudaStream& stream) : stream_(stream) {}
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // Runs `work`, or replays the graph that was captured with these pointers. Captures only after a run with them that did
  // not wait for the GPU. A graph belongs to the way in which kernels were launched, which depends on
  // CudaStream::is_exclusive().
  void run(const std::vector<const void*>& pointers, const std::function<void()>& work);

 private:
  struct CachedGraph {
    std::vector<const void*> pointers;
    bool exclusive = false;
    cudaGraphExec_t graph = nullptr;  // null: the pointers were seen once
    int64_t used = 0;
  };
  static constexpr size_t kMaxGraphs = 16;
  void forget_oldest();

  CudaStream& stream_;
  std::vector<CachedGraph> graphs_;
  int64_t now_ = 0;
};

}  // namespace lockstep
