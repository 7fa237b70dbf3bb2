#include "plan/cuda/lower.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

bool lower_members(GpuTask& task, const GpuTarget& target) {
  std::vector<GpuTask> members = task.members;
  for (GpuTask& member : members)
    if (!lower(member, target)) return false;
  task.members = std::move(members);
  return true;
}

bool is_same_text(const CudaStep& a, const CudaStep& b) {
  return a.body == b.body && a.prelude == b.prelude && a.parameters == b.parameters && a.blocks == b.blocks &&
         a.shared_bytes == b.shared_bytes && a.workspaces == b.workspaces;
}

GpuTask with_fewer_ranges(const GpuTask& task, int processors, const GpuTarget& target) {
  GpuTask fewer = task;
  fewer.count = range_count(task.members, std::min<int64_t>(task.count, processors), target);
  return fewer.count > 0 && lower_ranges(fewer, target) ? fewer : task;
}

}  // namespace

bool lower(GpuTask& task, const GpuTarget& target) {
  switch (task.form) {
    case TaskForm::row:
      return lower_row(task, target);
    case TaskForm::chain:
    case TaskForm::elements:
      return lower_members(task, target);
    case TaskForm::ranges:
      return lower_ranges(task, target);
    case TaskForm::exchange:
      return lower_exchange(task, target);
  }
  return false;
}

GpuTask with_processors(const GpuTask& task, int processors, const GpuTarget& target) {
  if (task.form == TaskForm::ranges) return with_fewer_ranges(task, processors, target);
  if (task.form != TaskForm::row && task.form != TaskForm::exchange) return task;
  GpuTask other = task;
  GpuTask& row = task.form == TaskForm::row ? other : other.members[0];
  row.processors = processors;
  row.tile.reset();
  return lower(other, target) && !is_same_text(*other.step, *task.step) ? other : task;
}

GpuTask divided(GpuTask row, TaskDivision division, int64_t count) {
  row.division = division;
  row.count = count;
  row.tile.reset();
  return row;
}

std::string copy_to_shared_text(int64_t bytes, const std::string& to, const std::string& from) {
  const int64_t size = bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 1;
  const std::string at = fmt::format("{} + i * {}u", to, size), of = fmt::format("{} + i * {}u", from, size);
  return fmt::format(
      "  for (uint32_t i = threadIdx.x; i < {}u; i += {}u) {}\n", bytes / size, kStepThreads,
      size == 1 ? fmt::format("*({}) = *({});", at, of) : fmt::format("copy_async<{}>({}, {}, true);", size, at, of));
}

std::string untyped_parameters(const CudaStep& step) {
  std::string out;
  for (size_t a = 0; a < step.arguments.size(); ++a)
    out += fmt::format(", {}char* q{}", step.arguments[a].kind == CudaStep::Argument::operand ? "const " : "", a);
  return out;
}

}  // namespace lockstep::detail
