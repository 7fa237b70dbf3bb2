#include "plan/cuda/schedule_planner.h"

#include <climits>
#include <utility>

#include "base/runtime_settings.h"
#include "ops/cuda/cost_model.h"
#include "plan/cuda/kernel_text.h"
#include "plan/cuda/rewrites.h"

namespace lockstep {
namespace {

// Whether the row is small enough to be part of a persistent kernel. Lowers it.
bool may_join(GpuTask& task, const GpuTarget& target) {
  return detail::runtime_option(&RuntimeOptions::persistent_kernel) && lower_row(task, target) &&
         task.step->blocks <= target.processors * cost_model::kMostBlocksPerProcessor &&
         task.step->operations <= cost_model::kMostJoinedOperations;
}

// The values that a kernel reads or writes in memory.
std::vector<TaskValue> values_in(const detail::KernelSchedule& kernel) {
  if (!kernel.library) return detail::values_of(detail::pointers_of(kernel));
  std::vector<TaskValue> out = kernel.tasks[0].in;
  out.insert(out.end(), kernel.tasks[0].out.begin(), kernel.tasks[0].out.end());
  return out;
}

}  // namespace

TaskValue SchedulePlanner::task_value(ValueId id) {
  MemorySlot slot = this->slot(id);
  if (slot.kind == MemorySlot::output && plan_.donated_input(slot.index) >= 0)
    slot = {MemorySlot::input, static_cast<size_t>(plan_.donated_input(slot.index))};
  const ValueId first = slot.kind == MemorySlot::input
                            ? program().inputs[slot.index]
                            : memory_by_slot_.try_emplace({slot.kind, slot.index}, base(id)).first->second;
  return {base(id), type(id), first};
}

void SchedulePlanner::make_kernels() {
  std::vector<detail::KernelSchedule>& kernels = schedule_.kernels;
  const GpuTarget& target = schedule_.target;
  detail::KernelSchedule open;  // the persistent kernel that is being filled
  std::vector<const Eqn*> open_rows;
  int64_t open_bytes = 0;
  const auto close = [&] {
    if (open.tasks.empty()) return;
    open.library = open.tasks.size() == 1;
    if (open.library) open.tasks[0].step.reset();  // its own kernel is faster alone
    kernels.push_back(std::exchange(open, {}));
    rows_.push_back(std::exchange(open_rows, {}));
    open_bytes = 0;
  };
  for (const Eqn* eqn : steps()) {
    if (is_constant(*eqn)) continue;
    GpuTask task;
    task.op = eqn->op;
    task.attrs = eqn->attrs;
    int64_t scratch = 0;
    for (const ValueId id : eqn->in) task.in.push_back(task_value(id));
    for (const ValueId id : eqn->out) {
      task.out.push_back(task_value(id));
      if (slot(id).kind == MemorySlot::arena) scratch += bytes(id);
    }
    if (!may_join(task, target)) {
      close();
      kernels.push_back({.tasks = {std::move(task)}, .library = true});
      rows_.push_back({eqn});
      continue;
    }
    if (open_bytes + scratch > cost_model::kNoReuseBytes) close();
    open.tasks.push_back(task);
    if (detail::pointer_count(open) > cost_model::kMostPointers) {
      open.tasks.pop_back();
      close();
      open.tasks.push_back(std::move(task));
    }
    open_rows.push_back(eqn);
    open_bytes += scratch;
  }
  close();
}

void SchedulePlanner::optimize_kernels() {
  std::vector<detail::KernelSchedule>& kernels = schedule_.kernels;
  std::map<ValueId, size_t> last_read;  // by value: the last kernel that reads it
  for (size_t k = 0; k < kernels.size(); ++k)
    for (const GpuTask& task : kernels[k].tasks)
      for (const TaskValue& value : task.in) last_read[value.id] = k;
  auto next = static_cast<ValueId>(program().types.size());
  for (size_t k = 0; k < kernels.size(); ++k) {
    for (const GpuTask& task : kernels[k].tasks)
      for (const TaskValue& value : task.out)
        if (const auto found = last_read.find(value.id);
            slot(value.id).kind != MemorySlot::arena || (found != last_read.end() && found->second > k))
          kernels[k].needed.insert(value.id);
    if (kernels[k].library) continue;
    kernels[k].next_value = next;
    detail::optimize(kernels[k], schedule_.target);
    next = detail::unused_value(kernels[k]);
  }
}

void SchedulePlanner::assign_lifetimes() {
  const std::vector<detail::KernelSchedule>& kernels = schedule_.kernels;
  std::map<ValueId, Type> added;
  ValueId known = static_cast<ValueId>(program().types.size());
  for (const detail::KernelSchedule& kernel : kernels)
    for (const TaskValue& value : values_in(kernel))
      if (value.id >= known) added.emplace(value.id, value.type);
  for (const auto& [id, type] : added)
    for (; known <= id; ++known) add_value(type);  // rewrites may skip numbers
  std::vector<ArenaBlock>& blocks = arena_blocks();
  std::vector<bool> used(blocks.size());
  for (size_t k = 0; k < kernels.size(); ++k)
    for (const TaskValue& value : values_in(kernels[k])) {
      if (slot(value.id).kind != MemorySlot::arena) continue;
      const size_t b = slot(value.id).index;
      if (!used[b]) blocks[b].first = static_cast<int>(k);
      blocks[b].last = static_cast<int>(k);
      used[b] = true;
    }
  int64_t total = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (!used[b]) blocks[b].bytes = 0;
    total += blocks[b].bytes;
  }
  if (total > cost_model::kNoReuseBytes) return;
  for (ArenaBlock& block : blocks) block.first = 0, block.last = INT_MAX;
}

void SchedulePlanner::schedule() {
  make_kernels();
  optimize_kernels();
  assign_lifetimes();
}

}  // namespace lockstep
