// Several instructions of a plan as one kernel on the GPU, for programs of many small ones: starting a kernel after
// another costs more than what they compute. One block of threads on each processor does its share of one phase after
// the other and waits for all others in between. Instructions that need nothing of each other share a phase; a chain of
// very small ones is done by one block, one after the other, without the others waiting; and a chain of which a block
// needs its own rows only is done by all blocks, each with its rows.
//
// Worked example. The training step of an MLP has 30 instructions: images are gathered and scaled, three products
// forward, with what is done to their elements, the loss in a dozen of 128 x 10 elements, and backward products that
// end in updated weights. Five phases: rows of images; a product; the next one with the last product, the loss and its
// gradient, row by row; and two of products backward, with the updates. Four where the products are small enough to
// choose and scale rows themselves.
//
// Pure functions but for whole_kernel(), which asks the GPU's compiler; safe from any thread.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/rounds.h"
#include "ops/cuda/step.h"

namespace lockstep::detail {

// A stretch of memory: of an input, an output, the work space, by whatever numbers tell them apart.
struct Stretch {
  int64_t space = 0, begin = 0, end = 0;
  bool overlaps(const Stretch& other) const { return space == other.space && begin < other.end && other.begin < end; }
  bool operator==(const Stretch&) const = default;
};

// An instruction, or several that became one, and where its operands and results are: in memory, and among those of the
// whole kernel.
struct WholePart {
  const SteppedKernel* kernel = nullptr;
  std::vector<Stretch> in, out;
  std::vector<size_t> operands = {}, results = {};
  bool needed = false;            // its results are wanted by others than the parts of the kernel,
  std::vector<bool> wanted = {};  // and which; all of them, where that is not said

