// Steps: the GPU work of a row as texts of device functions. A step can be launched as a kernel of its own or be
// combined with the steps of other rows in one persistent kernel (plan/cuda/whole_kernel.h). A step is executed by a
// number of thread blocks that are independent of each other unless it is `cooperative`. The steps of a row are
// executed in order.
//
// A SteppedKernel also offers variants of its work (SteppedWays), which the planner selects to fuse rows. Values are
// immutable and safe from any thread; a kernel is launched by the thread of its lane.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lane/buffer.h"
#include "program/op.h"

namespace lockstep {

constexpr int kStepThreads = 512;                  // per thread block
constexpr int64_t kReservedSharedBytes = 4 << 10;  // shared memory reserved for the persistent kernel's runtime
constexpr int64_t kPartialSums = 512;              // length of an array of per-thread-block sums; unused ones are 0

struct CudaStep {
  // A parameter: an operand or result of the row, or memory that belongs to the kernel.
  struct Argument {
    enum Kind : uint8_t { operand, result, own } kind;
    size_t index = 0;
  };

  std::string name;        // of the row, for messages and profiles
  std::string prelude;     // precedes the function: includes, helper functions; equal preludes are written once
  std::string parameters;  // "const float* in0, float* out0"
  // The work of thread block number `block`; `shared` is its shared memory. Threads may return early only
  // if no __syncthreads() follows.
  std::string body;
  std::vector<Argument> arguments;  // of the parameters, in order
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
  double operations = 0;        // of matrix products: multiplications and additions
  bool cooperative = false;     // thread blocks wait for each other: all must be resident at the same time
  bool register_bound = false;  // threads have no free registers
  bool counted = false;         // the text uses `now`, a number that differs between executions and is never 0
  // If threads compute elements independently and write nothing else: the number of elements, the number per thread
  // (CudaElements::flat), and the operands that are read only at the same element.
  int64_t elements = 0, each = 0;
  std::vector<size_t> in_place;
  // Operands that can be prefetched before everything that the step reads has been written. `body` is the text that
  // prefetches them. The step's own body then finds bit k of `early` set for the k-th entry.
  struct Early {
    std::vector<size_t> operands;
    std::string body;
  };
  std::vector<Early> early;
  // If thread blocks compute `rows` x `cols` elements each of the first result, a `height` x `width` matrix. `place` is
  // a type: place(block) has `first_row()` and `col`, where the elements of the thread block begin. `rows` is 0 if the
  // result is divided in another way.
  struct Share {
    int64_t rows = 0, cols = 0, height = 0, width = 0;
    std::string place;
  };
  Share share;
};

// A row computed range by range: each of `count` thread blocks computes one of `count` equal ranges of every result.
// Thread blocks that process the same range of other rows need not wait for the other ranges (plan/cuda/whole_ranges.cc).
struct CudaRanges {
  int64_t most = 0, least = 1;  // `count` divides `most` (0: no ranges) and is at least `least`
  std::vector<size_t> own;      // operands of which a thread block reads only its own of `count` ranges
  std::function<CudaStep(int64_t count)> step;
  // The same with a warp instead of a thread block per range; `block` is then the number of the warp. May be empty.
  std::function<CudaStep(int64_t count)> by_warp = {};
};

// A product of a matrix of rows with a small matrix, computed by thread blocks that have only some columns of each row
// (plan/cuda/whole_spread.cc). Kinds:
//   sums     they have columns of the first matrix; they publish partial sums to each other
//   columns  they compute columns of the result
struct CudaSpread {
  enum Kind : uint8_t { none, sums, columns } kind = none;
  size_t rows = 0, by = 0;                  // operands: the matrix of rows, and the small matrix
  int64_t few = 0, width = 0;               // columns of the result and of `rows`: the smaller and the larger number
  std::string row_type = {}, by_type = {};  // of the operands' elements in memory
  std::vector<size_t> in_place = {};        // other operands that are read only at the result's own element
  // The work of a warp in a thread block with `cols` columns. `block` is the row, and `by` begins at the elements for
  // the first column, `col`. Published partial sums are in `told`, tagged with `now`; `place` is the number of the
  // publishing thread block.
  std::function<CudaStep(int64_t cols)> step = {};
  // The text that publishes a partial sum: a function of (row, `rows` from `col` on, `by` likewise).
  std::function<std::string(int64_t cols)> publish = {};
};

// Computes elements of a row's only result, four consecutive ones at a time. Steps that read the result can compute the
// elements they need instead, and the result need not be written (plan/cuda/whole_sources.cc). The texts require that
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

// An operand that a source computes. The operands of the source are numbered from `first` on.
struct CudaSourced {
  size_t operand = 0;
  const CudaSource* source = nullptr;
  size_t first = 0;
  bool written = false;  // the computed operand is also written, as an additional result, for other readers
  bool alone = false;    // the kernel's other operands were written earlier: it waits only for this one
};

// Computations on the sums of a matrix's columns, range by range of the columns.
constexpr const char* kWithColumns = "einsum with columns";  // the name of a step with such computations
struct CudaColumns {
  // One computation. The sums are these operands of `ranges`, in order. It needs no shared memory. Its other operands
  // are numbered from `first_operand` on, its results from `first_result` on.
  struct Use {
    CudaRanges ranges;
    std::vector<size_t> sums;
    size_t first_operand = 0, first_result = 0;
  };
  std::vector<Use> uses;
  Type matrix = {};  // the matrix whose columns are summed; the sums have its element type
};

class SteppedKernel;

// Variants of a kernel's work. An empty function: no such variant. Functions return nullopt if the variant is not
// possible for their arguments.
struct SteppedWays {
  Kernel apart = {};                                         // as a separate launch, not combined with other rows
  std::function<SteppedKernel(int processors)> remake = {};  // for that number of the GPU's multiprocessors
  CudaRanges ranges = {};                                    // range by range
  std::shared_ptr<const CudaSpread> spread = {};             // with some columns of each row per thread block
  // With tiles for thread blocks that exchange that many floats per row (choose_tiles()).
  std::function<std::optional<SteppedKernel>(int64_t exchanged)> with_exchange = {};
  // As a source, some of whose operands are computed by other sources; as a kernel with such operands.
  std::function<std::optional<CudaSource>(const std::vector<CudaSourced>&)> source = {};
  std::function<std::optional<SteppedKernel>(const std::vector<CudaSourced>&)> sourced = {};
  // Instead of that result, writes kPartialSums sums of its elements. The second is for a kernel that only adds up all
  // elements of its only operand: it adds up such sums instead.
  std::function<std::optional<SteppedKernel>(size_t result)> adding = {};
  std::function<SteppedKernel()> of_added_up = {};
  // The matrix, if the kernel adds up the columns of its only operand.
  std::optional<Type> adds_columns = {};
  // Of a product: the operand whose columns it can add up as well; the variant that does so.
  std::optional<size_t> by_columns = {};
  std::function<std::optional<SteppedKernel>(const CudaColumns&)> with_columns = {};
};

// A kernel made of steps. Found with std::function's target().
class SteppedKernel {
 public:
  // The lane may be null if only the texts are used. `own` is memory the steps use besides operands and results.
  SteppedKernel(CudaStream* lane, std::vector<CudaStep> steps, std::vector<BufferPtr> own = {}, SteppedWays ways = {});

