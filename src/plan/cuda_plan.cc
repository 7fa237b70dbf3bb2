#include "plan/cuda_plan.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "lane/cuda/cuda_lane.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "plan/whole_kernel.h"
#endif

namespace lockstep::detail {

#ifdef LOCKSTEP_WITH_CUDA
namespace {

// The CPU's kernel between copies from the GPU and back.
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

struct Recordings::State {
  struct One {
    std::vector<const void*> pointers;
    cudaGraphExec_t graph = nullptr;  // null: seen once
    int64_t used = 0;
  };
  static constexpr size_t kMost = 16;
  CudaLane* lane = nullptr;
  std::vector<One> all;
  int64_t now = 0;
  bool waits = false;  // the work was seen to wait for the GPU
};

Recordings::Recordings() : state_(std::make_unique<State>()) {}
Recordings::~Recordings() {
  for (const State::One& one : state_->all)
    if (one.graph) state_->lane->destroy_graph(one.graph);
}

void Recordings::run(CudaLane& lane, const std::vector<const void*>& pointers, const std::function<void()>& work) {
  // Under it launches wait for their end, one by one, so that an error names its op: a recording would be one launch.
  static const bool blocking = [] {
    const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value && std::string_view(value) == "1";
  }();
  if (blocking || lane.capturing()) return work();
  State& s = *state_;
  if (s.waits) return work();
  s.lane = &lane;
  ++s.now;
  auto at = std::find_if(s.all.begin(), s.all.end(), [&](const State::One& one) { return one.pointers == pointers; });
  if (at == s.all.end()) {
    if (s.all.size() == State::kMost) {
      at = std::min_element(s.all.begin(), s.all.end(),
                            [](const State::One& a, const State::One& b) { return a.used < b.used; });
      if (at->graph) lane.destroy_graph(at->graph);
      s.all.erase(at);
    }
    const int64_t before = CudaLane::wait_count();
    work();  // also what is prepared on first use
    s.waits = CudaLane::wait_count() != before;
    s.all.push_back({pointers, nullptr, s.now});  // only where that went well may it be recorded
    return;
  }
  at->used = s.now;
  if (!at->graph) at->graph = lane.capture(work);
  lane.replay(at->graph);
}

BufferPtr on_gpu(CudaLane& lane, const Buffer& host) {
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

void begin_gpu_kernel(const Kernel& kernel) {
  if (const auto* stepped = kernel.target<SteppedKernel>()) stepped->begin();
  if (const auto* whole = kernel.target<WholeKernel>()) whole->begin();
}

Kernel gpu_copy(CudaLane& lane, int64_t bytes) {
  return [&lane, bytes](const void* const* in, void* const* out) { lane.copy(out[0], in[0], bytes); };
}

BufferPtr gpu_memory(CudaLane& lane, int64_t bytes) { return lane.allocate(bytes); }
bool is_recording(const CudaLane& lane) { return lane.capturing(); }
void enter_gpu(const CudaLane& lane) { lane.enter(); }
void wait_for_gpu(CudaLane& lane) { lane.wait_for_all(); }

std::byte* gpu_work_space(CudaLane& lane, BufferPtr& own, int64_t bytes) {
  if (!own || own->size() < bytes) {
    own.reset();
    own = lane.allocate(bytes, "the work space of a program");
  }
  return own->data();
}
#else
namespace {
[[noreturn]] void missing() { LOCKSTEP_CHECK(false, "a GPU is used in a build without CUDA"); }
}  // namespace
BufferPtr on_gpu(CudaLane&, const Buffer&) { missing(); }
Kernel gpu_kernel(const Op&, const KernelSpec&, const KernelSpec&, std::string&, bool&) { missing(); }
void begin_gpu_kernel(const Kernel&) { missing(); }
Kernel gpu_copy(CudaLane&, int64_t) { missing(); }
BufferPtr gpu_memory(CudaLane&, int64_t) { missing(); }
bool is_recording(const CudaLane&) { missing(); }
void enter_gpu(const CudaLane&) { missing(); }
void wait_for_gpu(CudaLane&) { missing(); }
std::byte* gpu_work_space(CudaLane&, BufferPtr&, int64_t) { missing(); }
struct Recordings::State {};
Recordings::Recordings() = default;
Recordings::~Recordings() = default;
void Recordings::run(CudaLane&, const std::vector<const void*>&, const std::function<void()>&) { missing(); }
#endif

}  // namespace lockstep::detail
