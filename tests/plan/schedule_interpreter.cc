#ifdef LOCKSTEP_WITH_CUDA
#include "plan/schedule_interpreter.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plan/cuda/schedule_planner.h"

namespace lockstep {
namespace {

// An array of large numbers.
HostArray undefined_array(const Type& type) {
  HostArray out(type);
  std::memset(out.buffer->data(), 0x7b, static_cast<size_t>(type.bytes()));
  return out;
}

class UnexecutedPlan final : public Plan {
 public:
  UnexecutedPlan() : Plan(nullptr) {}
};

// Makes a schedule and no kernels.
class ScheduleOnlyPlanner final : public SchedulePlanner {
 public:
  ScheduleOnlyPlanner(const Program& program, const PlannerOptions& options, Plan& plan, ScheduledProgram& out)
      : SchedulePlanner(program, test_pool(), options, plan, out.schedule), out_(out) {}

 protected:
  void add_instructions() override {
    std::map<ValueId, HostArray> constants;
    for (const Eqn* eqn : steps()) {
      if (!is_constant(*eqn)) continue;
      HostArrays in;
      for (const ValueId id : eqn->in) {
        in.push_back(constants.at(base(id)));
        in.back().type = type(id);
      }
      const HostArrays results = eager_op(*eqn->op, eqn->attrs, in);
      for (size_t k = 0; k < results.size(); ++k) {
        constants[eqn->out[k]] = results[k];
        out_.constants.emplace_back(task_value(eqn->out[k]), results[k]);
      }
    }
    for (const ValueId id : program().inputs) out_.inputs.push_back(task_value(id));
    for (const ValueId id : program().outputs) out_.outputs.push_back(task_value(id));
  }

 private:
  ScheduledProgram& out_;
};

bool computes_operand(const GpuTask& task, size_t operand) {
  return std::any_of(task.producers.begin(), task.producers.end(),
                     [&](const GpuTask::Producer& producer) { return producer.operand == operand; });
}

std::vector<Type> operand_types(const GpuTask& task) {
  std::vector<Type> out;
  for (const TaskValue& value : task.in) out.push_back(value.type);
  return out;
}

// kPartialSums floats with the same sum as the elements from `begin` to `end`.
HostArray partial_sums(const HostArray& elements, int64_t begin, int64_t end) {
  std::vector<double> sums(kPartialSums, 0);
  for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(i % kPartialSums)] += elements.get(i);
  return HostArray({DType::f32, {kPartialSums}}, sums);
}

// An array of another type with the same first bytes, and zeros after them.
HostArray with_bytes_of(const HostArray& from, const Type& type) {
  HostArray out(type);
  const int64_t same = std::min(type.bytes(), from.type.bytes());
  std::memset(out.buffer->data(), 0, static_cast<size_t>(type.bytes()));
  std::memcpy(out.buffer->data(), from.buffer->data(), static_cast<size_t>(same));
  return out;
}

}  // namespace

ScheduledProgram schedule_program(const Program& program, const std::vector<bool>& donated, const GpuTarget& target) {
  ScheduledProgram out{.schedule = {.target = target, .kernels = {}}};
  UnexecutedPlan plan;
  ScheduleOnlyPlanner(program, {.donated = donated}, plan, out).run();
  return out;
}

ScheduleInterpreter::ScheduleInterpreter(const ScheduledProgram& program, const HostArrays& inputs, uint32_t seed)
    : random_(seed) {
  for (size_t i = 0; i < inputs.size(); ++i) write(program.inputs[i], inputs[i], {});
  for (const auto& [value, constant] : program.constants) write(value, constant, {});
}

std::byte* ScheduleInterpreter::memory(const TaskValue& value) {
  HostArray& array = memory_[value.memory];
  if (!array.buffer) array = undefined_array(value.type);
  if (array.type.bytes() != value.bytes())
    throw_error("%{} has {} bytes, its memory has {}", value.id, value.bytes(), array.type.bytes());
  return array.buffer->data();
}

HostArray ScheduleInterpreter::value(const TaskValue& value) {
  HostArray out(value.type);
  std::memcpy(out.buffer->data(), memory(value), static_cast<size_t>(value.bytes()));
  return out;
}

void ScheduleInterpreter::write(const TaskValue& value, const HostArray& from, const Part& part) {
  const int64_t bytes = value.bytes(), begin = bytes / part.count * part.begin, end = bytes / part.count * part.end;
  if (from.type.bytes() != bytes) throw_error("%{} has {} bytes, not {}", value.id, bytes, from.type.bytes());
  if (bytes % part.count != 0) throw_error("%{} has no {} equal ranges", value.id, part.count);
  std::memcpy(memory(value) + begin, from.buffer->data() + begin, static_cast<size_t>(end - begin));
}

void ScheduleInterpreter::destroy_results(const GpuTask& task, const Part& part) {
  const std::vector<Type> in = operand_types(task), out = infer_types(*task.op, in, task.attrs);
  const std::vector<TaskValue> all = operands(task);
  for (size_t k = 0; k < task.out.size(); ++k) {
    bool is_read = false, in_place = task.stage == TaskStage::whole && task.summed != k && task.op->alias;
    for (size_t i = 0; i < task.in.size(); ++i) {
      if (computes_operand(task, i) || !same_memory(task.in[i], task.out[k])) continue;
      is_read = true;
      in_place = in_place && task.op->alias(in, out, task.attrs, i, k);
    }
    // A producer may read any element.
    for (size_t i = task.in.size(); i < all.size(); ++i) in_place = in_place && !same_memory(all[i], task.out[k]);
    if ((is_read && in_place) || (task.summed == k && !part.is_first)) continue;
    write(task.out[k], undefined_array(task.out[k].type), task.summed == k ? Part{} : part);
  }
}

