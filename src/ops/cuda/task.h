// GpuTask: work that thread blocks of a GPU do together. A task is a row of the program with the choices made for it,
// or several tasks fused in one of the forms below. A schedule (plan/cuda/schedule.h) orders tasks into phases and
// kernels; rewrites change tasks; lowering turns a task into kernel text (step.h).
//
// Worked example. A product of 128 rows of images with a matrix of weights is a task of form `row`. If it gathers and
// scales the rows itself, it has a producer for operand 0, a task of form `row` that has a producer as well:
//
//   %5:f32[128,1024] = einsum[spec="mk,kn->mn"] %4 %0
//     computes {
//       %4:f32[128,784] = fused[body=...] %3
//         computes {
//           %3:u8[128,784] = gather[axis=0, batch_dims=0] %1 %2
//         }
//     }
//
// Plain values and pure functions: safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/cuda/step.h"
#include "program/op.h"

namespace lockstep {

struct CudaInfo;

// The GPU for which tasks are laid out.
struct GpuTarget {
  int processors = 132;                       // streaming multiprocessors
  int64_t shared_bytes = int64_t{227} << 10;  // shared memory that a thread block may use
  int major = 9;                              // compute capability
  bool tf32 = true;                           // products of f32 may round their operands to TF32 (cuda_math())
  bool dependent_launch = true;               // CudaFunction::uses_dependent_launch()

  static GpuTarget of(const CudaInfo& info);
  bool operator==(const GpuTarget&) const = default;
};

constexpr ValueId kNoValue = ~ValueId{0};

// A value that a task reads or writes. A reshape of an array is the same value with another type.
struct TaskValue {
  ValueId id = kNoValue;
  Type type = {};
  ValueId memory = kNoValue;  // the first value in its memory: itself, or the value that it overwrites

  int64_t bytes() const { return type.bytes(); }
  bool operator==(const TaskValue&) const = default;
};
// Whether writing one of them changes the other.
bool same_memory(const TaskValue& a, const TaskValue& b);
bool contains_memory(const std::vector<TaskValue>& all, const TaskValue& one);

enum class TaskForm : uint8_t {
  row,       // one row
  chain,     // one thread block runs the members one after another
  elements,  // every thread computes its elements of all members, one member after another
  ranges,    // every thread block computes one of `count` ranges of all members (lower_ranges())
  exchange,  // the first member is a product in tiles; the others need complete rows of it. Thread blocks with the same
             // rows exchange partial sums (lower_exchange())
};

// How a row is divided over thread blocks.
enum class TaskDivision : uint8_t {
  tiles,    // as its kind chooses, for `processors` multiprocessors
  ranges,   // `count` equal ranges of every result, one per thread block
  warps,    // `count` equal ranges, one per warp: `block` is the number of the range
  columns,  // `count` columns of each row per thread block, one warp per row (TaskTraits::Spread)
};

// Of a row that takes two tasks, as a reduction to few results does: each of these is a task, and the partial results
// are a value of the type CudaStep::partial.
enum class TaskStage : uint8_t { whole, partial, combine };

struct GpuTask {
  TaskForm form = TaskForm::row;

  // Of a row.
  const Op* op = nullptr;
  Attrs attrs = {};
  std::vector<TaskValue> in = {}, out = {};
  // An operand that the task computes itself instead of reading it (producer fusion).
  struct Producer;
  std::vector<Producer> producers;    // no initializer: clang 14 would need the complete type
  bool ready = false;                 // the operands that it reads were written before the kernel
  std::optional<size_t> summed = {};  // this result is not written: `out` is instead kPartialSums sums of its elements
  // Of a product: the row that adds up the columns of its second matrix, and then the tasks that read these sums. The
  // thread blocks of the product compute them besides.
  std::vector<GpuTask> column_sums = {};
  TaskStage stage = TaskStage::whole;
  TaskDivision division = TaskDivision::tiles;
  int processors = 0;                 // for which it is laid out; 0: all of the GPU
  int64_t exchanged = 0;              // floats per row that its thread blocks exchange (choose_tiles())
  std::optional<CudaTile> tile = {};  // absent: chosen by the cost model

  int64_t count = 0;                  // see TaskForm::ranges and TaskDivision
  std::vector<GpuTask> members = {};  // of the other forms

  // Bit k: the operands of step->prefetches[k] are prefetched while thread blocks wait for the phase of this task.
  uint32_t prefetched = 0;

  // Its place among the tasks of the kernel before phases were first assigned. It breaks ties, so that phases assigned
  // again differ only where they must.
  size_t position = 0;

  // The kernel text for the choices above; set by lower(). Null: not lowered, or of form chain or elements.
  std::shared_ptr<const CudaStep> step = {};

