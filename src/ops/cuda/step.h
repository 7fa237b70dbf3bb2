// Steps: what a row does on the GPU, as texts of device functions that can be started as kernels of their own or be
// put together with the steps of other rows in one (plan/whole_kernel.h). A step is done by a number of blocks of
// threads that know nothing of each other; the steps of a row are done one after the other.
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

constexpr int kStepThreads = 512;           // of a block
constexpr int64_t kStepReserved = 4 << 10;  // of its memory, for who puts steps together
constexpr int64_t kAddedUp = 512;           // sums of a result's elements, by the blocks that computed them; the rest 0

struct CudaStep {
  struct Argument {
    enum Kind : uint8_t { operand, result, own } kind;
    size_t index = 0;
  };

  std::string name;        // of the row, for people
  std::string prelude;     // what stands before the function: includes, other functions; equal ones are written once
  std::string parameters;  // "const float* in0, float* out0"
  // What block number `block` does, in which `shared` is memory of the block. Threads may return early only where no
  // __syncthreads() follows.
  std::string body;
  std::vector<Argument> arguments;  // of the parameters, in order
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
  double operations = 0;  // of matrix products: multiplications and additions
  bool meets = false;     // blocks side by side wait for each other: all must run at a time
  bool crowded = false;   // threads have no registers left
  bool counted = false;   // `now` is a number that is another one each time it is done, and never 0
  // Where threads compute elements one by one and write nothing else: how many there are, how many of them a thread has
  // (CudaElements::flat), and the operands of which it reads only elements of the same place.
  int64_t elements = 0, each = 0;
  std::vector<size_t> in_place;
  // What can be on its way before all that the step reads has been written: operands, with what brings them near, a
  // text like `body`, which then finds bit k of `early` set for the k-th.
  struct Early {
    std::vector<size_t> operands;
    std::string body;
  };
  std::vector<Early> early;
  // Where blocks compute `rows` x `cols` elements each of the first result, a matrix of `height` x `width`. `place`: of
  // what type (block) has `first_row()` and `col`, where they begin. `rows` is 0 where that is not so.
  struct Share {
    int64_t rows = 0, cols = 0, height = 0, width = 0;
    std::string place;
  };
  Share share;
};

// How a row is done range by range: each of `count` blocks computes one of so many equal ranges of every result. What
// blocks of other rows do with the same range needs no waiting for the others (plan/whole_ranges.cc).
struct CudaRanges {
  int64_t most = 0, least = 1;  // `count` divides the former (0: there are none) and is not below the latter
  std::vector<size_t> own;      // operands of which a block reads its own range, of as many, and nothing else
  std::function<CudaStep(int64_t count)> step;
  // By a warp of some that do a range each, whose number is `block`; may be empty.
  std::function<CudaStep(int64_t count)> by_warp = {};
};

// A product with a small matrix by blocks that have only some columns of each row: those of the first matrix, then
// parts of the sums, which blocks tell each other; or those of the result (plan/whole_spread.cc).
struct CudaSpread {
  enum Kind : uint8_t { none, sums, columns } kind = none;
  size_t rows = 0, by = 0;                  // operands: the matrix of rows, and the one it is multiplied by
  int64_t few = 0, width = 0;               // columns of result and `rows`, whichever are few
  std::string row_type = {}, by_type = {};  // of the operands' elements in memory
  std::vector<size_t> in_place = {};        // other operands of which only the result's own element is read
  // By a warp, where a block has so many columns: `block` is the row, and `by` begins with what the first of them,
  // `col`, needs. Sums are made of what was told: `told`, `now` and `place` are where, when and by whom.
  std::function<CudaStep(int64_t cols)> step = {};
  std::function<std::string(int64_t cols)> give = {};  // tells a part, of (row, `rows` from `col` on, `by` likewise)
};

// What elements of a row's only result are, four that lie side by side at a time: then who reads it can compute what it
// reads, and the result need not be written (plan/whole_sources.cc). The texts are for where "elementwise.h" is
// included.
struct CudaSource {
  std::string type;                // of an element in memory
  std::vector<size_t> operands;    // which are read: `in0`, ... to the text
  std::vector<std::string> types;  // theirs: "const float*"
  // Sets x[0] to x[3] to elements i to i + 3 of the dense result. `i` is a multiple of four.
  std::string body;
  std::string one;                      // sets x to element i, to the last bit; may be empty
  int64_t result_bytes = 0, bytes = 0;  // of an element, and of what is read for it
  int equations = 0;                    // that are computed for it
  bool rounded = false;                 // it is nothing but element i of the only operand, a float, in fewer bits

