#include "ops/cuda/task.h"

#include <algorithm>

#include "base/check.h"
#include "lane/cuda/code.h"
#include "lane/cuda/gemm_cuda.h"
#include "ops/cuda/elementwise_cuda.h"

namespace lockstep {

GpuTarget GpuTarget::of(const CudaInfo& info) {
  return {.processors = info.processors,
          .shared_bytes = info.shared,
          .major = info.major,
          .tf32 = cuda_math() == CudaMath::tf32,
          .dependent_launch = CudaFunction::uses_dependent_launch(info)};
}

bool same_memory(const TaskValue& a, const TaskValue& b) {
  return a.memory == b.memory && a.memory != kNoValue && a.bytes() > 0 && b.bytes() > 0;
}

bool contains_memory(const std::vector<TaskValue>& all, const TaskValue& one) {
  return std::any_of(all.begin(), all.end(), [&](const TaskValue& each) { return same_memory(each, one); });
}

bool TaskTraits::Ranges::supports(TaskDivision division, int64_t count) const {
  if (division == TaskDivision::ranges) return supports(count);
  return division == TaskDivision::warps && by_warp && most > 0 && count > 0 && most % count == 0;
}

bool TaskTraits::Ranges::owns(size_t operand) const { return std::find(own.begin(), own.end(), operand) != own.end(); }

bool GpuTask::operator==(const GpuTask& o) const {
  const auto same_producer = [](const Producer& a, const Producer& b) {
    return a.operand == b.operand && a.task == b.task && a.written == b.written;
  };
  return form == o.form && op == o.op && attrs == o.attrs && in == o.in && out == o.out &&
         std::equal(producers.begin(), producers.end(), o.producers.begin(), o.producers.end(), same_producer) &&
         ready == o.ready && summed == o.summed && column_sums == o.column_sums && stage == o.stage &&
         division == o.division && processors == o.processors && exchanged == o.exchanged && tile == o.tile &&
         count == o.count && members == o.members && prefetched == o.prefetched;
}

std::vector<TaskValue> operands(const GpuTask& task) {
  std::vector<TaskValue> all;
  const auto add = [&](const GpuTask& other) {
    const std::vector<TaskValue> more = operands(other);
    all.insert(all.end(), more.begin(), more.end());
  };
  if (task.form != TaskForm::row) {
    for (const GpuTask& member : task.members) add(member);
    return all;
  }
  all = task.in;
  for (const GpuTask::Producer& producer : task.producers) {
    all[producer.operand] = {};
    add(producer.task);
  }
  if (task.column_sums.empty()) return all;
  const ValueId sums = task.column_sums[0].out[0].id;
  for (size_t k = 1; k < task.column_sums.size(); ++k)
    for (const TaskValue& value : operands(task.column_sums[k]))
      if (value.id != sums) all.push_back(value);
  return all;
}

std::vector<TaskValue> results(const GpuTask& task) {
  std::vector<TaskValue> all = task.out;
  const auto add = [&](const GpuTask& other) {
    const std::vector<TaskValue> more = results(other);
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const GpuTask& member : task.members) add(member);
  for (const GpuTask::Producer& producer : task.producers)
    if (producer.written) all.push_back(producer.task.out[0]);
  for (size_t k = 1; k < task.column_sums.size(); ++k) add(task.column_sums[k]);
  return all;
}

bool conflict(const GpuTask& a, const GpuTask& b) {
  const std::vector<TaskValue> a_in = operands(a), a_out = results(a), b_in = operands(b), b_out = results(b);
  const auto meets = [](const std::vector<TaskValue>& x, const std::vector<TaskValue>& y) {
    return std::any_of(x.begin(), x.end(), [&](const TaskValue& one) { return contains_memory(y, one); });
  };
  return meets(a_out, b_in) || meets(a_out, b_out) || meets(a_in, b_out);
}

const CudaTaskKind* task_kind(const Op& op) {
  if (op.cuda_task) return op.cuda_task;
  return op.loop || op.view ? &elementwise_task : nullptr;
}

TaskTraits traits_of(const GpuTask& task, const GpuTarget& target) {
  const CudaTaskKind* kind = task.form == TaskForm::row ? task_kind(*task.op) : nullptr;
  return kind && kind->traits ? kind->traits(task, target) : TaskTraits{};
}

std::optional<CudaSource> source_of(const GpuTask& task, const GpuTarget& target) {
  const CudaTaskKind* kind = task_kind(*task.op);
  return kind && kind->source ? kind->source(task, target) : std::nullopt;
}

bool lower_row(GpuTask& task, const GpuTarget& target) {
  const CudaTaskKind* kind = task_kind(*task.op);
  std::optional<CudaStep> step = kind ? kind->step(task, target) : std::nullopt;
  if (!step) return false;
  task.step = std::make_shared<const CudaStep>(*std::move(step));
  return true;
}

bool is_plain_row(const GpuTask& task) {
  return task.form == TaskForm::row && task.producers.empty() && !task.summed && task.column_sums.empty() &&
         task.exchanged == 0 && !task.tile;
}

GpuTask task_of(const KernelSpec& spec, const Op* op) {
  GpuTask task;
  task.op = op;
  task.attrs = spec.attrs;
  for (const Type& type : spec.in) task.in.push_back({.type = type});
  for (const Type& type : spec.out) task.out.push_back({.type = type});
  return task;
}

Kernel launch_alone(const CudaTaskKind& kind, const GpuTask& task, CudaStream& stream) {
  const GpuTarget target = GpuTarget::of(stream.info());
  std::optional<CudaStep> first = kind.step(task, target);
  if (!first) return [](const void* const*, void* const*) {};
  if (!first->partial) return LaunchedSteps(stream, {*std::move(first)});
  GpuTask combine = task;
  combine.stage = TaskStage::combine;
  combine.in = {{.type = *first->partial}};
  std::optional<CudaStep> second = kind.step(combine, target);
  LOCKSTEP_CHECK(second, "{}: no step combines its partial results", first->name);
  const auto pass_partial = [](CudaStep& step, CudaStep::Argument::Kind what) {
    for (CudaStep::Argument& argument : step.arguments)
      if (argument.kind == what) argument = {CudaStep::Argument::workspace, 0};
  };
  pass_partial(*first, CudaStep::Argument::result);
  pass_partial(*second, CudaStep::Argument::operand);
  const BufferPtr partial = stream.allocate(first->partial->bytes());
  return LaunchedSteps(stream, {*std::move(first), *std::move(second)}, {partial});
}

std::optional<std::vector<ComputedOperand>> computed_operands(const GpuTask& task, const GpuTarget& target) {
  std::vector<ComputedOperand> out;
  size_t first = task.in.size();
  for (const GpuTask::Producer& producer : task.producers) {
    std::optional<CudaSource> source = source_of(producer.task, target);
    if (!source) return {};
    out.push_back({producer.operand, *std::move(source), first, producer.written});
    first += operands(producer.task).size();
  }
  return out;
}

}  // namespace lockstep
