// Worked example. The gradient of a layer's weights is a product by the gradient of its result, 128 x 1024. That of its
// bias is the sum of the same matrix's columns, from which the new bias is computed. As a task of their own, the sums
// use half of the thread blocks, each of which reads its columns once more. But a thread block of the product has them
// in shared memory, and threads that do not multiply add them up meanwhile.
#include <algorithm>
#include <optional>
#include <utility>

#include "plan/cuda/rewrites.h"

namespace lockstep::detail {
namespace {

bool contains_index(const std::vector<size_t>& all, size_t one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// Whether the task can run on column sums in shared memory: each thread computes elements of its own, range by range,
// and reads only the same range of the sums.
bool can_use_sums(const GpuTask& task, ValueId sums, const GpuTarget& target) {
  if (!task.step || task.step->partial || task.step->elements == 0) return false;
  const TaskTraits::Ranges ranges = traits_of(task, target).ranges;
  if (ranges.most == 0) return false;
  for (size_t i = 0; i < task.in.size(); ++i)
    if (task.in[i].id == sums && !ranges.owns(i)) return false;
  return true;
}

// The tasks that read the column sums of task `sum`, in order. Empty if one of them cannot use sums in shared memory,
// or others use the memory of the sums. The last reader may overwrite the sums.
std::vector<size_t> readers_of(const KernelSchedule& kernel, size_t sum, const GpuTarget& target) {
  const TaskValue& sums = kernel.tasks[sum].out[0];
  if (kernel.needed.contains(sums.id)) return {};
  std::vector<size_t> out;
  for (size_t t = 0; t < kernel.tasks.size(); ++t) {
    if (t == sum) continue;
    const std::vector<TaskValue> in = operands(kernel.tasks[t]);
    const bool overwrites = contains_memory(results(kernel.tasks[t]), sums);
    if (!overwrites && !contains_memory(in, sums)) continue;
    const auto is_other = [&](const TaskValue& value) { return value.id != sums.id && same_memory(value, sums); };
    const bool reads = std::any_of(in.begin(), in.end(), [&](const TaskValue& value) { return value.id == sums.id; });
    if (!reads || std::any_of(in.begin(), in.end(), is_other) || !can_use_sums(kernel.tasks[t], sums.id, target))
      return {};
    out.push_back(t);
    if (overwrites) break;
  }
  return out;
}

// If the tasks `fused`, in order, run where the last of them does: the tasks that must come after them, in order.
// Nothing if that is not possible.
std::optional<std::vector<size_t>> tasks_after(const std::vector<GpuTask>& tasks, const std::vector<size_t>& fused) {
  std::vector<size_t> out;
  for (size_t t = fused.front() + 1; t < fused.back(); ++t) {
    if (contains_index(fused, t)) continue;
    const auto conflicts = [&](size_t each) { return conflict(tasks[each], tasks[t]); };
    const auto later = std::lower_bound(fused.begin(), fused.end(), t);
    if (!std::any_of(fused.begin(), later, conflicts) && !std::any_of(out.begin(), out.end(), conflicts)) continue;
    if (std::any_of(later, fused.end(), conflicts)) return {};
    out.push_back(t);
  }
  return out;
}

// Whether the product and the readers are independent, except for the sums, which are in shared memory. Threads execute
// them one after another without a barrier in between.
bool are_independent(const std::vector<GpuTask>& tasks, size_t product, const std::vector<size_t>& readers,
                     ValueId sums) {
  std::vector<GpuTask> before = {tasks[product]};
  for (const size_t reader : readers) {
    GpuTask task = tasks[reader];
    std::erase_if(task.in, [&](const TaskValue& value) { return value.id == sums; });
    if (std::any_of(before.begin(), before.end(), [&](const GpuTask& each) { return conflict(each, task); }))
      return false;
    before.push_back(std::move(task));
  }
  return true;
}

// The matrix whose columns the task can add up besides. REQUIRES: the task is a row.
ValueId summable_matrix(const GpuTask& task, const GpuTarget& target) {
  const std::optional<size_t> operand = traits_of(task, target).can_sum_columns_of;
  return operand && task.column_sums.empty() ? operands(task)[*operand].id : kNoValue;
}

// Fuses task `sum` and its readers into product `p`. Returns false, and changes nothing, if that is not possible.
bool fuse_into(std::vector<GpuTask>& tasks, size_t p, size_t sum, const std::vector<size_t>& readers,
               const GpuTarget& target) {
  std::vector<size_t> fused = {p, sum};
  fused.insert(fused.end(), readers.begin(), readers.end());
  std::sort(fused.begin(), fused.end());
  const std::optional<std::vector<size_t>> after = tasks_after(tasks, fused);
  if (!after || !are_independent(tasks, p, readers, tasks[sum].out[0].id)) return false;
  GpuTask product = tasks[p];
  product.column_sums = {tasks[sum]};
  for (const size_t reader : readers) product.column_sums.push_back(tasks[reader]);
  if (!lower_row(product, target)) return false;
  std::vector<GpuTask> all;
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (!contains_index(fused, t) && !contains_index(*after, t)) all.push_back(tasks[t]);
    if (t != fused.back()) continue;
    all.push_back(std::move(product));
    for (const size_t each : *after) all.push_back(tasks[each]);
  }
  tasks = std::move(all);
  return true;
}

// Fuses the first column sums that some product can add up.
bool fuse_first(KernelSchedule& kernel, const GpuTarget& target) {
  std::vector<GpuTask>& tasks = kernel.tasks;
  for (size_t sum = 0; sum < tasks.size(); ++sum) {
    if (!traits_of(tasks[sum], target).sums_columns) continue;
    const std::vector<size_t> readers = readers_of(kernel, sum, target);
    const ValueId matrix = tasks[sum].in[0].id;
    for (size_t p = 0; !readers.empty() && p < tasks.size(); ++p)
      if (p != sum && summable_matrix(tasks[p], target) == matrix && fuse_into(tasks, p, sum, readers, target))
        return true;
  }
  return false;
}

}  // namespace

void fuse_column_sums(KernelSchedule& kernel, const GpuTarget& target) {
  while (fuse_first(kernel, target)) {
  }
}

}  // namespace lockstep::detail
