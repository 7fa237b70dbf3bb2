#include "plan/cuda/rewrites.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {

void assign_phases(KernelSchedule& kernel, const GpuTarget&) {
  remove_phases(kernel);
  set_phases(kernel, PhaseAssigner(kernel.tasks).assign());
}

}  // namespace lockstep::detail
