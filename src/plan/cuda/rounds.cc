// A plan that is one persistent kernel runs the rounds of a scan or while_loop by itself.
#include <algorithm>

#include "hardware/gpu_launch.h"
#include "plan/cuda/cuda_plan.h"
#include "plan/cuda/persistent_kernel.h"

namespace lockstep {

std::optional<CudaPlan::Rounds> CudaPlan::rounds(const Program& program, Pool& pool, CudaStream& stream,
                                                 const CudaRounds& rounds) {
  PlannerOptions options;
  options.donated.assign(program.inputs.size(), false);
  std::fill_n(options.donated.begin(), rounds.carries, true);
  options.in_place = true;
  const std::shared_ptr<CudaPlan> plan = compile(program, pool, stream, options);
  if (plan->instructions_.size() != 1 || plan->persistent_kernels_.size() != 1 || !plan->stable_buffers_.empty())
    return {};
  const detail::PersistentKernel& kernel = *plan->persistent_kernels_[0];
  RoundsKernel out;
  for (size_t i = 0; i < rounds.carries; ++i) out.in_place.push_back(plan->donated_input(i) >= 0);
  detail::RoundStrides strides;
  for (const Patch& patch : plan->patches_) {
    if (!patch.from_input && patch.index == rounds.condition)
      strides.condition = kernel.values()[patch.pointer.index].memory;
    if (patch.index < rounds.carries && out.in_place[patch.index]) continue;
    if (const auto bytes = (patch.from_input ? rounds.in_steps : rounds.out_steps)[patch.index])
      strides.all.push_back({kernel.values()[patch.pointer.index].memory, *bytes});
  }
  if (rounds.condition && !strides.condition) return {};
  std::optional<detail::PersistentKernel::Rounds> made = kernel.rounds(strides);
  if (!made) return {};
  out.run = [plan, run = std::move(made->run), count = rounds.count, executed = rounds.executed](
                const void* const* in, void* const* to, const void* const* odd_in, void* const* odd_to) {
    Instruction& instruction = plan->instructions_[0];
    const CudaArena::Run arena(plan->device_arena_, plan->work_bytes_);
    if (plan->work_bytes_ > 0) plan->move_arena(arena.data());
    plan->stream_.enter();
    const GpuLaunch launch(1, instruction.label, instruction.label);
    plan->set_pointers(odd_in, odd_to);
    const std::vector<void*> odd = instruction.out;
    plan->set_pointers(in, to);
    run(instruction.out.data(), odd.data(), count, executed);
  };
  return Rounds{std::move(out), std::move(made->schedule)};
}

}  // namespace lockstep
