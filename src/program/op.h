// Op: the definition of an op as one row of data. Every pass (trace, grad, vmap, simplify, fuse, plan) reads
// a column, and no pass names a row; tests/structure checks that. To add an op, write its row and add a line to
// ops/ops.def.
//
// Worked example. einsum "ik,kj->ij" has the rule {in: "ik","kj"; out: "ij"}. The letters are factors. From
// the rule follow:
//   - the result shape: the extents of i and j
//   - batching the first operand gives "zik,kj->zij"
//   - sharding j shards the second operand and the result alike
//   - sharding k leaves the result partial: a psum is pending
// tanh on rank 2 has the rule {"ab" -> "ab"}.
//
// Rows are immutable and their functions are pure: safe to use from any thread.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/sharding.h"
#include "program/builder.h"
#include "program/program.h"

namespace lockstep {

class Pool;
class Comm;
class CudaStream;
class InFlight;
class Definitions;
struct CudaTaskKind;

// Per operand or result: how many elements of a dimension one step along its factor is, where it is not 1.
using Steps = std::vector<std::map<char, int64_t>>;

// How many elements before and after its own shard of a dimension a shard needs, as windows that slide over it do.
struct Halo {
  int64_t before = 0, after = 0;
};
// Per operand: the halo along a factor, where there is one. The shards at the ends of a dimension have none on that
// side.
using Halos = std::vector<std::map<char, Halo>>;

// The factors of the dimensions of operands and results, one letter each. A factor missing from the results
// is reduced.
struct Rule {
  std::vector<std::string> in;
  std::vector<std::string> out;
  std::string unsharded;  // factors that must never be sharded
  // Factors whose shards depend on their position, as in iota. They may be sharded over lanes, each of which
  // has its own program, but not over the devices of shard_map, which share one.
  std::string position_dependent = {};
  // reshape [6, 2] -> [3, 4] has a factor of 3 steps: one step is 2 elements of the operand's first dimension
  // and 1 of the result's.
  Steps in_step = {};
  Steps out_step = {};
  // A factor with a halo also depends on the position: it belongs in `position_dependent`. It is sharded only if every
  // shard is as large as the halo of its neighbors. The `local` column sets the attributes for operands with halos.
  Halos in_halo = {};
};

// How many elements of a dimension of operand or result `term` one step along its factor is.
int64_t step_of(const Steps& steps, size_t term, char factor);
// The halo of operand `term` along a factor; zeros where there is none.
Halo halo_of(const Rule& rule, size_t term, char factor);
// That of one shard of a dimension of `steps` steps.
Halo halo_of_shard(const Rule& rule, size_t term, char factor, Range range, int64_t steps);

// The collective that completes a result if a reduced factor is sharded: none (then the rule never shards
// reduced factors), sum, max or min.
enum class PendingReduction : uint8_t { none, sum, max, min };

// Which operands may be partial (a sum over devices is pending): none; any single one, as in a product; all
// together, as in a sum.
enum class Linear : uint8_t { no, one, all };

// A program that computes outputs and gradients, split in two: what can be computed before the cotangents are
// known, and the rest.
struct Split {
  Program known;                    // inputs -> outputs, residuals
  Program rest;                     // residuals, cotangents -> gradients
  size_t outputs = 0;               // the first outputs of `known`, which are the function's; the others are residuals
  std::vector<int> residual_input;  // per residual: the input of `known` it is a copy of, or -1
};

struct BatchedProgram {
  Program program;            // batched inputs and outputs have a leading axis
  std::vector<bool> batched;  // which outputs are batched
};

// The passes that rows with sub-programs (scan, cond, remat, custom_vjp) use. Passed to them, since passes
// come later in the layering.
struct SubPrograms {
  // Maps inputs and one cotangent per differentiable output to outputs and one gradient per wanted input.
  Program (*joint)(const Program&, const std::vector<bool>& wanted);
  Split (*split)(const Program& joint, size_t known_inputs, size_t outputs);
  // Outputs in `force` are batched even if they do not depend on the batch.
  BatchedProgram (*batch)(const Program&, const std::vector<bool>& batched, int64_t size,
                          const std::vector<bool>& force, const std::string& axis);
  // Maps inputs and one tangent per wanted input to outputs and one tangent per differentiable output.
  Program (*jvp)(const Program&, const std::vector<bool>& wanted) = nullptr;
};

// Context of the `forward` column, which replaces an op that will be differentiated by a forward computation
// that also returns the residuals its gradient needs.
struct Forward {
  const Op& op;
  const Attrs& attrs;
  std::span<const Value> in;
  const std::vector<bool>& wanted;  // which operands a gradient flows to
  const SubPrograms& passes;
};
struct ForwardResult {
  Values out;
  Values residuals;
};

// Context of the `vjp` column.
struct Vjp {
  const Attrs& attrs;
  std::span<const Value> in;
  std::span<const Value> out;
  std::span<const Value> cts;        // one per result; absent for zero
  std::span<const Value> residuals;  // of `forward`
  const std::vector<bool>& wanted;   // operands whose gradient is used; others may be absent
  const SubPrograms& passes;

