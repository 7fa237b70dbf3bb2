#include "plan/plan.h"

#include <fmt/format.h>

#include "comm/in_flight.h"

namespace lockstep {

void Plan::set(const PointerRef& ref, void* pointer) {
  Instruction& instruction = instructions_[ref.instruction];
  if (ref.is_result)
    instruction.out[ref.index] = pointer;
  else
    instruction.in[ref.index] = pointer;
}

void Plan::move_arena(std::byte* base) {
  for (const ArenaPatch& patch : arena_patches_) set(patch.pointer, base + patch.offset);
  arena_base_ = base;
}

void Plan::run(const void* const* in, void* const* out) {
  if (work_bytes_ > 0) {
    std::byte* const base =
        cuda_ ? detail::reserve_gpu_arena(*cuda_, gpu_arena_, work_bytes_) : arena_->reserve(work_bytes_);
    if (base != arena_base_) move_arena(base);
  }
  try {
    if (cuda_) return run_on_gpu(in, out);
    set_pointers(in, out);
    for (const Instruction& instruction : instructions_)
      instruction.kernel(instruction.in.data(), instruction.out.data());
  } catch (...) {
    in_flight_->abandon();  // lanes must not write to the caller's memory any more
    throw;
  }
}

void Plan::set_pointers(const void* const* in, void* const* out) {
  for (const Patch& patch : patches_)
    set(patch.pointer, patch.from_input ? const_cast<void*>(in[patch.index]) : out[patch.index]);
}

std::string Plan::describe() const {
  std::string out;
  for (const Instruction& i : instructions_) out += fmt::format("{}{}\n", i.op ? i.op->name : i.label, i.text);
  return out + fmt::format("arena and constants: {} bytes\n", arena_bytes_);
}

}  // namespace lockstep
