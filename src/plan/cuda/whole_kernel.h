// Persistent kernels: combine many small instructions of a plan into one kernel on the GPU, because launching kernels
// one after another would cost more than they compute. One thread block per multiprocessor does its share of each
// phase; a grid barrier separates phases.
//
//   phase   tasks that run side by side
//   task    one step of an instruction; or a chain of small steps that one block runs without grid barriers; or steps
//           that compute the same elements one after another
//   part    an instruction, or several that were merged; made of steps
//
// Instructions that do not depend on each other share a phase. A chain in which a block needs only its own rows is run
// by all blocks, each on its rows.
//
// Worked example. The training step of an MLP has 30 instructions: gathered and scaled images, three forward products
// with epilogues, a dozen for the loss of 128 x 10 elements, and backward products that end in updated weights. This
// makes five phases: rows of images; a product; the next product with the last one, the loss and its gradient, row by
// row; and two of backward products with updates. If products are small enough to gather and scale rows themselves, it
// makes four.
//
// Pure functions, except for PersistentKernel, which uses the GPU. Safe from any thread.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/rounds.h"
#include "ops/cuda/step.h"
#include "plan/memory.h"

namespace lockstep::detail {

// An instruction, or several that were merged, with the memory of its operands and results, and their indices among
// those of the persistent kernel.
struct KernelPart {
  const SteppedKernel* kernel = nullptr;
  std::vector<MemoryRange> in, out;
  std::vector<size_t> operands = {}, results = {};
  bool needed = false;            // its results are used outside of the kernel
  std::vector<bool> wanted = {};  // which of them; empty: all

