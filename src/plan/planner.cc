#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/check.h"
#include "passes/passes.h"
#include "program/effects.h"

namespace lockstep {
namespace {

// Values that depend only on constants are computed at compile time, up to this size.
constexpr int64_t kMaxConstantBytes = int64_t{1} << 20;

// Whether the result is the operand's memory with another shape.
bool is_reshape_of(const Op& op, const Type& in, const Type& out, const Attrs& attrs) {
  if (!op.view || in.dtype != out.dtype || count(in.shape) != count(out.shape)) return false;
  const View view = op.view(in, out, attrs);
  if (view.offset != 0) return false;
  int64_t stride = 1;
  for (size_t d = out.shape.size(); d-- > 0;) {
    if (out.shape[d] != 1 && view.strides[d] != stride) return false;
    stride *= out.shape[d];
  }
  return true;
}

}  // namespace

Planner::Planner(const Program& program, Pool& pool, const PlannerOptions& options, Plan& plan)
    : p_(program),
      types_(program.types),
      pool_(pool),
      donated_(options.donated),
      in_place_(options.in_place),
      comm_(options.comm),
      plan_(plan) {
  donated_.resize(program.inputs.size(), false);
}

void Planner::run() {
  find_bases();
  find_lifetimes();
  assign_inputs_and_outputs();
  assign_constants();
  assign_donated();
  assign_blocks();
  schedule();
  plan_.work_bytes_ = assign_offsets(blocks_);
  plan_.arena_bytes_ += plan_.work_bytes_;
  add_instructions();
  copy_outputs();
  finish();
}

void Planner::add_instructions() {
  for (const Eqn* eqn : steps_) add_instruction(*eqn);
}

void Planner::find_bases() {
  base_.resize(p_.types.size());
  for (ValueId id : p_.inputs) base_[id] = id;
  for (const Eqn& eqn : p_.eqns) {
    for (ValueId id : eqn.out) base_[id] = id;
    if (eqn.in.size() == 1 && eqn.out.size() == 1 &&
        is_reshape_of(*eqn.op, types_[eqn.in[0]], types_[eqn.out[0]], eqn.attrs)) {
      base_[eqn.out[0]] = base_[eqn.in[0]];
    } else {
      steps_.push_back(&eqn);
    }
  }
}

void Planner::find_lifetimes() {
  first_.assign(p_.types.size(), -1);
  last_.assign(p_.types.size(), -1);
  for (size_t t = 0; t < steps_.size(); ++t) {
    for (ValueId id : steps_[t]->in) last_[base(id)] = static_cast<int>(t);
    for (ValueId id : steps_[t]->out) first_[id] = last_[id] = static_cast<int>(t);
  }
  for (ValueId id : p_.outputs) last_[base(id)] = INT_MAX;
}

void Planner::assign_inputs_and_outputs() {
  slot_.resize(p_.types.size());
  for (size_t i = 0; i < p_.inputs.size(); ++i) slot_[p_.inputs[i]] = {MemorySlot::input, i};
  for (size_t j = 0; j < p_.outputs.size(); ++j) {
    MemorySlot& slot = slot_[base(p_.outputs[j])];
    if (slot.kind == MemorySlot::none) slot = {MemorySlot::output, j};
  }
}

void Planner::assign_constants() {
  for (const Eqn* eqn : steps_) {
    bool all = true;
    all &= !is_ordered(*eqn);  // neither collectives nor effects happen at compile time
    for (ValueId id : eqn->in) all &= slot_[base(id)].kind == MemorySlot::constant;
    for (ValueId id : eqn->out) all &= slot_[id].kind == MemorySlot::none && bytes(id) <= kMaxConstantBytes;
    if (!all) continue;
    for (ValueId id : eqn->out) {
      slot_[id] = {MemorySlot::constant, plan_.constants_.size()};
      plan_.constants_.push_back(allocate(bytes(id)));
      plan_.arena_bytes_ += bytes(id);
    }
  }
}

bool Planner::may_overwrite(int t, size_t result, ValueId operand) const {
  const Eqn& eqn = *steps_[t];
  if (!eqn.op->alias || bytes(eqn.out[result]) != bytes(operand)) return false;
  std::vector<Type> in, out;
  for (ValueId id : eqn.in) in.push_back(types_[id]);
  for (ValueId id : eqn.out) out.push_back(types_[id]);
  int times = 0;  // KernelSpec::alias names only one operand per result
  for (size_t k = 0; k < eqn.in.size(); ++k) {
    if (base(eqn.in[k]) != operand) continue;
    if (++times > 1 || !eqn.op->alias(in, out, eqn.attrs, k, result)) return false;
  }
  return true;
}

void Planner::assign_donated() {
  plan_.donated_input_.assign(p_.outputs.size(), -1);
  std::vector<bool> taken(p_.inputs.size(), false);
  auto donate = [&](size_t output, size_t input) {
    plan_.donated_input_[output] = static_cast<int>(input);
    taken[input] = true;
  };
  const auto may_donate = [&](size_t output, size_t input) {
    return donated_[input] && !taken[input] && (!in_place_ || input == output);
  };
  // An output that is itself a donated input keeps its memory.
  for (size_t j = 0; j < p_.outputs.size(); ++j) {
    const MemorySlot& slot = slot_[base(p_.outputs[j])];
    if (slot.kind == MemorySlot::input && may_donate(j, slot.index)) donate(j, slot.index);
  }
  for (const bool in_place : {true, false}) {
    for (size_t j = 0; j < p_.outputs.size(); ++j) {
      const ValueId v = base(p_.outputs[j]);
      if (slot_[v].kind != MemorySlot::output || slot_[v].index != j || plan_.donated_input_[j] >= 0) continue;
      const int t = first_[v];
      const auto& results = steps_[t]->out;
      const auto result = static_cast<size_t>(std::find(results.begin(), results.end(), v) - results.begin());
      for (size_t i = 0; i < p_.inputs.size() && plan_.donated_input_[j] < 0; ++i) {
        const ValueId from = p_.inputs[i];
        if (!may_donate(j, i) || bytes(from) != bytes(v)) continue;
        if (in_place ? last_[from] == t && may_overwrite(t, result, from) : last_[from] < t) donate(j, i);
      }
    }
  }
}

void Planner::assign_blocks() {
  for (size_t t = 0; t < steps_.size(); ++t) {
    std::vector<ValueId> reused;  // operands that a result of this step overwrites
    for (size_t k = 0; k < steps_[t]->out.size(); ++k) {
      const ValueId v = steps_[t]->out[k];
      if (slot_[v].kind != MemorySlot::none) continue;
      for (ValueId operand : steps_[t]->in) {
        const ValueId from = base(operand);
        if (slot_[from].kind != MemorySlot::arena || last_[from] != static_cast<int>(t) ||
            std::find(reused.begin(), reused.end(), from) != reused.end() ||
            !may_overwrite(static_cast<int>(t), k, from))
          continue;
        slot_[v] = slot_[from];
        blocks_[slot_[v].index].last = last_[v];
        reused.push_back(from);
        break;
      }
      if (slot_[v].kind != MemorySlot::none) continue;
      slot_[v] = {MemorySlot::arena, blocks_.size()};
      blocks_.push_back({bytes(v), first_[v], last_[v], 0});
    }
  }
}

ValueId Planner::add_value(const Type& type) {
  const auto id = static_cast<ValueId>(types_.size());
  types_.push_back(type);
  base_.push_back(id);
  slot_.push_back({MemorySlot::arena, blocks_.size()});
  blocks_.push_back({type.bytes(), 0, 0, 0});
  return id;
}

template <class P>
void Planner::add_pointer(size_t instruction, std::vector<P>& list, ValueId id, bool is_result, bool on_host) {
  const MemorySlot& slot = slot_[base(id)];
  switch (slot.kind) {
    case MemorySlot::constant:
      list.push_back(const_cast<P>(on_host ? plan_.constants_[slot.index]->data()
                                           : constant_memory(slot.index, plan_.constants_[slot.index])));
      return;
    case MemorySlot::arena:
      plan_.arena_patches_.push_back({{instruction, list.size(), is_result}, blocks_[slot.index].offset});
      list.push_back(nullptr);
      return;
    case MemorySlot::input:
    case MemorySlot::output:
      plan_.patches_.push_back({{instruction, list.size(), is_result}, slot.kind == MemorySlot::input, slot.index});
      list.push_back(nullptr);
      return;
    case MemorySlot::none:
      break;
  }
  LOCKSTEP_CHECK(false, "a value has no memory");
}

bool Planner::same_memory(ValueId a, ValueId b) const {
  if (bytes(a) == 0 || bytes(b) == 0) return false;
  auto key = [&](ValueId id) {
    const MemorySlot& slot = slot_[base(id)];
    if (slot.kind == MemorySlot::output && plan_.donated_input_[slot.index] >= 0)
      return std::pair{static_cast<int>(MemorySlot::input), static_cast<int64_t>(plan_.donated_input_[slot.index])};
    if (slot.kind == MemorySlot::arena) return std::pair{static_cast<int>(slot.kind), blocks_[slot.index].offset};
    return std::pair{static_cast<int>(slot.kind), static_cast<int64_t>(slot.index)};
  };
  return key(a) == key(b);
}

std::string Planner::memory_text(ValueId id) const {
  static constexpr const char* kNames[] = {"?", "in", "out", "arena", "const"};
  const MemorySlot& slot = slot_[base(id)];
  return fmt::format("{}@{}{}", to_string(types_[id]), kNames[slot.kind],
                     slot.kind == MemorySlot::arena ? blocks_[slot.index].offset : static_cast<int64_t>(slot.index));
}

bool Planner::is_constant(const Eqn& eqn) const {
  return std::all_of(eqn.out.begin(), eqn.out.end(),
                     [&](ValueId id) { return slot_[id].kind == MemorySlot::constant; });
}

std::vector<int> Planner::aliases_of(const Eqn& eqn) const {
  std::vector<int> alias(eqn.out.size(), -1);
  for (size_t k = 0; k < eqn.out.size(); ++k)
    for (size_t o = 0; o < eqn.in.size(); ++o)
      if (same_memory(eqn.out[k], eqn.in[o])) alias[k] = static_cast<int>(o);
  return alias;
}

void Planner::add_sub_plan(const Plan& sub, bool& waits) {
  waits |= sub.waits();
  plan_.arena_bytes_ += sub.arena_bytes();
}

Kernel Planner::prepare_kernel(const Op& op, const KernelSpec& host, std::string&, bool&) { return op.cpu(host); }

Kernel Planner::copy_kernel(int64_t bytes) const {
  return [n = static_cast<size_t>(bytes)](const void* const* in, void* const* out) { std::memcpy(out[0], in[0], n); };
}

void Planner::add_instruction(const Eqn& eqn) {
  LOCKSTEP_CHECK(eqn.op->cpu, "{} has no CPU kernel", eqn.op->name);
  std::vector<Type> in, out;
  for (ValueId id : eqn.in) in.push_back(types_[id]);
  for (ValueId id : eqn.out) out.push_back(types_[id]);
  const std::vector<int> alias = aliases_of(eqn);
  const bool constant = is_constant(eqn);
  Plan::Instruction instruction;
  instruction.op = eqn.op;
  instruction.waits = eqn.op->is_collective();
  const auto compile_on_host = [this, &instruction](const Program& sub) -> Kernel {
    std::shared_ptr<Plan> plan = compile(sub, pool_);
    add_sub_plan(*plan, instruction.waits);
    instruction.bodies.push_back(plan->schedule());
    return [plan](const void* const* from, void* const* to) { plan->run(from, to); };
  };
  const KernelSpec host{in, out, eqn.attrs, pool_, alias, compile_on_host, comm_, plan_.in_flight_, nullptr};
  instruction.kernel =
      constant ? eqn.op->cpu(host) : prepare_kernel(*eqn.op, host, instruction.text, instruction.waits);

  const size_t n = plan_.instructions_.size();
  for (ValueId id : eqn.in) {
    add_pointer(n, instruction.in, id, false, constant);
    instruction.text += ' ' + memory_text(id);
  }
  instruction.text += " ->";
  for (ValueId id : eqn.out) {
    add_pointer(n, instruction.out, id, true, constant);
    instruction.text += ' ' + memory_text(id);
  }
  if (constant) return instruction.kernel(instruction.in.data(), instruction.out.data());
  plan_.instructions_.push_back(std::move(instruction));
}

void Planner::add_instruction(Plan::Instruction instruction, const std::vector<ValueId>& values) {
  for (const ValueId id : values) add_pointer(plan_.instructions_.size(), instruction.out, id, true, false);
  plan_.instructions_.push_back(std::move(instruction));
}

void Planner::copy_outputs() {
  for (size_t j = 0; j < p_.outputs.size(); ++j) {
    const ValueId v = p_.outputs[j];
    const MemorySlot& slot = slot_[base(v)];
    if ((slot.kind == MemorySlot::output && slot.index == j) || bytes(v) == 0) continue;
    if (slot.kind == MemorySlot::input && plan_.donated_input_[j] == static_cast<int>(slot.index)) continue;
    Plan::Instruction instruction;
    instruction.kernel = copy_kernel(bytes(v));
    const size_t at = plan_.instructions_.size();
    add_pointer(at, instruction.in, v, false, false);
    plan_.patches_.push_back({{at, 0, true}, false, j});
    instruction.out.push_back(nullptr);
    instruction.text = fmt::format(" {} -> out{}", memory_text(v), j);
    plan_.instructions_.push_back(std::move(instruction));
  }
}

}  // namespace lockstep
