// Runs a plan on a GPU: enqueues kernel by kernel, or replays captured graphs.
#include <algorithm>

#include "hardware/gpu_launch.h"
#include "plan/cuda_plan.h"
#include "plan/plan.h"

namespace lockstep {

bool Plan::waits() const {
  return std::any_of(instructions_.begin(), instructions_.end(), [](const Instruction& each) { return each.waits; });
}

bool Plan::make_sections() {
  // Launching a graph costs as much as launching a few kernels.
  constexpr size_t kGraphCost = 3;
  bool captured = false;
  for (size_t begin = 0, end = 0; begin < instructions_.size(); begin = end) {
    while (end < instructions_.size() && instructions_[end].waits == instructions_[begin].waits) ++end;
    const bool capture = !instructions_[begin].waits && end - begin > kGraphCost;
    sections_.push_back({begin, end, capture ? std::make_unique<detail::GraphCache>() : nullptr});
    captured |= capture;
  }
  return captured;
}

void Plan::compile_in_background() const {
  if (!cuda_) return;
  for (const Instruction& each : instructions_) detail::compile_gpu_kernel_in_background(each.kernel);
}

void Plan::run_on_gpu(const void* const* in, void* const* out) {
  if (instructions_.empty()) return;
  detail::enter_gpu(*cuda_);
  if (!ran_ && instructions_.size() > 1) compile_in_background();  // in parallel, not one by one as they are enqueued
  const auto name = [](const Instruction& instruction) {
    return instruction.op ? instruction.op->name : instruction.label;
  };
  GpuLaunch launch(instructions_.size(), name(instructions_.front()), name(instructions_.back()));
  const auto enqueue = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      launch.set_current_op(i, name(instructions_[i]));
      instructions_[i].kernel(instructions_[i].in.data(), instructions_[i].out.data());
    }
  };
  if (detail::is_capturing(*cuda_)) {
    set_pointers(in, out);
    return enqueue(0, instructions_.size());
  }
  pointers_.assign(in, in + inputs_);
  pointers_.insert(pointers_.end(), out, out + donated_input_.size());
  for (const StableBuffer& buffer : stable_buffers_) {
    const void*& pointer = pointers_[buffer.is_input ? buffer.index : inputs_ + buffer.index];
    void* const stable = buffer.memory->data();
    if (buffer.is_input) buffer.copy(&pointer, &stable);
    pointer = stable;
  }
  outs_.resize(donated_input_.size());
  for (size_t j = 0; j < outs_.size(); ++j) outs_[j] = const_cast<void*>(pointers_[inputs_ + j]);
  set_pointers(pointers_.data(), outs_.data());
  pointers_.push_back(arena_base_);
  for (const Section& section : sections_) {
    if (section.graphs)
      section.graphs->run(*cuda_, pointers_, [&] { enqueue(section.begin, section.end); });
    else
      enqueue(section.begin, section.end);
    // The first run loads kernels, one lane at a time, and loading may synchronize with the GPU. It must not wait for a
    // collective with a lane that loads later, so drain the GPU first.
    if (!ran_ && instructions_[section.begin].waits) detail::wait_for_gpu(*cuda_);
  }
  ran_ = true;
  for (const StableBuffer& buffer : stable_buffers_) {
    const void* const stable = buffer.memory->data();
    if (!buffer.is_input) buffer.copy(&stable, out + buffer.index);
  }
}

}  // namespace lockstep