  // The function, of pointers in that order, that gives the function of i and x. REQUIRES: not only_one or `one`.
  std::string text(bool only_one = false) const;
  // "(p0, p1)" and the like: an argument list of these names, for operands by their numbers.
  std::string applied(const std::function<std::string(size_t operand)>& name) const;
};

// An operand that is computed by a source, whose own operands are numbered from `first` on.
struct CudaSourced {
  size_t operand = 0;
  const CudaSource* source = nullptr;
  size_t first = 0;
  bool written = false;  // for others besides, as one more result
  bool alone = false;    // what else the kernel reads was there before: it waits for nothing but this
};

// What is made of the sums of a matrix' columns, range by range of them.
constexpr const char* kWithColumns = "einsum with columns";  // the name of a step that does it
struct CudaColumns {
  // One thing that is: the sums are these operands of `ranges`, in order, none of which needs anything of the block's
  // memory. Its other operands are numbered from `first_operand` on, its results from `first_result` on.
  struct Use {
    CudaRanges ranges;
    std::vector<size_t> sums;
    size_t first_operand = 0, first_result = 0;
  };
  std::vector<Use> uses;
  Type matrix = {};  // whose columns they are the sums of, of the same type
};

class SteppedKernel;

// Other ways to do what a kernel does.
struct SteppedWays {
  Kernel apart = {};                                         // when it is not put together with others
  std::function<SteppedKernel(int processors)> remake = {};  // on that many processors of the GPU
  CudaRanges ranges = {};                                    // range by range
  std::shared_ptr<const CudaSpread> spread = {};             // of some columns of each row
  // Where blocks tell each other so many floats for each row (choose_tiles()).
  std::function<std::optional<SteppedKernel>(int64_t told)> telling = {};
  // As a source, some of whose operands are computed by others; and with such operands. Nothing where that cannot be.
  std::function<std::optional<CudaSource>(const std::vector<CudaSourced>&)> source = {};
  std::function<std::optional<SteppedKernel>(const std::vector<CudaSourced>&)> sourced = {};
  // With kAddedUp sums of that result's elements instead of these; and as one that takes such sums, where it does
  // nothing but add up all elements of its only operand.
  std::function<std::optional<SteppedKernel>(size_t result)> adding = {};
  std::function<SteppedKernel()> of_added_up = {};
  // The columns of its only operand, that matrix, are what it adds up.
  std::optional<Type> adds_columns = {};
  // Of a product: the matrix whose columns it can add up besides; and doing so.
  std::optional<size_t> by_columns = {};
  std::function<std::optional<SteppedKernel>(const CudaColumns&)> with_columns = {};
};

// A kernel made of steps. std::function's target() finds it.
class SteppedKernel {
 public:
  // The lane may be null where only the texts are wanted. `own` is memory the steps use besides operands and results.
  SteppedKernel(CudaLane* lane, std::vector<CudaStep> steps, std::vector<BufferPtr> own = {}, SteppedWays ways = {});

  void operator()(const void* const* in, void* const* out) const;
  // Has it compiled by other threads, for a call to come.
  void begin() const;

  // Made for when others have the rest of the GPU; itself where that makes no difference.
  SteppedKernel on(int processors) const;

  const std::vector<CudaStep>& steps() const;
  const CudaRanges& ranges() const;
  const CudaSpread& spread() const;
  std::optional<SteppedKernel> telling(int64_t told) const;
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
  CudaLane* lane() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Elements that are computed one by one: how many there are, how many of them a block has, one after the other, and how
// many a thread has on their way together.
struct CudaElements {
  int64_t n = 0, of_block = 0, of_thread = 1;
  bool by_warp = false;  // `of_block` elements are those of a warp

  // At most so many of a thread: few blocks are done at once, and what one block can do needs no other.
  static CudaElements flat(int64_t n, int64_t most);
  static CudaElements in_ranges(int64_t n, int64_t most, int64_t count, bool by_warp = false);
  // So that a thread has no more than a few dozen.
  static int64_t least_ranges(int64_t n);

  int64_t blocks() const { return (n + of_block - 1) / of_block; }
  // `read` reads what element `i` is made of to `r`, which is of the type `state`; `finish` makes it of that.
  std::string text(const std::string& state, const std::string& read, const std::string& finish) const;
};

// The types and the names of a step's parameters: "const float*" and "in0".
std::vector<std::pair<std::string, std::string>> parameters_of(const CudaStep& step);

// The text of a step as a kernel of its own, called `f`.
std::string text_of(const CudaStep& step);

}  // namespace lockstep