  void operator()(const void* const* in, void* const* out) const;
  // Starts compiling it on other threads, for a later call.
  void begin() const;

  // The kernel for that many multiprocessors, while other work runs on the rest; itself if that makes no difference.
  SteppedKernel on(int processors) const;

  // The variants, see SteppedWays.
  const std::vector<CudaStep>& steps() const;
  const CudaRanges& ranges() const;
  const CudaSpread& spread() const;
  std::optional<SteppedKernel> with_exchange(int64_t exchanged) const;
  bool is_source() const;
  std::optional<CudaSource> source(const std::vector<CudaSourced>& operands) const;
  std::optional<SteppedKernel> sourced(const std::vector<CudaSourced>& operands) const;
  std::optional<SteppedKernel> adding(size_t result) const;
  bool adds_up() const;
  SteppedKernel of_added_up() const;  // REQUIRES: adds_up().
  std::optional<Type> adds_columns() const;
  std::optional<size_t> by_columns() const;
  std::optional<SteppedKernel> with_columns(const CudaColumns&) const;
  const void* own(size_t index) const;
  const std::vector<BufferPtr>& memory() const;
  CudaStream* lane() const;

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

// The text of a step as a kernel of its own, called `f`.
std::string text_of(const CudaStep& step);

}  // namespace lockstep
