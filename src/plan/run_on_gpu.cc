// How a plan is run on a GPU: queued kernel by kernel, or as recordings of that.
#include <algorithm>

#include "lane/gpu_launch.h"
#include "plan/cuda_plan.h"
#include "plan/plan.h"

namespace lockstep {

bool Plan::waits() const {
  return std::any_of(instructions_.begin(), instructions_.end(), [](const Instruction& each) { return each.waits; });
}

bool Plan::make_sections() {
  // Starting a recording costs as much as starting a few kernels.
  constexpr size_t kFew = 3;
  bool recorded = false;
  for (size_t begin = 0, end = 0; begin < instructions_.size(); begin = end) {
    while (end < instructions_.size() && instructions_[end].waits == instructions_[begin].waits) ++end;
    const bool worth = !instructions_[begin].waits && end - begin > kFew;
    sections_.push_back({begin, end, worth ? std::make_unique<detail::Recordings>() : nullptr});
    recorded |= worth;
  }
  return recorded;
}

void Plan::begin() const {
  if (!cuda_) return;
  for (const Instruction& each : instructions_) detail::begin_gpu_kernel(each.kernel);
}

void Plan::run_on_gpu(const void* const* in, void* const* out) {
  if (instructions_.empty()) return;
  detail::enter_gpu(*cuda_);
  if (!ran_ && instructions_.size() > 1) begin();  // side by side, not one after the other as they are queued
  const auto name = [](const Instruction& instruction) {
    return instruction.op ? instruction.op->name : instruction.label;
  };
  GpuLaunch launch(instructions_.size(), name(instructions_.front()), name(instructions_.back()));
  const auto queue = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      launch.set_current_op(i, name(instructions_[i]));
      instructions_[i].kernel(instructions_[i].in.data(), instructions_[i].out.data());
    }
  };
  if (detail::is_recording(*cuda_)) {
    point(in, out);
    return queue(0, instructions_.size());
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
  for (const Section& section : sections_) {
    if (section.recordings)
      section.recordings->run(*cuda_, pointers_, [&] { queue(section.begin, section.end); });
    else
      queue(section.begin, section.end);
    // Kernels are made when they are first queued, by one lane at a time, and loading one may wait for all that the GPU
    // does: that must not be to wait for a lane whose turn comes later.
    if (!ran_ && instructions_[section.begin].waits) detail::wait_for_gpu(*cuda_);
  }
  ran_ = true;
  for (const Landing& landing : landings_) {
    const void* const own = landing.memory->data();
    if (!landing.is_input) landing.copy(&own, out + landing.index);
  }
}

}  // namespace lockstep