  // Equal choices. `step` follows from them; `position` is ignored.
  bool operator==(const GpuTask& other) const;
};
struct GpuTask::Producer {
  size_t operand = 0;
  GpuTask task;          // its only result is the operand
  bool written = false;  // the operand is also written, for other readers
};

// What a task reads, in the order to which CudaStep::Argument::operand refers: the operands of the row, those of its
// producers, and those of tasks on column sums, without the sums; or the operands of all members. Operands that the
// task computes itself have no id.
std::vector<TaskValue> operands(const GpuTask& task);
// What a task writes, in the order of CudaStep::Argument::result: the results of the row, operands that are also
// written, and the results of tasks on column sums; or the results of all members.
std::vector<TaskValue> results(const GpuTask& task);
// Whether the order of the two tasks matters: one writes memory that the other reads or writes.
bool conflict(const GpuTask& a, const GpuTask& b);

// What can be done with a row, as data. Operands are numbered as in operands().
struct TaskTraits {
  // Range by range along the first dimension of the results: `count` divides `most` (0: not possible) and is at least
  // `least`. Tasks that process the same range need not wait for other ranges.
  struct Ranges {
    int64_t most = 0, least = 1;
    std::vector<size_t> own = {};  // operands of which a range reads only the same range
    bool by_warp = false;          // TaskDivision::warps is possible, too
    bool supports(int64_t count) const { return most > 0 && count > 0 && most % count == 0 && count >= least; }
    // The same for a division into ranges or warps. `least` does not apply to warps.
    bool supports(TaskDivision division, int64_t count) const;
    bool owns(size_t operand) const;
  } ranges = {};
  // A product of a matrix of rows with a small matrix, by thread blocks that have only some columns of each row.
  struct Spread {
    enum Kind : uint8_t {
      none,
      sums,     // they have columns of the matrix of rows, and publish partial sums to each other
      columns,  // they compute columns of the result
    } kind = none;
    size_t rows = 0, by = 0;                  // operands: the matrix of rows, and the small matrix
    int64_t few = 0, width = 0;               // columns of the result and of `rows`: the smaller and the larger number
    std::string row_type = {}, by_type = {};  // of the operands' elements in memory
    std::vector<size_t> in_place = {};        // other operands that are read only at the result's own element
  } spread = {};
  bool can_be_inlined = false;                    // readers may compute its only result themselves (source_of())
  bool sums_all = false;                          // it adds up all elements of its only operand, which are f32
  bool sums_columns = false;                      // it adds up the columns of its only operand, a matrix
  std::optional<size_t> can_sum_columns_of = {};  // a product: the operand whose columns it can add up besides
};

// How the rows of an op become tasks: the `cuda_task` column of the op.
struct CudaTaskKind {
  // The step for the choices of a task of form `row`. Nothing if these choices are not possible, or the GPU does not
  // support the row.
  std::optional<CudaStep> (*step)(const GpuTask& task, const GpuTarget& target) = nullptr;
  TaskTraits (*traits)(const GpuTask& task, const GpuTarget& target) = nullptr;  // null: nothing can be done with it
  // The row as a function of an element; see CudaSource. Null: never.
  std::optional<CudaSource> (*source)(const GpuTask& task, const GpuTarget& target) = nullptr;
};
// The kind of an op's tasks: its column, or that of elementwise ops and views. Null: the op has only kernels of its own.
const CudaTaskKind* task_kind(const Op& op);

// Of a task of form `row`.
TaskTraits traits_of(const GpuTask& task, const GpuTarget& target);
std::optional<CudaSource> source_of(const GpuTask& task, const GpuTarget& target);
// Sets the step of a task of form `row`. Returns false, and changes nothing, if the choices are not possible.
bool lower_row(GpuTask& task, const GpuTarget& target);

// Whether the task is a row, or a stage of one, without fusions and without choices that only products have.
bool is_plain_row(const GpuTask& task);

// The row of a KernelSpec as a task, whose values have types only. `op` may be null if the kind does not need it.
GpuTask task_of(const KernelSpec& spec, const Op* op = nullptr);
// The steps of such a task as a kernel of its own: one step, or both of a row that takes two tasks. A kernel that does
// nothing if there is no step, as for empty results.
Kernel launch_alone(const CudaTaskKind& kind, const GpuTask& task, CudaStream& stream);

// An operand that is computed by a source whose own operands are numbered from `first` on.
struct ComputedOperand {
  size_t operand = 0;
  CudaSource source = {};
  size_t first = 0;
  bool written = false;
};
// The producers of a task as kernel texts need them. Nothing if one of them cannot be inlined.
std::optional<std::vector<ComputedOperand>> computed_operands(const GpuTask& task, const GpuTarget& target);

}  // namespace lockstep
