// Plan: the execution plan of a lowered program on the CPU. It has prepared kernels in order, over memory that was
// assigned at compile time. Running a plan does not allocate. Run it from one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "lane/lane.h"
#include "lane/pool.h"
#include "program/op.h"

namespace lockstep {

struct PlannerOptions {
  // As in PlanOptions.
  std::vector<bool> donated = {};
  std::function<Comm*(const std::string& axes)> comm = {};
  // An arena shared with other plans, used during run() only; null: the plan has its own.
  Arena* arena = nullptr;
  // A donated input may only be overwritten by the output of the same index.
  bool in_place = false;
};

class Plan : public LanePlan {
 public:
  // REQUIRES: `program` came from lower().
  Plan(const Program& program, Pool& pool, const PlannerOptions& options = {});

  int donated_input(size_t output) const override { return donated_input_[output]; }
  void run(const void* const* in, void* const* out) override;
  int64_t arena_bytes() const override { return arena_bytes_; }
  size_t instructions() const override { return instructions_.size(); }
  std::string describe() const override;
  // describe(), with the schedules of sub-programs below their instructions, indented.
  std::string schedule() const override;

  // Whether a kernel waits for the lane's own work or for other lanes.
  bool waits() const;

 protected:
  friend class Planner;
  // For derived plans: their planner fills it.
  explicit Plan(Arena* arena);

  struct Instruction {
    const Op* op = nullptr;  // null: see label
    const char* label = "copy";
    Kernel kernel;
    std::vector<const void*> in;
    std::vector<void*> out;
    std::string text;
    std::vector<std::string> bodies = {};  // the schedules of its sub-programs
    bool waits = false;                    // its kernel waits for the lane's own work or for other lanes
  };
  // One pointer argument of an instruction.
  struct PointerRef {
    size_t instruction;
    size_t index;
    bool is_result;  // which list of the instruction
  };
  // A pointer to an input or output, which changes with every run.
  struct Patch {
    PointerRef pointer;
    bool from_input;  // which list of run()'s arguments
    size_t index;
  };
  // A pointer into the arena, which changes when the arena moves.
  struct ArenaPatch {
    PointerRef pointer;
    int64_t offset;
  };
  void set(const PointerRef&, void* pointer);
  void set_pointers(const void* const* in, void* const* out);
  void move_arena(std::byte* base);
  // Runs the instructions, and records when each began and ended.
  void run_traced() const;
  static std::string_view name_of(const Instruction& instruction);
  // Lanes must not write to the caller's memory any more, since a kernel has thrown.
  void abandon();

  std::vector<Instruction> instructions_;
  std::vector<Patch> patches_;
  std::vector<ArenaPatch> arena_patches_;
  std::vector<int> donated_input_;
  std::vector<BufferPtr> constants_;
  std::shared_ptr<InFlight> in_flight_;
  Arena own_arena_;
  Arena* arena_ = nullptr;
  std::byte* arena_base_ = nullptr;  // the arena that the instructions point into
  int64_t work_bytes_ = 0;
  int64_t arena_bytes_ = 0;
};

// Lowers a program and makes its plan.
std::shared_ptr<Plan> compile(const Program&, Pool&, const PlannerOptions& = {});

}  // namespace lockstep