  // For ops of one result.
  Value y() const { return out[0]; }
  Value ct() const { return cts[0]; }
};
using Grads = Values;  // one per operand; absent for zero

// Context of the `jvp` column, which computes tangents of the results from tangents of the operands.
struct Jvp {
  const Op& op;
  const Attrs& attrs;
  std::span<const Value> in;
  std::span<const Value> out;
  std::span<const Value> tangents;  // one per operand; absent for zero
  Builder& builder;
  const SubPrograms& passes;
};
struct JvpResult {
  Values tangents;  // one per result; absent for zero
  Values out = {};  // results that replace those of the equation, if it also computed them; may be empty
};

// Context of the `batch` column. The batch axis is axis 0 of every batched operand and result. It may
// represent the devices along a mesh axis: then collectives over that axis become ordinary ops along the
// batch axis, and nothing varies over it afterwards.
struct Batch {
  const Op& op;
  const Attrs& attrs;
  std::span<const Value> in;
  const std::vector<bool>& batched;
  int64_t size;
  Builder& builder;
  const SubPrograms& passes;
  const std::string& axis;  // empty: no mesh axis
};
struct Batched {
  Values out;
  std::vector<bool> batched;

  Batched(Values values) : out(std::move(values)), batched(out.size(), true) {}  // NOLINT: the common case, all batched
  Batched(Value value) : out{value}, batched{true} {}                            // NOLINT
  Batched(Values values, std::vector<bool> which) : out(std::move(values)), batched(std::move(which)) {}
};

// Context of the `fold` column: returns an equal, cheaper value for a single-result equation about to be
// emitted, or an absent Value.
struct Fold {
  const Attrs& attrs;
  std::span<const Value> in;
  const Type& type;  // of the result
  Builder& builder;
};

// Context of the `recognize` column, which finds subgraphs that compute what a row computes: returns a value equal to
// the single result of `eqn` up to rounding, computed by the row, or an absent Value. The program is simplified. What is
// no longer used afterwards is dropped. Before that it is called with an empty map for the program as it was traced: then
// it returns any Value if simplification might make `eqn` one to recognize. This must be cheap.
struct Recognition {
  const Definitions& definitions;  // of the program of `eqn`
  const Eqn& eqn;
  Builder& builder;
  const Values& map;  // the builder's value for each of the program's values so far
};

// A result that reads its operand at affine positions: out[i...] = in[offset + sum(strides[d] * i[d])], in
// elements of the operand's dense row-major buffer.
struct View {
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

// A prepared kernel. Operands and results are dense row-major buffers. Calls allocate no memory.
using Kernel = std::function<void(const void* const* in, void* const* out)>;

// What a kernel is prepared for.
struct KernelSpec {
  Types in;
  Types out;
  const Attrs& attrs;
  Pool& pool;
  // Per result: the operand whose memory it shares (as allowed by the `alias` column), or -1. May be empty:
  // nothing shared.
  std::span<const int> alias;
  // Prepares a sub-program.
  std::function<Kernel(const Program&)> compile = {};
  // The communicator of the lanes along these axes of the grid; empty if the program runs on one lane.
  std::function<Comm*(const std::string& axes)> comm = {};
  // Asynchronous collectives that kernels of this plan have started.
  std::shared_ptr<InFlight> in_flight = {};
  // For the `cuda` column: the GPU. Operands and results are in its memory.
  CudaStream* cuda = nullptr;
  // For the `cuda` column: set to true if the kernel cannot be captured as part of a graph. May be null.
  bool* uncapturable = nullptr;
  // Copies memory of the lane, in the order of its work; empty: host memory.
  std::function<void(void* to, const void* from, int64_t bytes)> copy = {};
};

// A vectorized loop of an elementwise op over register tiles: out[i] = f(in[0][i], ...), i < n.
using Loop = void (*)(void* out, const void* const* in, int64_t n);

// For each sharded factor: the range of the local shard, in steps along the factor. Factors that are missing
// are not sharded.
using FactorRanges = std::map<char, Range>;

// Context of the `local` column: an equation on one shard. Shards may be uneven: 128 rows on 3 lanes are 43,
// 43 and 42.
struct LocalEqnContext {
  const Attrs& attrs;
  Types in;
  Types out;
  const Rule& rule;
  const FactorRanges& ranges;
  Types local_in;  // of the shard; the other types and the attributes are global
  Types local_out;
};

// What an attribute says about dimensions. If the operands and results of an equation get a leading dimension of
// extent n, an attribute of this kind is rewritten as follows.
enum class DimAttr : uint8_t {
  dims,     // numbers of dimensions (axis, axes): each is one higher
  mapping,  // the number of a dimension for each dimension (permutation): 0 comes first, the others are one higher
  extents,  // an extent for each dimension (shape, limits): n comes first
  offsets,  // an offset for each dimension (starts): 0 comes first
  strides,  // a stride for each dimension: 1 comes first
  leading,  // how many leading dimensions correspond (batch_dims): one more
  rule,     // the rule as text: a new letter comes first in the terms of batched operands and of results
};

// The attributes of a row that say something about dimensions, at most three.
class DimAttrs {
 public:
  struct Entry {
    std::string_view name;
    DimAttr kind;
  };
  constexpr DimAttrs() = default;
  constexpr DimAttrs(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) entries_[size_++] = entry;
  }
  constexpr const Entry* begin() const { return entries_.data(); }
  constexpr const Entry* end() const { return entries_.data() + size_; }

