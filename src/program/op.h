// An op is one row of data. Every pass (trace, grad, vmap, simplify, fuse, plan) reads a column; no pass names an op;
// adding an op touches one place: its row, and its line in ops/ops.def.
//
// Worked example. einsum "ik,kj->ij" has the rule {in: "ik","kj"; out: "ij"}: from it follow its result shape (sizes of
// i and j), that a batch of it is "zik,kj->zij" when only the first operand is batched, that cutting j cuts the second
// operand and the result alike, and that cutting k leaves the result partial: a psum is pending. tanh has the rule {"ab"
// -> "ab"} for rank 2.
#pragma once

#include <functional>
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
class CudaLane;
class InFlight;

// By operand, or result: how many elements of a dimension one step along its factor is, where not one.
using Steps = std::vector<std::map<char, int64_t>>;

// Factors of the dimensions of operands and results, one letter each. A factor absent from the results is reduced.
// Factors in `whole` are never cut between devices.
struct Rule {
  std::vector<std::string> in;
  std::vector<std::string> out;
  std::string whole;
  // Factors whose pieces differ by where they lie, as those of iota do: cut between lanes, which have a program each,
  // not between the devices of shard_map, which share one.
  std::string placed = {};
  // reshape [6, 2] -> [3, 4] has a factor of 3 steps: 2 elements of the first dimension before, one after.
  Steps in_step = {};
  Steps out_step = {};
};

// Elements of a dimension of operand, or result, `term` that one step along its factor is.
int64_t step_of(const Steps& steps, size_t term, char factor);

// The collective that completes a result if a reduced factor is sharded: none (then the rule never shards reduced
// factors), sum, max or min.
enum class PendingReduction : uint8_t { none, sum, max, min };

// May an operand be partial, with a sum over devices pending: never; one operand of a product; all operands of a sum.
enum class Linear : uint8_t { no, one, all };

// A program that computes outputs and gradients, cut in two at what is known before the cotangents are.
struct Split {
  Program known;                    // inputs -> outputs, residuals
  Program rest;                     // residuals, cotangents -> gradients
  size_t outputs = 0;               // how many outputs of `known` are outputs of the function; the others are residuals
  std::vector<int> residual_input;  // per residual: the input of `known` it is a plain copy of, or -1
};

struct BatchedProgram {
  Program program;            // batched inputs and outputs have a leading axis
  std::vector<bool> batched;  // which outputs are batched
};

// What rows that carry sub-programs (scan, cond, remat, custom_vjp) ask of the passes, which come after them.
struct SubPrograms {
  // inputs, one cotangent per differentiable output -> outputs, one gradient per wanted input.
  Program (*joint)(const Program&, const std::vector<bool>& wanted);
  Split (*split)(const Program& joint, size_t known_inputs, size_t outputs);
  // Outputs named in `force` come out batched whether or not they depend on the batch.
  BatchedProgram (*batch)(const Program&, const std::vector<bool>& batched, int64_t size,
                          const std::vector<bool>& force, const std::string& axis);
};

// Builds, in place of an op that will be differentiated, the forward computation with whatever its gradient needs kept.
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

struct Vjp {
  const Attrs& attrs;
  std::span<const Value> in;
  std::span<const Value> out;
  std::span<const Value> cts;        // one per result; absent for zero
  std::span<const Value> residuals;  // of `forward`
  const std::vector<bool>& wanted;   // operands whose gradient is used; others may be left absent
  const SubPrograms& passes;

  // For ops of one result.
  Value y() const { return out[0]; }
  Value ct() const { return cts[0]; }
};
using Grads = Values;  // one per operand; absent for zero

// The batch axis is axis 0 of every batched operand and result. It may stand for the devices along a mesh axis: then
// collectives over it become ordinary ops along the batch axis, and nothing varies over it any more.
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

// An equal and cheaper value for a single-result equation about to be emitted, or an absent Value when there is none.
struct Fold {
  const Attrs& attrs;
  std::span<const Value> in;
  const Type& type;  // of the result
  Builder& builder;
};