HostArray ScheduleInterpreter::operand(const GpuTask& task, size_t index, const Part& part) {
  const TaskValue& value = task.in[index];
  for (const GpuTask::Producer& producer : task.producers) {
    if (producer.operand != index) continue;
    HostArray computed = evaluate(producer.task, part)[0];
    if (producer.written && part.is_first) write(producer.task.out[0], computed, {});
    computed.type = value.type;
    return computed;
  }
  if (const auto found = sums_.find(value.id); found != sums_.end()) {
    HostArray sums = found->second;
    sums.type = value.type;
    return sums;
  }
  memory(value);
  HostArray shared = memory_[value.memory];
  shared.type = value.type;
  return shared;
}

HostArrays ScheduleInterpreter::evaluate(const GpuTask& task, const Part& part) {
  HostArrays in;
  for (size_t i = 0; i < task.in.size(); ++i) in.push_back(operand(task, i, part));
  if (task.stage == TaskStage::combine) return {with_bytes_of(in[0], task.out[0].type)};
  HostArrays out = eager_op(*task.op, task.attrs, in);
  // The whole result is the first of the partial ones.
  if (task.stage == TaskStage::partial) out[0] = with_bytes_of(out[0], task.out[0].type);
  if (task.summed) out[*task.summed] = summed(task, out[*task.summed], part);
  return out;
}

HostArray ScheduleInterpreter::summed(const GpuTask& task, const HostArray& elements, const Part& part) {
  const int64_t each = elements.size() / part.count;
  HostArray sums = partial_sums(elements, each * part.begin, each * part.end);
  if (part.is_first) return sums;
  const HostArray before = value(task.out[*task.summed]);  // of the other part
  for (int64_t i = 0; i < kPartialSums; ++i) sums.set(i, sums.get(i) + before.get(i));
  return sums;
}

void ScheduleInterpreter::run_row(const GpuTask& task, const Part& part) {
  if (part.count > 1 && task.stage != TaskStage::whole) throw_error("{}: a stage has no ranges", task.op->name);
  if (task.stage != TaskStage::combine) destroy_results(task, part);
  const HostArrays results = evaluate(task, part);
  for (size_t k = 0; k < results.size(); ++k) write(task.out[k], results[k], task.summed == k ? Part{} : part);
}

void ScheduleInterpreter::run_with_column_sums(const GpuTask& task, const Part& part) {
  const HostArray sums = evaluate(task.column_sums[0], {})[0];
  std::vector<const GpuTask*> tasks = {&task};
  if (part.is_first)
    for (size_t k = 1; k < task.column_sums.size(); ++k) tasks.push_back(&task.column_sums[k]);
  std::shuffle(tasks.begin(), tasks.end(), random_);
  for (const GpuTask* each : tasks) {
    if (each == &task)
      run_row(task, part);
    else
      run_on_column_sums(*each, task.column_sums[0].out[0].id, sums);
  }
}

void ScheduleInterpreter::run_on_column_sums(const GpuTask& task, ValueId id, const HostArray& sums) {
  for (const Part& part : parts_of(sums.size())) {
    HostArray own = undefined_array(sums.type);
    for (int64_t i = sums.size() / part.count * part.begin; i < sums.size() / part.count * part.end; ++i)
      copy_element(sums, i, own, i);
    sums_[id] = own;
    run_row(task, part);
  }
  sums_.erase(id);
}

std::vector<ScheduleInterpreter::Part> ScheduleInterpreter::parts_of(int64_t count, int64_t unit) {
  const int64_t units = (count + unit - 1) / unit;
  if (units < 2) return {{}};
  const int64_t middle = (below(units - 1) + 1) * unit;
  std::vector<Part> out = {{0, middle, count}, {middle, count, count}};
  if (below(2) == 0) std::swap(out[0], out[1]);
  out[1].is_first = false;
  return out;
}

void ScheduleInterpreter::run_members(const GpuTask& task, const std::vector<Part>& parts) {
  for (const Part& part : parts)
    for (const GpuTask& member : task.members) run(member, part);
}

void ScheduleInterpreter::run(const GpuTask& task, const Part& part) {
  switch (task.form) {
    case TaskForm::row:
      return task.column_sums.empty() ? run_row(task, part) : run_with_column_sums(task, part);
    case TaskForm::chain:
      for (const GpuTask& member : task.members) run(member, part);
      return;
    case TaskForm::elements: {
      const int64_t elements = task.members[0].step->elements;
      for (const GpuTask& member : task.members)
        if (member.step->elements != elements) throw_error("{} has no {} elements", member.op->name, elements);
      return run_members(task, parts_of(elements));
    }
    case TaskForm::ranges:
      return run_members(task, parts_of(task.count));
    case TaskForm::exchange: {
      const CudaStep::Share& share = task.members[0].step->share;
      return run_members(task, parts_of(share.height, share.rows));
    }
  }
}

void ScheduleInterpreter::run(const detail::GpuSchedule& schedule) {
  for (const detail::KernelSchedule& kernel : schedule.kernels) {
    if (kernel.phases.empty())
      for (const GpuTask& task : kernel.tasks) run(task, {});
    for (std::vector<size_t> phase : kernel.phases) {
      std::shuffle(phase.begin(), phase.end(), random_);
      for (const size_t t : phase) run(kernel.tasks[t], {});
    }
  }
}

}  // namespace lockstep
#endif
