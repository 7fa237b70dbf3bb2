// Planner: assigns memory to the values of a program and prepares the kernels of a Plan. The planner of a lane whose
// memory is not the host's overrides the protected functions. Used by one thread.
#pragma once

#include <vector>

#include "plan/memory.h"
#include "plan/plan.h"

namespace lockstep {

class Planner {
 public:
  Planner(const Program& program, Pool& pool, const PlannerOptions& options, Plan& plan);
  virtual ~Planner() = default;
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  void run();

 protected:
  // The memory of a value.
  struct MemorySlot {
    enum Kind { none, input, output, arena, constant } kind = none;
    size_t index = 0;  // of the input, output, arena block or constant
  };

  // Called when it is known which values share memory, before offsets are assigned. A lane that executes several
  // equations at once sets the lifetimes of arena blocks here.
  virtual void schedule() {}
  // Memory of the lane with a constant, which was computed on the host.
  virtual const void* constant_memory(size_t, const BufferPtr& host) { return host->data(); }
  // The kernel of an equation. `host` is its specification on the host. May append to `text`, the description of the
  // instruction, and set `waits` (Plan::Instruction::waits).
  virtual Kernel prepare_kernel(const Op& op, const KernelSpec& host, std::string& text, bool& waits);
  virtual Kernel copy_kernel(int64_t bytes) const;
  // Adds the instructions of all equations, in order.
  virtual void add_instructions();
  // Called when all instructions are there, also the copies of outputs.
  virtual void finish() {}

  // Counts the memory of the plan of a sub-program.
  void add_sub_plan(const Plan& sub, bool& waits);

  const Program& program() const { return p_; }
  Pool& pool() const { return pool_; }
  const std::vector<bool>& donated() const { return donated_; }
  const Type& type(ValueId id) const { return types_[id]; }
  int64_t bytes(ValueId id) const { return types_[id].bytes(); }
  // The equations that compute something, in order: all but reshapes.
  const std::vector<const Eqn*>& steps() const { return steps_; }
  // The value that owns the memory of a value: itself, or the one that it is a reshape of.
  ValueId base(ValueId id) const { return base_[id]; }
  const MemorySlot& slot(ValueId id) const { return slot_[base(id)]; }
  // Whether the results of an equation are computed at compile time.
  bool is_constant(const Eqn& eqn) const;
  std::vector<ArenaBlock>& arena_blocks() { return blocks_; }
  // Adds a value that the program does not have, in an arena block of its own. Its id is the number of values.
  ValueId add_value(const Type& type);
  // Prepares the kernel of an equation and adds its instruction. Constants are computed now, on the host.
  void add_instruction(const Eqn& eqn);
  // Adds an instruction with pointers to these values in its list of results.
  void add_instruction(Plan::Instruction instruction, const std::vector<ValueId>& values);
  std::string memory_text(ValueId id) const;

 private:
  void find_bases();
  void find_lifetimes();
  void assign_inputs_and_outputs();
  void assign_constants();
  void assign_donated();
  // Gives the other values arena blocks. A result may get the block of an operand that it overwrites.
  void assign_blocks();
  // Whether `result` of step t may overwrite `operand`, in every position where the step reads it.
  bool may_overwrite(int t, size_t result, ValueId operand) const;
  // Whether two values share memory, also through a donated input. Empty values have no memory.
  bool same_memory(ValueId a, ValueId b) const;
  // For each result: the operand whose memory it shares, or -1.
  std::vector<int> aliases_of(const Eqn& eqn) const;
  // Adds copies to the outputs that are inputs or are returned twice.
  void copy_outputs();
  // Appends a pointer to an instruction's list, or a patch that sets it in each run. `on_host`: the instruction computes
  // a constant.
  template <class P>
  void add_pointer(size_t instruction, std::vector<P>& list, ValueId id, bool is_result, bool on_host);

  const Program& p_;
  std::vector<Type> types_;  // of the program's values and of those of add_value()
  Pool& pool_;
  std::vector<bool> donated_;
  bool in_place_;  // see PlannerOptions
  std::function<Comm*(const std::string&)> comm_;
  Plan& plan_;
  std::vector<ValueId> base_;
  std::vector<const Eqn*> steps_;
  std::vector<int> first_, last_;  // by base value: steps
  std::vector<MemorySlot> slot_;   // by base value
  std::vector<ArenaBlock> blocks_;
};

}  // namespace lockstep
