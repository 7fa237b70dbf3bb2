// CudaStep: the kernel text of a task (task.h): device functions with the data that schedules need of them. A step can
// be launched as a kernel of its own (LaunchedSteps) or be called by a persistent kernel (plan/cuda/kernel_text.h). It
// is executed by a number of thread blocks that are independent of each other unless it is `cooperative`.
//
// Values are immutable and safe from any thread; a kernel is launched by the thread of its lane.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lane/buffer.h"
#include "lockstep/shape.h"

namespace lockstep {

class CudaStream;

constexpr int kStepThreads = 512;                  // per thread block
constexpr int64_t kReservedSharedBytes = 4 << 10;  // shared memory reserved for the persistent kernel's runtime
constexpr int64_t kPartialSums = 512;              // length of an array of per-thread-block sums; unused ones are 0

// The tile of a matrix product, and how a thread block computes it.
struct CudaTile {
  int64_t tall = 0, wide = 0;        // of the result
  int warp_rows = 1, warp_cols = 1;  // warps along its rows and columns
  int warp_parts = 1;                // warps that share each sum
  int64_t splits = 1;                // thread blocks that share each sum (split-K)
  int64_t deep = 0;                  // elements of the sum per pipeline stage
  int64_t stages = 0;                // of the pipeline

  bool operator==(const CudaTile&) const = default;
};

struct CudaStep {
  // A parameter: an operand or result of the task (operands(), results()), or a workspace of the step.
  struct Argument {
    enum Kind : uint8_t { operand, result, workspace } kind;
    size_t index = 0;
  };

  std::string name;        // of the row, for messages and profiles
  std::string prelude;     // precedes the function: includes, helper functions; equal preludes are written once
  std::string parameters;  // "const float* in0, float* out0"
  // The work of thread block number `block`; `shared` is its shared memory. Threads may return before the end only
  // if no __syncthreads() follows.
  std::string body;
  std::vector<Argument> arguments;  // of the parameters, in order
  // Bytes of memory that the step needs besides operands and results, zeroed before the first launch. Steps leave zeros
  // there, unless they are `counted`.
  std::vector<int64_t> workspaces;
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
  double operations = 0;              // of matrix products: multiplications and additions
  bool cooperative = false;           // thread blocks wait for each other: all must be resident at the same time
  bool register_bound = false;        // threads have no free registers
  bool counted = false;               // the text uses `now`, a number that differs between executions and is never 0
  std::optional<CudaTile> tile = {};  // of a product in tiles
  // If threads compute elements independently and write nothing else: the number of elements, the number per thread
  // (CudaElements::flat), and the operands that are read only at the same element.
  int64_t elements = 0, each = 0;
  std::vector<size_t> in_place;
  // Operands that can be prefetched before everything that the step reads has been written. `body` is the text that
  // prefetches them. The step's own body then finds bit k of `prefetched` set for the k-th entry.
  struct Prefetch {
    std::vector<size_t> operands;
    std::string body;
  };
  std::vector<Prefetch> prefetches;
  // If thread blocks compute `rows` x `cols` elements each of the first result, a `height` x `width` matrix. `place` is
  // a type: place(block) has `first_row()` and `col`, where the elements of the thread block begin. `rows` is 0 if the
  // result is divided in another way.
  struct Share {
    int64_t rows = 0, cols = 0, height = 0, width = 0;
    std::string place;
  };
  Share share;
  // With TaskDivision::columns of kind `sums`: the text that publishes a partial sum, a function of (row, the matrix of
  // rows from column `col` on, the small matrix likewise).
  std::string publish;
  // If a second task must combine partial results (TaskStage): their type.
  std::optional<Type> partial = {};
};

// Computes elements of a row's only result, four consecutive ones at a time. Steps that read the result can compute the
// elements they need instead, and the result need not be written (inline_producers()). The texts require that
// "elementwise.cuh" is included.
struct CudaSource {
  std::string type;                // of an element in memory
  std::vector<size_t> operands;    // that it reads: `in0`, ... in the text
  std::vector<std::string> types;  // of these operands: "const float*"
  // Sets x[0] to x[3] to elements i to i + 3 of the dense result. `i` is a multiple of four.
  std::string body;
  std::string one;                      // sets x to element i, bit for bit as the row computes it; may be empty
  int64_t result_bytes = 0, bytes = 0;  // per element: of the result, and of the operands read for it
  int equations = 0;                    // computed per element
  bool rounded = false;                 // element i is only element i of the only operand, an f32, rounded to 16 bits

  // The text of a function of the operands' pointers that returns the function of i and x.
  // REQUIRES: `one` is not empty if only_one.
  std::string text(bool only_one = false) const;
  // The argument list "(p0, p1)"; `name` returns the expression for an operand.
  std::string applied(const std::function<std::string(size_t operand)>& name) const;
};

// Launches steps as kernels of their own, in order: a Kernel. They are compiled on other threads as soon as it exists.
class LaunchedSteps {
 public:
  // `workspaces`: of all steps, in place of CudaStep::workspaces. Empty: they are allocated.
  LaunchedSteps(CudaStream& stream, std::vector<CudaStep> steps, std::vector<BufferPtr> workspaces = {});

  void operator()(const void* const* in, void* const* out) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The division of independent elements over thread blocks: the number of elements, how many a thread block computes,
// and how many a thread has in flight at the same time.
struct CudaElements {
  int64_t n = 0, of_block = 0, of_thread = 1;
  bool by_warp = false;  // `of_block` is per warp instead of per thread block

  // At most `most` elements per thread in flight. Uses few thread blocks; one, if that is enough.
  static CudaElements flat(int64_t n, int64_t most);
  static CudaElements in_ranges(int64_t n, int64_t most, int64_t count, bool by_warp = false);
  // The number of ranges for which a thread computes at most a few dozen elements.
  static int64_t least_ranges(int64_t n);

  int64_t blocks() const { return (n + of_block - 1) / of_block; }
  // `read` loads the inputs of element `i` into `r`, of the type `state`; `finish` computes the element from `r`.
  std::string text(const std::string& state, const std::string& read, const std::string& finish) const;
};

// The types and the names of a step's parameters: "const float*" and "in0".
std::vector<std::pair<std::string, std::string>> parameters_of(const CudaStep& step);

// The text of a step as a kernel of its own, called kernel_name(step.name) (text.h).
std::string text_of(const CudaStep& step);

}  // namespace lockstep
