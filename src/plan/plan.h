// Plan: a lowered program made ready for a lane, of the CPU or a GPU: prepared kernels in order, over buffer slots
// whose places were decided at compile time. Running a plan allocates nothing. A plan may be run from one thread at a
// time.
#pragma once

#include <memory>
#include <vector>

#include "lane/buffer.h"
#include "lane/pool.h"
#include "plan/cuda_plan.h"
#include "program/op.h"

namespace lockstep {

struct PlanOptions {
  // Inputs whose memory the plan may write over; empty: none.
  std::vector<bool> donated = {};
  // Work space shared with other plans, used during run() only; null: the plan has its own.
  Arena* arena = nullptr;
  // The lanes that differ along these axes of the grid; empty: the program runs on one lane.
  std::function<Comm*(const std::string& axes)> comm = {};
  // The GPU it runs on; null: the CPU.
  CudaLane* cuda = nullptr;
  // Donated inputs are written over by the outputs of the same numbers only.
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

  // `in` and `out` are dense row-major buffers, aligned for their elements, in the order of the program's inputs and
  // outputs; in the GPU's memory where the plan runs there, aligned for 64 bytes or, where they are smaller than 16,
  // for their size, and then the work is queued when it returns.
  void run(const void* const* in, void* const* out);

  // Has the kernels of a GPU compiled by other threads, for a run to come.
  void begin() const;

  // Bytes of memory the plan needs between inputs and outputs: work space and constants.
  int64_t arena_bytes() const { return arena_bytes_; }
  size_t instructions() const { return instructions_.size(); }

  // One line per instruction: op, operands' and results' types and places.
  std::string describe() const;

 private:
  friend class Planner;
#ifdef LOCKSTEP_WITH_CUDA
  friend class PlanRounds;
#endif
  struct Instruction {
    const Op* op = nullptr;  // null: what the label says
    const char* label = "copy";
    Kernel kernel;
    std::vector<const void*> in;
    std::vector<void*> out;
    std::string text;
    bool waits = false;  // for the GPU, or for other lanes
  };
  // Instructions that are queued on a GPU one after another, recorded where none of them waits.
  struct Section {
    size_t begin = 0, end = 0;
    std::unique_ptr<detail::Recordings> recordings;  // null: queued every time
  };
  // One pointer of an instruction.
  struct Slot {
    size_t instruction;
    size_t index;
    bool is_result;  // which list of the instruction
  };
  // A pointer that changes with every run, and one into the work space, which changes when that moves.
  struct Patch {
    Slot slot;
    bool from_input;  // which list of run()'s arguments
    size_t index;
  };
  struct ArenaPatch {
    Slot slot;
    int64_t offset;
  };
  // Memory of a small input or output that is the same in every run; see run_on_gpu().
  struct Landing {
    bool is_input;
    size_t index;
    BufferPtr memory;
    Kernel copy;
  };
  void set(const Slot&, void* pointer);
  void point(const void* const* in, void* const* out);
  bool waits() const;
  // Divides the instructions for a GPU. Returns whether any are worth recording.
  bool make_sections();
  void move_arena(std::byte* base);
  void run_on_gpu(const void* const* in, void* const* out);

  std::vector<Instruction> instructions_;
  std::vector<Patch> patches_;
  std::vector<ArenaPatch> arena_patches_;
  std::vector<int> donated_input_;
  std::vector<BufferPtr> constants_, gpu_constants_;
  BufferPtr own_gpu_;  // work space of a sub-program on a GPU
  std::shared_ptr<InFlight> in_flight_;
  Arena own_arena_;
  Arena* arena_ = nullptr;
  CudaLane* cuda_ = nullptr;
  size_t inputs_ = 0;
  std::vector<Section> sections_;
  bool ran_ = false;
  std::vector<Landing> landings_;
  std::vector<const void*> pointers_;  // of a run, for recordings
  std::vector<void*> outs_;
  std::byte* arena_base_ = nullptr;  // where the pointers of the instructions lead now
  int64_t work_bytes_ = 0;
  int64_t arena_bytes_ = 0;
};

// A plan for a whole program: lowers it first.
std::shared_ptr<Plan> compile(const Program&, Pool&, const PlanOptions& = {});

}  // namespace lockstep