  bool wants(size_t result) const { return wanted.empty() ? needed : wanted[result]; }
};

bool any_overlap(std::span<const MemoryRange> all, const MemoryRange& one);

// Whether the order of the two parts matters.
bool conflict(const KernelPart& a, const KernelPart& b);

// Whether the step is small enough for a chain that one block runs.
bool is_small(const CudaStep& step);

// Merges producers into the parts that read them, which then compute the values themselves (CudaSource): for example
// gathered and scaled rows of images, or rounded weights. `made` owns the new kernels.
std::vector<KernelPart> inline_sources(std::span<const KernelPart> parts, std::deque<SteppedKernel>& made);

// Merges sums of a product's result into the product, which then does not write the
// result. `made` owns the new kernels.
std::vector<KernelPart> fuse_sums(std::span<const KernelPart> parts, std::deque<SteppedKernel>& made);

// Merges column sums of a product's operand (a bias gradient), and what is computed from them, into the product. `made`
// owns the new kernels.
std::vector<KernelPart> fuse_column_sums(std::span<const KernelPart> parts, std::deque<SteppedKernel>& made);

// Orders the parts and merges those that one block can run one after another, range by range (CudaRanges), without grid
// barriers; intermediate values stay in shared memory. For up to `processors` blocks. Includes the product before them
// if possible (spread_rows()). `made` owns the new kernels.
std::vector<KernelPart> merge_ranges(std::span<const KernelPart> parts, int processors,
                                     std::deque<SteppedKernel>& made);

// Merges a tiled product with a chain of parts that need complete rows of it. Each block has some columns of some rows,
// and the blocks of a row exchange partial sums. Returns nullopt if that is not possible. `made` owns the new kernel.
std::optional<KernelPart> spread_rows(const KernelPart& product, std::span<const KernelPart> chain, int processors,
                                      std::deque<SteppedKernel>& made);

// Whether the instruction is small enough to be joined with others.
bool may_join(const SteppedKernel& kernel, int processors);

struct PartStep {
  size_t part = 0, step = 0;
};
using Task = std::vector<PartStep>;
using Phase = std::vector<Task>;
bool is_chain(std::span<const KernelPart> parts, const Task& task);
std::vector<Phase> phases_of(std::span<const KernelPart> parts);

// The same, but moves small tasks out of a phase whose products use the full GPU, to a later such phase or to a phase
// of small steps, if nothing needs them earlier. The blocks of a long phase do not finish at the same time.
std::vector<Phase> balanced_phases(std::span<const KernelPart> parts, int processors);

// A kernel may repeat its phases for several rounds (a scan). The bytes by which the pointers of operands and results
// advance from round to round; nullopt for those that stay.
struct RoundStrides {
  std::vector<std::optional<int64_t>> in, out;
};

// In a kernel of several rounds: whether the last phase is so small, and independent of the next round's first phase,
// that one block can run it beside that phase without a grid barrier.
bool overlaps_next_round(std::span<const KernelPart> parts, std::span<const Phase> phases, const RoundStrides& steps);

// The phases of a kernel of several rounds. May move small tasks from the first phase to the second if that makes
// overlaps_next_round() true.
std::vector<Phase> round_phases(std::span<const KernelPart> parts, std::span<const Phase> phases,
                                const RoundStrides& steps, int processors);

// Bitmask of the task's prefetchable operands (CudaStep::early) that are not in `written`.
uint32_t early_operands(std::span<const KernelPart> parts, const Task& task, std::span<const MemoryRange> written);

// Divides the GPU's blocks among the parts of each phase: small parts get what large ones leave. Rebuilds their kernels
// for that number of blocks; `made` owns them.
void assign_blocks(std::vector<KernelPart>& parts, std::span<const Phase> phases, int processors,
                   std::deque<SteppedKernel>& made);

class AheadPrefetch;

// The source text of the kernel. Its function `f` takes a structure of all pointers, part by part and step by step, and
// the counter of the grid barrier, which is 0 before the first launch. With `steps` the structure has the moving
// pointers a second time, for odd rounds, followed by the number of rounds. `near`: the pointers are copied to shared
// memory. `ahead`: prefetches of the first phase that start before the previous round has ended, or, without `steps`,
// before the previous kernel has ended; a flag argument enables the latter. `processors`: the number of blocks; 0: any
// number, and then the last phase never overlaps the next round.
std::string persistent_kernel_text(std::span<const KernelPart> parts, std::span<const Phase> phases,
                                   const RoundStrides* steps = nullptr, bool near = true,
                                   const AheadPrefetch* ahead = nullptr, int64_t processors = 0);

// Whether the parts have few enough pointers for the arguments of one kernel.
bool fits_in_one_kernel(std::span<const KernelPart> parts);

// Applies the merges above, as far as the pointers still fit.
// REQUIRES: fits_in_one_kernel(parts).
std::vector<KernelPart> optimize_parts(std::span<const KernelPart> parts, int processors,
                                       std::deque<SteppedKernel>& made);

// Several instructions as one kernel. A Kernel can hold it; target<PersistentKernel>() finds it.
class PersistentKernel {
 public:
  // REQUIRES: fits_in_one_kernel(parts).
  PersistentKernel(CudaStream& lane, std::span<const KernelPart> parts, std::span<const Phase> phases);

  void operator()(const void* const* in, void* const* out) const;
  // Starts to compile it on another thread. A later call waits for it.
  void compile_in_background() const;

  // The kernel for several rounds. It takes the pointers of round 0, which even rounds advance from; those of odd
  // rounds, given as if for round 0; and the number of rounds. Empty if it would need too many pointers.
  using Rounds = std::function<void(const void* const* in, void* const* out, const void* const* odd_in,
                                    void* const* odd_out, int64_t count)>;
  Rounds rounds(const RoundStrides& steps) const;

  // The number of this thread's launches that prefetched ahead (plan/cuda/whole_ahead.h). For tests.
  static int64_t ahead_launch_count();
  // The number of kernels of several rounds made by this thread whose last phase overlaps the next round. For tests.
  static int64_t late_phase_count();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// An instruction of a plan: its kernel, and the memory of its operands and results.
struct GpuInstruction {
  const Kernel* kernel = nullptr;
  std::vector<MemoryRange> in, out;
  std::vector<bool> escapes = {};  // by result: it is not in the arena, so that callers see it
};

// `count` instructions from `first` on, joined into one kernel, and its description for Plan::describe().
struct JoinedInstructions {
  size_t first = 0, count = 0;
  Kernel kernel;  // takes the operands and results of all instructions, in order
  std::string text;
};

// Finds instructions to join, in order. Finds none if RuntimeOptions::persistent_kernel is false.
std::vector<JoinedInstructions> join_instructions(CudaStream& lane, const std::vector<GpuInstruction>& instructions);

}  // namespace lockstep::detail
