#include "lane/cuda/graph_cache.h"

#include <algorithm>

#include "base/os/environment.h"

namespace lockstep {

GraphCache::~GraphCache() {
  for (const CachedGraph& one : graphs_)
    if (one.graph) stream_.destroy_graph(one.graph);
}

void GraphCache::forget_oldest() {
  const auto oldest = std::min_element(graphs_.begin(), graphs_.end(),
                                       [](const CachedGraph& a, const CachedGraph& b) { return a.used < b.used; });
  if (oldest->graph) stream_.destroy_graph(oldest->graph);
  graphs_.erase(oldest);
}

void GraphCache::run(const std::vector<const void*>& pointers, const std::function<void()>& work) {
  // With CUDA_LAUNCH_BLOCKING=1 every launch waits, so that an error names its op; a graph would be a single launch.
  static const bool blocking = environment_variable("CUDA_LAUNCH_BLOCKING") == "1";
  if (blocking || stream_.capturing()) return work();
  ++now_;
  auto enqueue_lock = stream_.enqueue_lock();
  const bool exclusive = stream_.is_exclusive();  // until the lock is released
  const auto at = std::find_if(graphs_.begin(), graphs_.end(), [&](const CachedGraph& one) {
    return one.pointers == pointers && one.exclusive == exclusive;
  });
  if (at == graphs_.end()) {
    enqueue_lock.unlock();
    const int64_t before = CudaStream::wait_count();
    work();  // includes preparation on first use
    if (CudaStream::wait_count() != before) return;
    if (graphs_.size() == kMaxGraphs) forget_oldest();
    graphs_.push_back({pointers, exclusive, nullptr, now_});
    return;
  }
  at->used = now_;
  if (!at->graph) at->graph = stream_.capture(work);
  stream_.replay(at->graph);
}

}  // namespace lockstep
