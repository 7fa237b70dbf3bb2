// The parts of forward.h and jacobian.h that do not depend on C++ types.
#include <algorithm>
#include <iterator>

#include "array/apply.h"
#include "array/trace.h"
#include "base/check.h"
#include "lockstep/collectives.h"
#include "lockstep/control.h"
#include "lockstep/jacobian.h"
#include "ops/collectives.h"
#include "ops/control.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "ops/used_inputs.h"
#include "passes/passes.h"

namespace lockstep::detail {
namespace {

ProgramPtr shared(Program p) { return std::make_shared<const Program>(std::move(p)); }

// The program with its outputs at these positions.
Program with_outputs(const Program& p, const std::vector<size_t>& positions) {
  Program out = p;
  out.outputs.clear();
  for (size_t at : positions) out.outputs.push_back(p.outputs[at]);
  return out;
}

std::vector<size_t> range(size_t first, size_t last) {
  std::vector<size_t> out;
  for (size_t i = first; i < last; ++i) out.push_back(i);
  return out;
}

size_t floating_outputs(const Program& p) {
  return static_cast<size_t>(
      std::count_if(p.outputs.begin(), p.outputs.end(), [&](ValueId id) { return is_inexact(p.types[id].dtype); }));
}

bool varies_within(const Type& inner, const Type& outer) {
  return std::includes(outer.varying.begin(), outer.varying.end(), inner.varying.begin(), inner.varying.end());
}

Value varying_as(Value x, const Type& like) {
  for (const std::string& axis : like.varying) x = pvary(x, axis);
  return x;
}

// The unit vectors of arrays of this type, stacked: n of them for n elements.
Value unit_vectors(Builder& b, const Type& type) {
  const int64_t n = count(type.shape);
  const Type square{DType::i32, {n, n}};
  const Value ones = cast(eq(iota(b, square, 0), iota(b, square, 1)), type.dtype);
  return varying_as(reshape(ones, prepend(n, type.shape)), type);
}

// Builds the program of a Jacobian, one pair of output and input after the other.
class JacobianProgram {
 public:
  JacobianProgram(const Program& p, std::vector<bool> wanted, size_t outputs, JacobianMode mode)
      : p_(p), wanted_(std::move(wanted)), outputs_(outputs), mode_(mode), blocks_(outputs) {
    for (size_t j = 0; j < outputs_; ++j)
      if (const Type& t = type_of_output(j); !is_inexact(t.dtype))
        throw_error(
            "{}: result {} is {}, which has no derivative; return it as aux (has_aux), or convert it with astype()",
            what(), j, to_string(t));
  }

  Program make() {
    for (ValueId id : p_.inputs) args_.push_back(b_.input(p_.types[id]));
    Values results = b_.inline_program(p_, args_);
    if (mode_ == JacobianMode::forward) {
      for (size_t i = 0; i < p_.inputs.size(); ++i)
        if (wanted_[i]) add_columns(i);
    } else {
      for (size_t j = 0; j < outputs_; ++j) add_rows(j);
    }
    for (const Values& each : blocks_) results.insert(results.end(), each.begin(), each.end());
    return b_.take(results);
  }

 private:
  const char* what() const { return mode_ == JacobianMode::forward ? "jacfwd" : "jacrev"; }
  const Type& type_of_output(size_t j) const { return p_.types[p_.outputs[j]]; }

  // The results of `program`, which maps the inputs and one more to `results` outputs, for all unit vectors in that
  // input.
  Values for_unit_vectors(const Program& program, const Type& type, size_t results) {
    std::vector<bool> batched(program.inputs.size(), false);
    batched.back() = true;
    const BatchedProgram all = batch(program, batched, count(type.shape), std::vector<bool>(results, true));
    Values args = args_;
    args.push_back(unit_vectors(b_, type));
    return b_.inline_program(all.program, args);
  }

  // The derivatives of all outputs with respect to input i.
  void add_columns(size_t i) {
    std::vector<bool> only(p_.inputs.size(), false);
    only[i] = true;
    const Program tangents = jvp(with_outputs(p_, range(0, outputs_)), only);
    const Type& type = p_.types[p_.inputs[i]];
    const Values columns =
        for_unit_vectors(drop_dead(with_outputs(tangents, range(outputs_, tangents.outputs.size()))), type, outputs_);
    for (size_t j = 0; j < outputs_; ++j) {
      const Value last = transpose(columns[j], move_dim(columns[j].rank(), 0, columns[j].rank() - 1));
      blocks_[j].push_back(reshape(last, block_shape(i, j)));
    }
  }

