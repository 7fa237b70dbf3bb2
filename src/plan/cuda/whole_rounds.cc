// A plan that is one kernel does its rounds by itself.
#include <algorithm>

#include "hardware/gpu_launch.h"
#include "plan/cuda/cuda_plan.h"
#include "plan/cuda/whole_kernel.h"

namespace lockstep {

std::optional<RoundsKernel> CudaPlan::rounds(const Program& program, Pool& pool, CudaStream& stream,
                                             const CudaRounds& rounds) {
  PlannerOptions options;
  options.donated.assign(program.inputs.size(), false);
  std::fill_n(options.donated.begin(), rounds.carries, true);
  options.in_place = true;
  const std::shared_ptr<CudaPlan> plan = compile(program, pool, stream, options);
  if (plan->instructions_.size() != 1 || !plan->stable_buffers_.empty()) return {};
  Instruction& one = plan->instructions_[0];
  const auto* kernel = one.kernel.target<detail::PersistentKernel>();
  if (!kernel) return {};
  RoundsKernel out;
  for (size_t i = 0; i < rounds.carries; ++i) out.in_place.push_back(plan->donated_input(i) >= 0);
  detail::RoundStrides steps;
  steps.in.resize(one.in.size());
  steps.out.resize(one.out.size());
  for (const Patch& patch : plan->patches_)
    if (patch.index >= rounds.carries || !out.in_place[patch.index])
      (patch.pointer.is_result ? steps.out : steps.in)[patch.pointer.index] =
          (patch.from_input ? rounds.in_steps : rounds.out_steps)[patch.index];
  auto run = kernel->rounds(steps);
  if (!run) return {};
  out.run = [plan, run = std::move(run), count = rounds.count](const void* const* in, void* const* to,
                                                               const void* const* odd_in, void* const* odd_to) {
    Instruction& instruction = plan->instructions_[0];
    plan->reserve_arena();
    plan->stream_.enter();
    const GpuLaunch launch(1, instruction.label, instruction.label);
    plan->set_pointers(odd_in, odd_to);
    const std::vector<const void*> odd_operands = instruction.in;
    const std::vector<void*> odd_results = instruction.out;
    plan->set_pointers(in, to);
    run(instruction.in.data(), instruction.out.data(), odd_operands.data(), odd_results.data(), count);
  };
  return out;
}

}  // namespace lockstep