  bool wants(size_t result) const { return wanted.empty() ? needed : wanted[result]; }
};

bool any_overlap(std::span<const Stretch> all, const Stretch& one);

// Does the one have to be done before or after the other?
bool conflict(const WholePart& a, const WholePart& b);

// Is the step one for a chain of such, of one block?
bool is_small(const CudaStep& step);

// Parts without those whose results the others compute where they read them (CudaSource): rows of images that are
// chosen and scaled, say, or weights in fewer bits, which products then need nobody to wait for. `made` keeps the
// kernels.
std::vector<WholePart> with_sources(std::span<const WholePart> parts, std::deque<SteppedKernel>& made);

// Parts of which products add up what is only added up after, and do not write it. `made` keeps the kernels.
std::vector<WholePart> with_sums(std::span<const WholePart> parts, std::deque<SteppedKernel>& made);

// Parts of which products add up the columns of a matrix that they multiply by, where others did only that, and do what
// was done with the sums. `made` keeps the kernels.
std::vector<WholePart> with_columns(std::span<const WholePart> parts, std::deque<SteppedKernel>& made);

// Parts in an order in which they can be done, of which those that can be done range by range (CudaRanges), one after
// the other by the same block, have become one: then nothing is waited for in between, and what one leaves to the other
// stays in the block's memory. Of up to `processors` blocks. With the product before them where it can be (spread()).
// `made` keeps the kernels.
std::vector<WholePart> in_ranges(std::span<const WholePart> parts, int processors, std::deque<SteppedKernel>& made);

// A product that is computed in tiles, and a chain of parts that need whole rows of it, as one part of the product's
// blocks: each has some columns of some rows, and they tell each other what they add up. Nothing where that cannot be.
// `made` keeps the kernel.
std::optional<WholePart> spread(const WholePart& product, std::span<const WholePart> chain, int processors,
                                std::deque<SteppedKernel>& made);

// Is the instruction small enough to be put together with others?
bool may_join(const SteppedKernel& kernel, int processors);

// What happens when: phases of tasks that may happen side by side. A task is one step; or a chain of small steps for
// one block; or steps that compute the same elements one after the other, so that each thread needs only what it wrote.
struct WholeStep {
  size_t part = 0, step = 0;
};
using Task = std::vector<WholeStep>;
using Phase = std::vector<Task>;
bool is_chain(std::span<const WholePart> parts, const Task& task);
std::vector<Phase> phases_of(std::span<const WholePart> parts);

// The same, but what little a phase of products for all of the GPU does besides is done in a later one of as much,
// where nothing needs it before, or of a product nothing but small steps, which then wait, too: of a long phase not all
// blocks are done at the same time.
std::vector<Phase> phases_on(std::span<const WholePart> parts, int processors);

// How far the pointers of a kernel's operands and results move from round to round, in bytes; none for those that are
// the same in all of them.
struct WholeSteps {
  std::vector<std::optional<int64_t>> in, out;
};

// In a kernel of several rounds: is what the last phase does so little, and so far from what the first one reads and
// writes, that a block does it beside the next round's first phase, and no other waits for it?
bool is_late(std::span<const WholePart> parts, std::span<const Phase> phases, const WholeSteps& steps);

// The phases of a kernel of several rounds: where it makes the last one late, little of the first is done in the
// second.
std::vector<Phase> for_rounds(std::span<const WholePart> parts, std::span<const Phase> phases, const WholeSteps& steps,
                              int processors);

// Which of what a task can be brought before it begins (CudaStep::early) is not among what was written, by bits.
uint32_t early_of(std::span<const WholePart> parts, const Task& task, std::span<const Stretch> written);

// Makes the kernels of parts that share a phase anew, each for its share of the GPU: the small ones for what the large
// ones leave. `made` keeps them.
void share_out(std::vector<WholePart>& parts, std::span<const Phase> phases, int processors,
               std::deque<SteppedKernel>& made);

class Ahead;

// The kernel's text. Its function `f` takes a structure of all pointers, part by part and step by step, and a word in
// which blocks count each other, which is 0 before the first start. With `steps`, the structure has the pointers that
// move a second time, for odd rounds, and the number of rounds follows. `near`: pointers are in the block's memory.
// `ahead`: what the first phase can be brought before the round before is done, or, without `steps`, the kernel before
// this one, and is where the number that follows is not 0. `processors`: of so many blocks; any number of them where it
// is 0, and then no phase is late.
std::string whole_text(std::span<const WholePart> parts, std::span<const Phase> phases,
                       const WholeSteps* steps = nullptr, bool near = true, const Ahead* ahead = nullptr,
                       int64_t processors = 0);

// A kernel takes so many pointers at most.
bool fits_whole(std::span<const WholePart> parts);

// The parts of one kernel with all of the above done to them that leaves them few enough pointers.
// REQUIRES: fits_whole(parts).
std::vector<WholePart> prepared(std::span<const WholePart> parts, int processors, std::deque<SteppedKernel>& made);

// Several instructions as a kernel. std::function's target() finds it.
class WholeKernel {
 public:
  // REQUIRES: fits_whole(parts).
  WholeKernel(CudaLane& lane, std::span<const WholePart> parts, std::span<const Phase> phases);

  void operator()(const void* const* in, void* const* out) const;
  // Has it compiled by another thread, for a call to come.
  void begin() const;

  // The same over and over: of the pointers of round 0 for the even ones, those of the odd ones as if they began there,
  // and a number of rounds. Nothing where that would be too many pointers.
  using Rounds = std::function<void(const void* const* in, void* const* out, const void* const* odd_in,
                                    void* const* odd_out, int64_t count)>;
  Rounds rounds(const WholeSteps& steps) const;

  // How many launches of this thread brought something ahead (plan/whole_ahead.h).
  static int64_t went_ahead();
  // How many kernels of several rounds this thread has made whose last phase is late.
  static int64_t made_late();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// An instruction of a plan: its kernel, and where its operands and results are.
struct GpuInstruction {
  const Kernel* kernel = nullptr;
  std::vector<Stretch> in, out;
  std::vector<bool> outlives = {};  // by result: it is the program's, too
};

// Instructions from `first` on that became one, and what a plan's text says of it.
struct Joined {
  size_t first = 0, count = 0;
  Kernel kernel;  // of all operands, then all results, instruction by instruction
  std::string text;
};

// In order. None where LOCKSTEP_CUDA_KERNELS=apart is set.
std::vector<Joined> joined(CudaLane& lane, const std::vector<GpuInstruction>& instructions);

}  // namespace lockstep::detail

namespace lockstep {

class Pool;

// What a sub-program does for SubProgram::rounds.
class PlanRounds {
 public:
  static std::optional<RoundsKernel> of(const Program&, Pool&, CudaLane&, const CudaRounds&);
};

}  // namespace lockstep