 private:
  std::array<Entry, 3> entries_ = {};
  size_t size_ = 0;
};

// A collective between lanes: what it does, and the rows that do all of it, start it, and wait until it is complete.
struct LaneCollective {
  enum class Kind : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
  Kind kind;
  const Op* whole;
  const Op* start = nullptr;  // null, as is `done`: never asynchronous
  const Op* done = nullptr;
};

// How an elementwise op is written in GPU kernels, as functions of the operands.
struct CudaExpression {
  // {0} is the type of the result and {1} the operands, separated by commas. null: the function that elementwise.def
  // defines for the row.
  const char* text = nullptr;
  // Names of faster, less exact functions for f32 and for bf16. null: none.
  const char* approximation = nullptr;
  const char* bf16_approximation = nullptr;
};

// When an equation is replaced by the equations of its `body` attribute: never; before simplification; or
// after it, so that recomputation is not merged with the first computation (remat).
enum class Inline : uint8_t { never, early, late };

// A sharding constraint: the sharding that an equation states for its result.
struct Annotation {
  std::string mesh;  // as written by mesh_text()
  // The axes that shard each dimension, the first being outermost; absent: unconstrained.
  std::vector<std::optional<std::vector<std::string>>> axes;
  std::string by;  // the function that stated it
  std::string at;  // the user's line, "train.cc:31"; empty if not from the user
};

struct Op {
  std::string_view name;
  Linear linear = Linear::no;
  Rule (*rule)(Types, const Attrs&) = nullptr;               // null: no dimension may be sharded
  PendingReduction pending = PendingReduction::none;         // if a reduced factor is sharded
  std::vector<Type> (*type)(Types, const Attrs&) = nullptr;  // null: derived from the rule, dtype of the first operand
  ForwardResult (*forward)(const Forward&) = nullptr;        // null: the op itself, no residuals
  Grads (*vjp)(const Vjp&) = nullptr;                        // null: no gradient flows
  JvpResult (*jvp)(const Jvp&) = nullptr;                    // null: the transpose of `vjp`
  // How the equation is batched. Most rows need no function: batch_by_rule() reads the rule, `dim_attrs` and
  // `fixed_rank`. A row has its own where that is not possible or slower, and says why.
  Batched (*batch)(const Batch&) = nullptr;
  DimAttrs dim_attrs = {};
  bool fixed_rank = false;  // operands have a fixed number of dimensions: a batch is merged into the first of them
  Attrs (*local)(const LocalEqnContext&) = nullptr;                       // attributes on one shard; null: unchanged
  Value (*fold)(const Fold&) = nullptr;                                   // null: never simplified
  Value (*recognize)(const Recognition&) = nullptr;                       // null: only emitted by its name
  View (*view)(const Type& in, const Type& out, const Attrs&) = nullptr;  // null: not a view
  // Elementwise ops: the loop for operands in registers of these types and a result of this element type. Floats below
  // f32 and integers below i32 (except u8) do not occur as operands: registers hold them as f32 and i32.
  Loop (*loop)(std::span<const DType> in, DType out) = nullptr;
  // Whether result `out` may be written over operand `in`, of the same size. null: never.
  bool (*alias)(Types in_types, Types out_types, const Attrs&, size_t in, size_t out) = nullptr;
  // Whether operands and results may be 8-bit floats: rows that only move or convert elements, or multiply them.
  bool takes_float8 = false;
  // Whether operands and results may be complex numbers, which rows that take 8-bit floats may be, too.
  bool takes_complex = false;
  Inline inline_body = Inline::never;
  // Whether the `type` column sets the axes over which results vary. Otherwise results vary over the union of
  // the operands' axes, and operands that vary over fewer are first made to vary alike.
  bool own_varying = false;
  // Of an op that contains programs: the operand that equals input `input` of the program in attribute `name` whenever
  // it is evaluated; -1 if there is none, as for the carries of a scan. null: none for all inputs.
  int (*operand_of_input)(const Eqn&, std::string_view name, size_t input) = nullptr;
  // For a pure sharding constraint: what it states. Its result is its operand, which replaces it when
  // programs are partitioned and lowered. null: not a constraint.
  Annotation (*annotation)(const Type& result, const Attrs&) = nullptr;
  // For a collective between lanes: it is never dropped or merged, and collectives keep their order. null: not one.
  const LaneCollective* collective = nullptr;
  // The multiplications of an equation, each with an addition, that count as its work: of products, convolutions and
  // attention. `of` counts those of a program. null: those of the programs in the attributes, each once.
  double (*multiply_adds)(Types in, Types out, const Attrs&, double (*of)(const Program&)) = nullptr;
  // The row that computes this single-result op followed, tile by tile, by an elementwise program of its
  // result. It has the same attributes plus a `body` whose input 0 is the result. Its operands are this op's,
  // then the body's other inputs. null: none.
  const Op* with_epilogue = nullptr;
  Kernel (*cpu)(const KernelSpec&) = nullptr;
  // The GPU kernel. null, or an empty Kernel: computed on the host, with copies there and back. Elementwise
  // ops and views need none: their kernels are generated.
  Kernel (*cuda)(const KernelSpec&) = nullptr;
  // How rows become tasks of a GPU schedule (ops/cuda/task.h); null: elementwise ops and views follow their columns, and
  // other rows are launched by the `cuda` column only.
  const CudaTaskKind* cuda_task = nullptr;
  CudaExpression cuda_expression = {};  // of elementwise ops

  bool is_collective() const { return collective != nullptr; }
};

// The union of two sorted lists of axes; a list without one axis.
std::vector<std::string> union_of(const std::vector<std::string>& a, const std::vector<std::string>& b);
std::vector<std::string> without_axis_name(std::vector<std::string> axes, const std::string& axis);

// The result types of an op on these operands. Throws Error when the operands do not fit.
std::vector<Type> infer_types(const Op&, Types in, const Attrs&);

// The rule in which every operand and result has the same dimensions.
Rule pointwise_rule(Types, const Attrs&);

// Parses a rule: "ik,kj->ij".
Rule parse_rule(std::string_view text);

// An equation on one shard: its attributes and the local types of its operands and results. If a reduced
// factor is sharded, results are partial, to be combined by the op's pending reduction.
struct LocalEqn {
  Attrs attrs;
  std::vector<Type> in;
  std::vector<Type> out;
};
// REQUIRES: the op has a rule, and `ranges` has only factors that may be sharded.
LocalEqn local_eqn(const Op&, Types in, const Attrs&, const FactorRanges& ranges);

// A `local` column: sets the attribute `shape` to that of the local first result.
Attrs with_local_shape(const LocalEqnContext&);

}  // namespace lockstep
