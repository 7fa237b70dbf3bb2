// Makes the GPU schedule of a program and executes it on the host, without a GPU. Tasks use the CPU kernels of their
// rows, so results show whether the schedule computes the program, not whether the kernel text does.
//
// Memory is as the schedule describes it: values with the same TaskValue::memory share bytes, and a result destroys what
// was there. Where the GPU may execute work in any order, a seed chooses one:
//   - the tasks of a phase run in a random order;
//   - a result's memory has undefined contents as soon as its task starts, unless the row may overwrite the operand
//     there. A producer therefore sees no operand that its reader overwrites;
//   - tasks of form ranges, elements and exchange run in two parts: all members on some ranges, elements or rows, then
//     all members on the others. A member that needs more than its own range of another one gets undefined elements;
//   - a product and the tasks on its column sums run in a random order; these tasks run in two parts, too, each with its
//     range of the sums only.
//
// Columns of a row that several thread blocks of an exchange share, split-K and prefetches are not modelled: they have
// no effect on memory. Used by one thread.
#pragma once
#ifdef LOCKSTEP_WITH_CUDA

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "plan/cuda/schedule.h"
#include "rows/eager.h"

namespace lockstep {

// A program as a schedule, with the memory of its inputs, outputs and constants.
struct ScheduledProgram {
  detail::GpuSchedule schedule;
  std::vector<TaskValue> inputs = {}, outputs = {};
  std::vector<std::pair<TaskValue, HostArray>> constants = {};
};

// Decides which values share memory, as for an execution plan, and makes the schedule. REQUIRES: `program` came from
// lower().
ScheduledProgram schedule_program(const Program& program, const std::vector<bool>& donated, const GpuTarget& target);

class ScheduleInterpreter {
 public:
  // Copies the inputs.
  ScheduleInterpreter(const ScheduledProgram& program, const HostArrays& inputs, uint32_t seed);

  void run(const detail::GpuSchedule& schedule);
  // A copy of what is in the memory of a value.
  HostArray value(const TaskValue& value);

 private:
  // The ranges from `begin` to `end` of `count` equal ones, of every result.
  struct Part {
    int64_t begin = 0, end = 1, count = 1;
    bool is_first = true;
  };

  void run(const GpuTask& task, const Part& part);
  void run_members(const GpuTask& task, const std::vector<Part>& parts);
  void run_row(const GpuTask& task, const Part& part);
  // The column sums and the tasks on them belong to no part: they run with the first.
  void run_with_column_sums(const GpuTask& task, const Part& part);
  // A task on the column sums `id`. Each of two ranges of it has only the same range of the sums.
  void run_on_column_sums(const GpuTask& task, ValueId id, const HostArray& sums);
  // The results of a row, from memory as it is now.
  HostArrays evaluate(const GpuTask& task, const Part& part);
  // What a task writes in place of its summed result, of the elements of this part and of the parts before.
  HostArray summed(const GpuTask& task, const HostArray& elements, const Part& part);
  HostArray operand(const GpuTask& task, size_t index, const Part& part);
  // Destroys the memory of results that are not computed in place.
  void destroy_results(const GpuTask& task, const Part& part);

  // In two parts at a random multiple of `unit`, in a random order.
  std::vector<Part> parts_of(int64_t count, int64_t unit = 1);
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  std::byte* memory(const TaskValue& value);
  void write(const TaskValue& value, const HostArray& from, const Part& part);

  std::mt19937 random_;
  std::map<ValueId, HostArray> memory_;  // by TaskValue::memory
  std::map<ValueId, HostArray> sums_;    // column sums, which are not in memory
};

}  // namespace lockstep
#endif
