// How a plan is run on a GPU: queued kernel by kernel, or as a recording of that.
#include "lane/gpu_launch.h"
#include "plan/cuda_plan.h"
#include "plan/plan.h"

namespace lockstep {

void Plan::run_on_gpu(const void* const* in, void* const* out) {
  if (instructions_.empty()) return;
  const auto name = [](const Instruction& instruction) {
    return instruction.op ? instruction.op->name : instruction.label;
  };
  GpuLaunch launch(instructions_.size(), name(instructions_.front()), name(instructions_.back()));
  const auto work = [&] {
    for (size_t i = 0; i < instructions_.size(); ++i) {
      launch.at(i, name(instructions_[i]));
      instructions_[i].kernel(instructions_[i].in.data(), instructions_[i].out.data());
    }
  };
  if (!is_worth_recording() || detail::is_recording(*cuda_)) {
    point(in, out);
    return work();
  }
  pointers_.assign(in, in + inputs_);
  pointers_.insert(pointers_.end(), out, out + donated_input_.size());
  const auto place = [&](const Landing& landing) -> const void*& {
    return pointers_[landing.is_input ? landing.index : inputs_ + landing.index];
  };
  for (const Landing& landing : landings_) {
    void* const own = landing.memory->data();
    if (landing.is_input) landing.copy(&place(landing), &own);
    place(landing) = own;
  }
  outs_.resize(donated_input_.size());
  for (size_t j = 0; j < outs_.size(); ++j) outs_[j] = const_cast<void*>(pointers_[inputs_ + j]);
  point(pointers_.data(), outs_.data());
  pointers_.push_back(arena_base_);
  recordings_.run(*cuda_, true, pointers_, work);
  for (const Landing& landing : landings_) {
    const void* const own = landing.memory->data();
    if (!landing.is_input) landing.copy(&own, out + landing.index);
  }
}

}  // namespace lockstep
