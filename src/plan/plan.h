// Plan: the execution plan of a lowered program, for a CPU lane or a GPU. It has prepared kernels in order, over memory
// that was assigned at compile time. Running a plan does not allocate. Run it from one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "lane/pool.h"
#include "plan/cuda_plan.h"
#include "program/op.h"

namespace lockstep {

struct PlanOptions {
  // Inputs whose memory the plan may overwrite; empty: none.
  std::vector<bool> donated = {};
  // An arena shared with other plans, used during run() only; null: the plan has its own.
  Arena* arena = nullptr;
  // Returns the group of lanes that differ along these axes of the grid. Empty: the program runs on one lane.
  std::function<Comm*(const std::string& axes)> comm = {};
  // The GPU that runs the plan; null: the CPU.
  CudaLane* cuda = nullptr;
  // A donated input may only be overwritten by the output of the same index.
  bool in_place = false;
};

class Plan {
 public:
  // REQUIRES: `program` came from lower().
  Plan(const Program& program, Pool& pool, const PlanOptions& options = {});
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // The donated input whose memory output i is written to, or -1. The caller passes that memory as both.
  int donated_input(size_t output) const { return donated_input_[output]; }

  // Runs the program. `in` and `out` are dense row-major buffers in the order of the program's inputs and outputs,
  // aligned for their elements. On a GPU they are device memory, aligned to 64 bytes (below 16 bytes: to their size),
  // and run() returns when the work is enqueued.
  void run(const void* const* in, void* const* out);

  // Starts to compile the GPU kernels on other threads. A later run() waits for them.
  void compile_in_background() const;

  // Bytes of memory the plan needs besides inputs and outputs: arena and constants.
  int64_t arena_bytes() const { return arena_bytes_; }
  size_t instructions() const { return instructions_.size(); }

  // One line per instruction: the op, and the types and memory of operands and results.
  std::string describe() const;

 private:
  friend class Planner;
#ifdef LOCKSTEP_WITH_CUDA
  friend class PlanRounds;
#endif
  struct Instruction {
    const Op* op = nullptr;  // null: see label
    const char* label = "copy";
    Kernel kernel;
    std::vector<const void*> in;
    std::vector<void*> out;
    std::string text;
    bool waits = false;  // its kernel waits for the GPU or for other lanes, so it cannot be captured
  };
  // Instructions that are enqueued on a GPU together; captured as a graph if none of them waits.
  struct Section {
    size_t begin = 0, end = 0;
    std::unique_ptr<detail::GraphCache> graphs;  // null: enqueued one by one in every run
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
  // Device memory for a small input or output that is the same in every run, so that one captured graph serves runs
  // with different pointers. Inputs are copied in before a run, outputs out after it.
  struct StableBuffer {
    bool is_input;
    size_t index;
    BufferPtr memory;
    Kernel copy;
  };
  void set(const PointerRef&, void* pointer);
  void set_pointers(const void* const* in, void* const* out);
  bool waits() const;
  // Divides the instructions into sections for a GPU. Returns whether any section is captured.
  bool make_sections();
  void move_arena(std::byte* base);
  void run_on_gpu(const void* const* in, void* const* out);

  std::vector<Instruction> instructions_;
  std::vector<Patch> patches_;
  std::vector<ArenaPatch> arena_patches_;
  std::vector<int> donated_input_;
  std::vector<BufferPtr> constants_, gpu_constants_;
  BufferPtr gpu_arena_;
  std::shared_ptr<InFlight> in_flight_;
  Arena own_arena_;
  Arena* arena_ = nullptr;
  CudaLane* cuda_ = nullptr;
  size_t inputs_ = 0;
  std::vector<Section> sections_;
  bool ran_ = false;
  std::vector<StableBuffer> stable_buffers_;
  std::vector<const void*> pointers_;  // of the current run: the key of the captured graphs
  std::vector<void*> outs_;
  std::byte* arena_base_ = nullptr;  // the arena that the instructions point into
  int64_t work_bytes_ = 0;
  int64_t arena_bytes_ = 0;
};

// Lowers a program and makes its plan.
std::shared_ptr<Plan> compile(const Program&, Pool&, const PlanOptions& = {});

}  // namespace lockstep