// A result that is its operand read at an affine position: out[i...] = in[offset + sum(strides[d] * i[d])], in elements
// of the operand's dense row-major buffer.
struct View {
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

// A prepared kernel: operands and results as dense row-major buffers. Allocates nothing when called.
using Kernel = std::function<void(const void* const* in, void* const* out)>;

struct KernelSpec {
  Types in;
  Types out;
  const Attrs& attrs;
  Pool& pool;
  // Per result: the operand whose memory it shares (as the `alias` column allowed), or -1. May be empty: none shares.
  std::span<const int> alias;
  // Prepares a sub-program.
  std::function<Kernel(const Program&)> compile = {};
  // The lanes that differ along these axes of the grid; empty where a program runs on one lane.
  std::function<Comm*(const std::string& axes)> comm = {};
  // What kernels of this plan have started and others wait for.
  std::shared_ptr<InFlight> in_flight = {};
  // The GPU, for the column `cuda`: operands and results are in its memory.
  CudaLane* cuda = nullptr;
};

// A vectorised loop of an elementwise op over register tiles: out[i] = f(in[0][i], ...), i < n.
using Loop = void (*)(void* out, const void* const* in, int64_t n);

// Along each factor that is cut: where in the whole a piece lies, in steps along it. Factors that are missing are there
// from end to end.
using Cut = std::map<char, Range>;

// One piece of an equation, as its rule cuts it. Pieces need not have one size: 128 rows on 3 lanes are 43, 43 and 42.
struct LocalView {
  const Attrs& attrs;
  Types in;
  Types out;
  const Rule& rule;
  const Cut& cut;
  Types local_in;  // of the piece; the other types and the attributes are of the whole
  Types local_out;
};

// When the equation is replaced by the equations of its `body` attribute: never; before programs are simplified; or
// after, so that what the body computes again stays apart from its first computation (remat).
enum class Inline : uint8_t { never, early, late };

// What an equation says of how its result lies on devices.
struct Annotation {
  std::string mesh;  // as mesh_text() writes it
  // The axes that cut each dimension, the first being outermost; absent where nothing is said.
  std::vector<std::optional<std::vector<std::string>>> axes;
  std::string by;  // which function said so
  std::string at;  // and on which line of the user's: "train.cc:31"; empty where no user wrote it
};

struct Op {
  std::string_view name;
  Linear linear = Linear::no;
  Rule (*rule)(Types, const Attrs&) = nullptr;               // null: no dimension may be cut
  PendingReduction pending = PendingReduction::none;         // if a reduced factor is sharded
  std::vector<Type> (*type)(Types, const Attrs&) = nullptr;  // null: read off the rule, dtype of the first operand
  ForwardResult (*forward)(const Forward&) = nullptr;        // null: the op itself, nothing kept
  Grads (*vjp)(const Vjp&) = nullptr;                        // null: no gradient flows
  Batched (*batch)(const Batch&) = nullptr;                  // null: pointwise
  Attrs (*local)(const LocalView&) = nullptr;                // on one piece; null: those of the whole
  Value (*fold)(const Fold&) = nullptr;                      // null: nothing to simplify
  View (*view)(const Type& in, const Type& out, const Attrs&) = nullptr;  // null: computes something
  // Elementwise ops: the loop for these operand and result dtypes. bf16 and f16 never appear: registers hold them as
  // f32.
  Loop (*loop)(std::span<const DType> in, DType out) = nullptr;
  // May result `out` be written over operand `in` (same bytes)? null: never.
  bool (*alias)(Types in_types, Types out_types, const Attrs&, size_t in, size_t out) = nullptr;
  Inline inline_body = Inline::never;
  // The type column says over which mesh axes the results vary. Otherwise they vary over what any operand does, and
  // operands that vary over less are made to vary alike first.
  bool own_varying = false;
  // It only says how its result, which is its operand, lies on devices: the operand takes its place when programs are
  // partitioned and lowered. null: it computes something.
  Annotation (*annotation)(const Type& result, const Attrs&) = nullptr;
  // A collective of lanes: it is never dropped or merged, and collectives keep their order.
  bool is_collective = false;
  // The row that computes this single-result op and then, tile by tile, an elementwise program of its result: same
  // attributes and a `body` whose input 0 is the result; operands are this op's, then the body's other inputs. null:
  // there is none.
  const Op* with_epilogue = nullptr;
  Kernel (*cpu)(const KernelSpec&) = nullptr;
  // On the GPU. null, or an empty kernel: it is computed on the host, and moved there and back. Elementwise ops and views
  // need none: kernels are written from their loops' expressions.
  Kernel (*cuda)(const KernelSpec&) = nullptr;
};

// Every op there is, defined in ops/.
std::span<const Op* const> all_ops();

// The row that lets a value that is the same on all devices along a mesh axis vary there (attribute `axis`). Defined in
// ops/, like all_ops(); builders emit it where operands that vary meet operands that do not.
extern const Op pvary_op;

// All axes of both, sorted; and all but one.
std::vector<std::string> union_of(const std::vector<std::string>& a, const std::vector<std::string>& b);
std::vector<std::string> without_axis_name(std::vector<std::string> axes, const std::string& axis);

// Result types of an op on these operands; throws Error when they do not fit.
std::vector<Type> infer_types(const Op&, Types in, const Attrs&);

// The rule in which every operand and result has the same dimensions.
Rule pointwise_rule(Types, const Attrs&);

// A rule from text: "ik,kj->ij".
Rule parse_rule(std::string_view text);

// An equation on one piece: its attributes there, and the types of what is there of its operands and results. A result
// without a factor that is cut is a part, to be joined with the others' as `pending` says.
struct LocalEqn {
  Attrs attrs;
  std::vector<Type> in;
  std::vector<Type> out;
};
// REQUIRES: the op has a rule, and `cut` names factors of it that are not whole.
LocalEqn local_eqn(const Op&, Types in, const Attrs&, const Cut&);

// A `local` column: the attributes with the `shape` of the piece's first result.
Attrs with_local_shape(const LocalView&);

}  // namespace lockstep
