// A plan that is one kernel does its rounds by itself.
#include <algorithm>

#include "hardware/gpu_launch.h"
#include "plan/cuda_plan.h"
#include "plan/plan.h"
#include "plan/whole_kernel.h"

namespace lockstep {

std::optional<RoundsKernel> PlanRounds::of(const Program& program, Pool& pool, CudaLane& lane,
                                           const CudaRounds& rounds) {
  PlanOptions options;
  options.donated.assign(program.inputs.size(), false);
  std::fill_n(options.donated.begin(), rounds.carries, true);
  options.in_place = true;
  options.cuda = &lane;
  const std::shared_ptr<Plan> plan = compile(program, pool, options);
  if (plan->instructions_.size() != 1 || !plan->stable_buffers_.empty()) return {};
  Plan::Instruction& one = plan->instructions_[0];
  const auto* kernel = one.kernel.target<detail::PersistentKernel>();
  if (!kernel) return {};
  RoundsKernel out;
  for (size_t i = 0; i < rounds.carries; ++i) out.in_place.push_back(plan->donated_input(i) >= 0);
  detail::RoundStrides steps;
  steps.in.resize(one.in.size());
  steps.out.resize(one.out.size());
  for (const Plan::Patch& patch : plan->patches_)
    if (patch.index >= rounds.carries || !out.in_place[patch.index])
      (patch.pointer.is_result ? steps.out : steps.in)[patch.pointer.index] =
          (patch.from_input ? rounds.in_steps : rounds.out_steps)[patch.index];
  auto run = kernel->rounds(steps);
  if (!run) return {};
  out.run = [plan, run = std::move(run), count = rounds.count](const void* const* in, void* const* to,
                                                               const void* const* odd_in, void* const* odd_to) {
    Plan::Instruction& instruction = plan->instructions_[0];
    if (plan->work_bytes_ > 0) {
      std::byte* const base = detail::reserve_gpu_arena(*plan->cuda_, plan->gpu_arena_, plan->work_bytes_);
      if (base != plan->arena_base_) plan->move_arena(base);
    }
    detail::enter_gpu(*plan->cuda_);
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