  // The derivatives of output j with respect to all wanted inputs.
  void add_rows(size_t j) {
    const Program gradients = joint(drop_dead(with_outputs(p_, {j})), wanted_);
    const size_t n = gradients.outputs.size() - 1;
    const Values rows = for_unit_vectors(drop_dead(with_outputs(gradients, range(1, n + 1))), type_of_output(j), n);
    for (size_t i = 0, next = 0; i < p_.inputs.size(); ++i)
      if (wanted_[i]) blocks_[j].push_back(reshape(rows[next++], block_shape(i, j)));
  }

  Shape block_shape(size_t i, size_t j) const {
    Shape out = type_of_output(j).shape;
    const Shape& in = p_.types[p_.inputs[i]].shape;
    out.insert(out.end(), in.begin(), in.end());
    return out;
  }

  const Program& p_;
  const std::vector<bool> wanted_;
  const size_t outputs_;
  const JacobianMode mode_;
  Builder b_;
  Values args_;
  std::vector<Values> blocks_;  // by output: one per wanted input
};

}  // namespace

std::vector<Type> types_of_arrays(const Arrays& arrays) {
  std::vector<Type> out;
  for (const Array& a : arrays) out.push_back(a.type());
  return out;
}

Arrays checked_tangents(const char* what, std::span<const Type> types, const Arrays& tangents) {
  if (tangents.size() != types.size()) throw_tree_mismatch(what, types.size(), tangents.size());
  Arrays out;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!is_inexact(types[i].dtype)) continue;
    const Type& t = tangents[i].type();
    const bool fits = t.shape == types[i].shape && varies_within(t, types[i]) &&
                      (t.dtype == types[i].dtype || is_number(tangents[i]));
    if (!fits)
      throw_error(
          "{}: array {} of the tangents is {}, but its value is {}; a tangent has its value's type: start with "
          "ones_like(value)",
          what, i, to_string(t), to_string(types[i]));
    out.push_back(widened(tangents[i], types[i]));
  }
  return out;
}

Arrays jvp_results(const Traced& traced, const Arrays& args, const Arrays& tangents, size_t outputs) {
  const std::vector<Type> types = types_of_arrays(args);
  const Arrays along = checked_tangents("jvp", types, tangents);
  std::vector<bool> wanted = floating(args);
  wanted.resize(traced.program->inputs.size(), false);
  Program p = jvp(*traced.program, wanted);
  const size_t all = traced.program->outputs.size();
  const size_t differentiated = floating_outputs(with_outputs(p, range(0, outputs)));
  p.outputs.resize(all + differentiated);
  Arrays in = with_captures(args, traced);
  in.insert(in.end(), along.begin(), along.end());
  const Arrays results = call(shared(drop_dead(p)), in);
  Arrays out(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(all));
  for (size_t i = 0, next = all; i < outputs; ++i)
    out.push_back(is_inexact(out[i].dtype()) ? results[next++] : zeros_of(out[i].type()));
  return out;
}

VjpPrograms linear_programs(const Traced& traced, std::vector<bool> wanted) {
  wanted.resize(traced.program->inputs.size(), false);
  const ProgramPtr program = recognized(traced);
  const Program& p = *program;
  Split s = split(inline_bodies(jvp_apart(p, wanted), Inline::early), p.inputs.size(), p.outputs.size());
  return {shared(std::move(s.known)), shared(std::move(s.rest)), s.outputs};
}

ProgramPtr jacobian_program(const Traced& traced, std::vector<bool> wanted, size_t outputs, JacobianMode mode) {
  wanted.resize(traced.program->inputs.size(), false);
  const ProgramPtr program = mode == JacobianMode::reverse ? recognized(traced) : traced.program;
  return shared(drop_dead(JacobianProgram(*program, std::move(wanted), outputs, mode).make()));
}

ProgramPtr transposed_program(const Traced& traced, const std::vector<bool>& own) {
  const Program& p = *traced.program;
  std::vector<bool> wanted = own;
  wanted.resize(p.inputs.size(), false);
  Program back = joint(p, wanted);
  back = simplify(with_outputs(back, range(p.outputs.size(), back.outputs.size())));
  const std::vector<bool> used = used_inputs(back);
  for (size_t i = 0; i < own.size(); ++i)
    if (used[i])
      throw_error(
          "linear_transpose: the function is not linear: its derivative depends on array {} of its arguments, {}; use "
          "vjp",
          i, to_string(back.types[back.inputs[i]]));
  Builder b;
  Values args;
  for (size_t i = 0; i < back.inputs.size(); ++i) {
    const Type& type = back.types[back.inputs[i]];
    args.push_back(i < own.size() ? full(b, type, 0.0) : b.input(type));
  }
  return shared(b.take(b.inline_program(back, args)));
}

}  // namespace lockstep::detail
