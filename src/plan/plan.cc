#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "comm/in_flight.h"
#include "lane/trace.h"
#include "passes/passes.h"
#include "plan/planner.h"

namespace lockstep {

Plan::Plan(Arena* arena) : in_flight_(std::make_shared<InFlight>()), arena_(arena ? arena : &own_arena_) {}

Plan::Plan(const Program& program, Pool& pool, const PlannerOptions& options) : Plan(options.arena) {
  Planner(program, pool, options, *this).run();
}

void Plan::set(const PointerRef& ref, void* pointer) {
  Instruction& instruction = instructions_[ref.instruction];
  if (ref.is_result)
    instruction.out[ref.index] = pointer;
  else
    instruction.in[ref.index] = pointer;
}

void Plan::move_arena(std::byte* base) {
  if (base == arena_base_) return;
  for (const ArenaPatch& patch : arena_patches_) set(patch.pointer, base + patch.offset);
  arena_base_ = base;
}

void Plan::run(const void* const* in, void* const* out) {
  if (work_bytes_ > 0) move_arena(arena_->reserve(work_bytes_));
  set_pointers(in, out);
  try {
    if (Trace::is_on()) [[unlikely]]
      return run_traced();
    for (const Instruction& instruction : instructions_)
      instruction.kernel(instruction.in.data(), instruction.out.data());
  } catch (...) {
    abandon();
    throw;
  }
}

std::string_view Plan::name_of(const Instruction& instruction) {
  return instruction.op ? instruction.op->name : instruction.label;
}

void Plan::run_traced() const {
  for (const Instruction& each : instructions_) {
    const auto kind = each.op && each.op->is_collective() ? TraceSpan::Kind::collective : TraceSpan::Kind::compute;
    const TracedScope scope(kind, name_of(each), Trace::lane());
    each.kernel(each.in.data(), each.out.data());
  }
}

void Plan::abandon() { in_flight_->abandon(); }

void Plan::set_pointers(const void* const* in, void* const* out) {
  for (const Patch& patch : patches_)
    set(patch.pointer, patch.from_input ? const_cast<void*>(in[patch.index]) : out[patch.index]);
}

bool Plan::waits() const {
  return std::any_of(instructions_.begin(), instructions_.end(), [](const Instruction& each) { return each.waits; });
}

std::string Plan::describe() const {
  std::string out;
  for (const Instruction& i : instructions_) out += fmt::format("{}{}\n", name_of(i), i.text);
  return out + fmt::format("arena and constants: {} bytes\n", arena_bytes_);
}

std::string Plan::schedule() const {
  std::string out;
  for (const Instruction& i : instructions_) {
    out += fmt::format("{}{}\n", name_of(i), i.text);
    for (const std::string& body : i.bodies) {
      out += "  body:\n";
      std::istringstream lines(body);
      for (std::string line; std::getline(lines, line);) out += "    " + line + "\n";
    }
  }
  return out + fmt::format("arena and constants: {} bytes\n", arena_bytes_);
}

std::shared_ptr<Plan> compile(const Program& program, Pool& pool, const PlannerOptions& options) {
  return std::make_shared<Plan>(lower(program), pool, options);
}

}  // namespace lockstep
