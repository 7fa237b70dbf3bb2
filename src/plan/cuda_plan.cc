#include "plan/cuda_plan.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "base/os/environment.h"
#include "lane/cuda/cuda_lane.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "plan/whole_kernel.h"
#endif

namespace lockstep::detail {

#ifdef LOCKSTEP_WITH_CUDA
namespace {

// Runs the CPU kernel of an op between copies from the GPU and back.
Kernel through_host(const Op& op, const KernelSpec& spec, const KernelSpec& host) {
  struct State {
    CudaLane& lane;
    Kernel kernel;
    std::vector<BufferPtr> in, out;
    std::vector<const void*> in_data;
    std::vector<void*> out_data;
  };
  auto state = std::make_shared<State>(State{*spec.cuda, op.cpu(host), {}, {}, {}, {}});
  for (const Type& type : spec.in) {
    state->in.push_back(allocate(type.bytes()));
    state->in_data.push_back(state->in.back()->data());
  }
  for (const Type& type : spec.out) {
    state->out.push_back(allocate(type.bytes()));
    state->out_data.push_back(state->out.back()->data());
  }
  return [state](const void* const* in, void* const* out) {
    for (size_t i = 0; i < state->in.size(); ++i)
      state->lane.to_host(state->in[i]->data(), in[i], state->in[i]->size());
    state->kernel(state->in_data.data(), state->out_data.data());
    for (size_t o = 0; o < state->out.size(); ++o)
      state->lane.to_device(out[o], state->out[o]->data(), state->out[o]->size());
  };
}

}  // namespace

struct GraphCache::State {
  struct CachedGraph {
    std::vector<const void*> pointers;
    cudaGraphExec_t graph = nullptr;  // null: the pointers were seen once
    int64_t used = 0;
  };
  static constexpr size_t kMaxGraphs = 16;
  CudaLane* lane = nullptr;
  std::vector<CachedGraph> graphs;
  int64_t now = 0;
  bool waits = false;  // the work waits for the GPU
};

GraphCache::GraphCache() : state_(std::make_unique<State>()) {}
GraphCache::~GraphCache() {
  for (const State::CachedGraph& one : state_->graphs)
    if (one.graph) state_->lane->destroy_graph(one.graph);
}

void GraphCache::run(CudaLane& lane, const std::vector<const void*>& pointers, const std::function<void()>& work) {
  // With CUDA_LAUNCH_BLOCKING=1 every launch waits, so that an error names its op; a graph would be a single launch.
  static const bool blocking = environment_variable("CUDA_LAUNCH_BLOCKING") == "1";
  if (blocking || lane.capturing()) return work();
  State& s = *state_;
  if (s.waits) return work();
  s.lane = &lane;
  ++s.now;
  auto at = std::find_if(s.graphs.begin(), s.graphs.end(),
                         [&](const State::CachedGraph& one) { return one.pointers == pointers; });
  if (at == s.graphs.end()) {
    if (s.graphs.size() == State::kMaxGraphs) {
      at = std::min_element(s.graphs.begin(), s.graphs.end(),
                            [](const State::CachedGraph& a, const State::CachedGraph& b) { return a.used < b.used; });
      if (at->graph) lane.destroy_graph(at->graph);
      s.graphs.erase(at);
    }
    const int64_t before = CudaLane::wait_count();
    work();  // includes preparation on first use
    s.waits = CudaLane::wait_count() != before;
    s.graphs.push_back({pointers, nullptr, s.now});  // only after a successful run may it be captured
    return;
  }
  at->used = s.now;
  if (!at->graph) at->graph = lane.capture(work);
  lane.replay(at->graph);
}

BufferPtr copy_to_gpu(CudaLane& lane, const Buffer& host) {
  BufferPtr copy = lane.allocate(host.size());
  lane.to_device(copy->data(), host.data(), host.size());
  return copy;
}

Kernel gpu_kernel(const Op& op, const KernelSpec& spec, const KernelSpec& host, std::string& text, bool& waits) {
  Kernel kernel;
  if (op.cuda)
    kernel = op.cuda(spec);
  else if (op.loop || op.view)
    kernel = elementwise_cuda(op, spec);
  if (kernel) return kernel;
  text += " on the host";
  waits = true;
  return through_host(op, spec, host);
}

void compile_gpu_kernel_in_background(const Kernel& kernel) {
  if (const auto* stepped = kernel.target<SteppedKernel>()) stepped->begin();
  if (const auto* persistent = kernel.target<PersistentKernel>()) persistent->compile_in_background();
}

Kernel gpu_copy(CudaLane& lane, int64_t bytes) {
  return [&lane, bytes](const void* const* in, void* const* out) { lane.copy(out[0], in[0], bytes); };
}

BufferPtr gpu_memory(CudaLane& lane, int64_t bytes) { return lane.allocate(bytes); }
bool is_capturing(const CudaLane& lane) { return lane.capturing(); }
void enter_gpu(const CudaLane& lane) { lane.enter(); }
void wait_for_gpu(CudaLane& lane) { lane.wait_for_all(); }

std::byte* reserve_gpu_arena(CudaLane& lane, BufferPtr& arena, int64_t bytes) {
  if (!arena || arena->size() < bytes) {
    arena.reset();
    arena = lane.allocate(bytes, "the arena of a program");
  }
  return arena->data();
}
#else
namespace {
[[noreturn]] void fail_without_cuda() { LOCKSTEP_CHECK(false, "a GPU is used in a build without CUDA"); }
}  // namespace
BufferPtr copy_to_gpu(CudaLane&, const Buffer&) { fail_without_cuda(); }
Kernel gpu_kernel(const Op&, const KernelSpec&, const KernelSpec&, std::string&, bool&) { fail_without_cuda(); }
void compile_gpu_kernel_in_background(const Kernel&) { fail_without_cuda(); }
Kernel gpu_copy(CudaLane&, int64_t) { fail_without_cuda(); }
BufferPtr gpu_memory(CudaLane&, int64_t) { fail_without_cuda(); }
bool is_capturing(const CudaLane&) { fail_without_cuda(); }
void enter_gpu(const CudaLane&) { fail_without_cuda(); }
void wait_for_gpu(CudaLane&) { fail_without_cuda(); }
std::byte* reserve_gpu_arena(CudaLane&, BufferPtr&, int64_t) { fail_without_cuda(); }
struct GraphCache::State {};
GraphCache::GraphCache() = default;
GraphCache::~GraphCache() = default;
void GraphCache::run(CudaLane&, const std::vector<const void*>&, const std::function<void()>&) { fail_without_cuda(); }
#endif

}  // namespace lockstep::detail
