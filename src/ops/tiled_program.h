// TiledProgram: an elementwise program, compiled to run tile by tile, so that the result of one equation is still in
// the L1 cache when the next one reads it.
//
//   auto c = TiledProgram::compile(program);      // once
//   c.run(in, out, 0, c.size(), scratch);    // any number of times; ranges may run on different threads
//
// The program may contain elementwise equations (Op::loop), views (Op::view) of its inputs or of other such views, and
// constants. Every computed value and every output has one shape, the iteration space.
//
// Execution: the space is divided, in row-major order, into tiles of a few hundred elements. For each tile a list of
// steps is executed. Each step is a vectorized loop over the tile from slots to a slot. A slot is where elements are
// read or written:
//   - an input or output array, in place
//   - a register: a tile of scratch memory, shared by values that are not live at the same time
//   - a constant
// An operand that is broadcast or strided is first gathered into a register.
//
// Immutable after compile: any number of threads may run the same TiledProgram, each with its own scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/affine.h"
#include "ops/loops/loops.h"
#include "program/program.h"

namespace lockstep {

class TiledProgram {
 public:
  // alias[o] is the input whose memory output o shares, or -1; empty: no output shares memory. REQUIRES: the program is
  // as described above, and reads_same_index() holds for every input in `alias`.
  static TiledProgram compile(const Program& program, std::span<const int> alias = {});

  TiledProgram(TiledProgram&&) = default;
  TiledProgram& operator=(TiledProgram&&) = default;

  int64_t size() const { return size_; }  // elements of the iteration space
  int64_t tile() const { return tile_; }  // maximum elements per step
  int64_t cost() const { return cost_; }  // of one element, in additions
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // Computes elements [begin, end) of every output. `in` and `out` are complete arrays; `scratch` is 64-byte aligned
  // and has scratch_bytes().
  void run(const void* const* in, void* const* out, int64_t begin, int64_t end, void* scratch) const {
    execute(in, out, begin, end, scratch, nullptr);
  }

  // The same, except that element i of input 0 is at compact[i - begin]; in[0] is not used.
  // REQUIRES: reads_same_index(program, 0).
  void run_segment(const void* const* in, void* const* out, int64_t begin, int64_t end, void* scratch,
                   const void* compact) const {
    execute(in, out, begin, end, scratch, compact);
  }

 private:
  friend class TiledProgramCompiler;
  using SlotId = uint16_t;
  static constexpr size_t kMaxDims = 32;  // of a gathered operand

  enum class Storage : uint8_t { input, output, reg, constant };
  struct Slot {
    Storage storage;
    int32_t index;   // of the input or output
    int64_t offset;  // bytes from the start of the array, the scratch memory or the constants
    int64_t step;    // bytes from one element of the iteration space to the next; 0: the same memory for every tile
  };

  // An operand gathered for each tile: its loops, innermost first.
  struct Gather {
    LoadRow load;
    SlotId slot;
    int32_t input;
    int64_t offset;        // bytes
    int64_t element;       // bytes of an element of the input
    int64_t width;         // bytes of an element of the register
    bool may_be_in_place;  // a range within a row can be read without a copy
    std::vector<AffineDim> dims;
  };
  // One loop over a tile, or (if loop is null) the gather of an operand.
  struct Step {
    Loop loop;
    SlotId in[3];
    SlotId out;
    int32_t gather;
  };

  TiledProgram() = default;
  void execute(const void* const* in, void* const* out, int64_t begin, int64_t end, void* scratch,
               const void* compact) const;
  static void gather(const Gather& g, const char* array, char* reg, char** at, int64_t begin, int64_t n);

  int64_t size_ = 0;
  int64_t tile_ = 0;
  int64_t row_ = 0;  // tiles end where rows of this length end; 0: anywhere
  int64_t cost_ = 0;
  int64_t scratch_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<Gather> gathers_;  // per tile, in Step::gather
  std::vector<Gather> uniform_;  // operands that are one repeated element: gathered once per run
  std::vector<Step> steps_;
  std::vector<std::byte> constants_;
};

// Whether element i of every output reads this input only at element i. Then an output may be written over it.
bool reads_same_index(const Program& program, size_t input);

}  // namespace lockstep
