#include "plan/cuda/rewrites.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {

void prefetch_operands(KernelSchedule& kernel, const GpuTarget&) { set_prefetched(kernel, false); }

}  // namespace lockstep::detail
