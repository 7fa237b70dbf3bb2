// The row `combined`: a program of which one GPU kernel computes all equations. CudaPlan finds such equations in a lowered
// program (plan/cuda/combine.h); CPUs never have this row. Constants and pure functions, safe from any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "program/op.h"
#include "program/program.h"

namespace lockstep {

// Attributes: "kernel", the name of a CombinedKernel, and "body", the program.
extern const Op combined_op;
// Adds an equation of the row.
Values combined(Builder& builder, std::string_view kernel, const Values& operands, Program body);

// Which equations define and use the values of a program.
class ValueUses {
 public:
  explicit ValueUses(const Program& program);

  const Program& program() const { return program_; }
  const Eqn& eqn(size_t i) const { return program_.eqns[i]; }
  const Type& type(ValueId id) const { return program_.types[id]; }
  // The equation that defines a value; -1: it is an input.
  int definition(ValueId id) const { return defined_by_[id]; }
  // The equations that use a value, in order; one that uses it twice is there twice.
  const std::vector<size_t>& users(ValueId id) const { return users_[id]; }
  bool is_output(ValueId id) const { return is_output_[id]; }
  // The only equation that uses the value, if nothing else does.
  std::optional<size_t> only_user(ValueId id) const;

 private:
  const Program& program_;
  std::vector<int> defined_by_;
  std::vector<std::vector<size_t>> users_;
  std::vector<bool> is_output_;
};

// Equations to be combined.
struct CombinedEqns {
  std::vector<size_t> eqns;        // in order; with the views fewer than two: none
  std::vector<size_t> views = {};  // that the kernel applies to its operands; others may use them, too
};

// A kernel that computes several equations.
struct CombinedKernel {
  std::string_view name;
  // The equations that it computes together, beginning with equation `first`.
  CombinedEqns (*find)(const ValueUses& uses, size_t first);
  // Whether it may write result `out` of the body over operand `in`, of the same size.
  bool (*alias)(const Program& body, size_t in, size_t out);
  // The kernel of the row. An empty Kernel: the equations are computed one after the other.
  Kernel (*cuda)(const KernelSpec&);
};
std::span<const CombinedKernel* const> combined_kernels();

// The ops of programs and schedules on GPUs, to parse them: all ops, and `combined`.
std::span<const Op* const> gpu_ops();

// Where a kernel finds the values of its body.
class CombinedBody {
 public:
  explicit CombinedBody(const KernelSpec& spec) : body_(spec.attrs.program("body")) {}
  explicit CombinedBody(const Program& body) : body_(body) {}

  // The equation of this op; null: there is none. REQUIRES: there are not two.
  const Eqn* find(const Op& op) const;
  // REQUIRES: the value is an input.
  size_t operand(ValueId id) const;
  std::optional<size_t> result(ValueId id) const;

 private:
  const Program& body_;
};

extern const CombinedKernel combined_cross_entropy, combined_norm_grad, combined_column_sums, combined_packed_attention;

}  // namespace lockstep
