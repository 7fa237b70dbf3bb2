// Plan: a lowered program made ready for the CPU lane: prepared kernels in order, over buffer slots whose places were decided at
// compile time. Running a plan allocates nothing. A plan may be run from one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "lane/pool.h"
#include "program/op.h"

namespace lockstep {

struct PlanOptions {
  // Inputs whose memory the plan may write over; empty: none.
  std::vector<bool> donated;
};

class Plan {
 public:
  // REQUIRES: `program` came from lower().
  Plan(const Program& program, Pool& pool, const PlanOptions& options = {});
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // The donated input whose memory output i is written to, or -1. The caller passes that memory as both.
  int donated_input(size_t output) const { return donated_input_[output]; }

  // `in` and `out` are dense row-major buffers, 64-byte aligned, in the order of the program's inputs and outputs.
  void run(const void* const* in, void* const* out);

  // Bytes of memory the plan holds between inputs and outputs: the arena and the constants.
  int64_t arena_bytes() const { return arena_bytes_; }
  size_t instructions() const { return instructions_.size(); }

  // One line per instruction: op, operands' and results' types and places.
  std::string describe() const;

 private:
  friend class Planner;
  struct Instruction {
    const Op* op = nullptr;  // null: a copy
    Kernel kernel;
    std::vector<const void*> in;
    std::vector<void*> out;
    std::string text;
  };
  // A pointer of an instruction that changes with every run.
  struct Patch {
    size_t instruction;
    size_t slot;
    bool is_result;   // which list of the instruction
    bool from_input;  // which list of run()'s arguments
    size_t index;
  };

  std::vector<Instruction> instructions_;
  std::vector<Patch> patches_;
  std::vector<int> donated_input_;
  std::vector<BufferPtr> constants_;
  BufferPtr arena_;
  int64_t arena_bytes_ = 0;
};

// A plan for a whole program: lowers it first.
std::shared_ptr<Plan> compile(const Program&, Pool&, const PlanOptions& = {});

}  // namespace lockstep
