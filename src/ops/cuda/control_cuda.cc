// Sub-programs on the GPU: their kernels are queued one after another, as those of the program they belong to are. A
// scan waits for nothing, and is recorded with the rest; a cond has to know its predicate, and waits for it.
#include "lane/cuda/cuda_lane.h"
#include "ops/control.h"
#include "ops/cuda/kernels.h"

namespace lockstep {

Kernel scan_cuda(const KernelSpec& spec) {
  CudaLane& lane = *spec.cuda;
  // Kernels read and write several elements at once, and those of cuBLASLt are chosen for aligned matrices.
  constexpr int64_t kAlignment = 64;
  return scan_kernel(spec,
                     {[&lane](int64_t bytes) { return lane.allocate(bytes, "the slices of a scan"); },
                      [&lane](void* to, const void* from, int64_t bytes) { lane.copy(to, from, bytes); }, kAlignment});
}

Kernel cond_cuda(const KernelSpec& spec) {
  CudaLane& lane = *spec.cuda;
  return [&lane, yes = spec.compile(spec.attrs.program("if_true")), no = spec.compile(spec.attrs.program("if_false"))](
             const void* const* in, void* const* out) {
    bool predicate = false;
    lane.to_host(&predicate, in[0], sizeof predicate);
    (predicate ? yes : no)(in + 1, out);
  };
}

}  // namespace lockstep
