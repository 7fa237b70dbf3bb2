// Transforms of functions of arrays: the parts of the templates of grad.h, control.h and others that do not depend on C++
// types.
#include "lockstep/detail/flat_call.h"

#include <algorithm>

#include "lockstep/grad.h"
#include "lockstep/jacobian.h"
#include "lockstep/loops.h"
#include "program/program.h"

namespace lockstep::detail {
namespace {

// A traced function, with the elements of its result.
struct FlatTrace {
  FlatTrees result;
  Traced traced;
};

FlatTrace trace_with_result(const char* what, const Arrays& args, const FlatFunction& f) {
  FlatTrace out;
  Tracing tracing(what);
  Arrays inputs;
  for (const Array& a : args) inputs.push_back(tracing.input(a.type(), a));
  out.result = f(inputs.data());
  out.traced = tracing.finish(out.result.arrays);
  return out;
}

void widen(std::span<Array> arrays, const std::vector<Type>& types) {
  for (size_t i = 0; i < types.size(); ++i) arrays[i] = widened(arrays[i], types[i]);
}

// The number of arrays of a result without its aux.
size_t outputs_without_aux(const FlatTrees& result, bool with_aux) {
  return with_aux ? result.counts[0] : result.arrays.size();
}

void append(Arrays& to, const Arrays& from) { to.insert(to.end(), from.begin(), from.end()); }

// Splits the results of a forward program into outputs and residuals.
void split_results(const Arrays& results, size_t outputs, Arrays& first, Arrays& rest) {
  first.assign(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(outputs));
  rest.assign(results.begin() + static_cast<std::ptrdiff_t>(outputs), results.end());
}

}  // namespace

FlatTrees::FlatTrees() = default;
FlatTrees::FlatTrees(TreeRefs refs) {
  for (const TreeRef& tree : refs) add(tree);
}
FlatTrees::FlatTrees(const FlatTrees&) = default;
FlatTrees::FlatTrees(FlatTrees&&) noexcept = default;
FlatTrees& FlatTrees::operator=(const FlatTrees&) = default;
FlatTrees& FlatTrees::operator=(FlatTrees&&) noexcept = default;
FlatTrees::~FlatTrees() = default;

void FlatTrees::add_result(TreeRef result, TreeRefs elements) {
  whole.push_back(result);
  for (const TreeRef& tree : elements) add(tree);
}

void FlatTrees::add(TreeRef tree) {
  const size_t before = arrays.size();
  for (auto& [path, a] : leaves_with_paths(tree)) {
    arrays.push_back(std::move(a));
    paths.push_back(std::move(path));
  }
  counts.push_back(arrays.size() - before);
  trees.push_back(tree);
}

FlatTrees FlatFunction::operator()(const Array* arrays) const {
  FlatTrees out;
  call_(f_, arrays, out);
  return out;
}

Traced trace_flat(const char* what, const Arrays& args, const FlatFunction& f) {
  return trace_with_result(what, args, f).traced;
}

std::string text_of_function(TreeRefs args, const FlatFunction& f) {
  return print_program(trace_flat("program_text", args, f).program);
}

Arrays remat_flat(TreeRefs args, const FlatFunction& f, const std::string& policy) {
  const Arrays leaves = leaves_of_trees(args);
  return detail::remat(trace_flat("remat", leaves, f), leaves, policy);
}

std::vector<bool> floating(const Arrays& arrays) {
  std::vector<bool> out;
  for (const Array& a : arrays) out.push_back(is_inexact(a.dtype()));
  return out;
}

std::vector<bool> wanted_arrays(const char* what, TreeRefs args, Positions positions) {
  std::vector<bool> wanted;
  size_t argument = 0;
  for (const TreeRef& tree : args) {
    const bool want = std::find(positions.begin(), positions.end(), argument) != positions.end();
    for (const auto& [path, a] : leaves_with_paths(tree)) {
      if (want)
        check_differentiable(
            a, std::string(what) + ": argument " + std::to_string(argument) + (path.empty() ? "" : ", " + path));
      wanted.push_back(want);
    }
    ++argument;
  }
  return wanted;
}

Gradients::Gradients(Arrays results, size_t outputs, TreeRefs args, Positions positions) : arrays_(std::move(results)) {
  size_t argument = 0, begin = outputs;
  for (const TreeRef& tree : args) {
    begins_.push_back(begin);
    if (std::find(positions.begin(), positions.end(), argument) != positions.end()) begin += array_count(tree);
    ++argument;
  }
}
Gradients::~Gradients() = default;

Gradients value_and_gradients(TreeRefs args, Positions positions, const FlatFunction& f) {
  const std::vector<bool> wanted = wanted_arrays("grad", args, positions);
  const Arrays leaves = leaves_of_trees(args);
  const FlatTrace call = trace_with_result("grad", leaves, f);
  check_scalar_loss(call.result.arrays[0]);
  return Gradients(detail::call(gradient_program(call.traced, wanted), with_captures(leaves, call.traced)),
                   call.result.arrays.size(), args, positions);
}

Pullback::Pullback(TreeRefs args, const FlatFunction& f) {
  const Arrays leaves = leaves_of_trees(args);
  wanted_ = floating(leaves);
  types_ = types_of_arrays(leaves);
  const Traced traced = trace_flat("vjp", leaves, f);
  const VjpPrograms programs = vjp_programs(traced, wanted_);
  split_results(call(programs.forward, with_captures(leaves, traced)), programs.outputs, outputs_, residuals_);
  backward_ = programs.backward;
}
Pullback::Pullback(const Pullback&) = default;
Pullback::Pullback(Pullback&&) noexcept = default;
Pullback::~Pullback() = default;

Arrays Pullback::operator()(TreeRef cotangent, TreeRef like) const {
  Arrays in = residuals_;
  const Arrays cts = leaves_of_trees({cotangent}), outs = leaves_of_trees({like});
  if (cts.size() != outs.size()) throw_tree_mismatch("vjp", outs.size(), cts.size());
  check_same_structure("vjp", like, cotangent);
  for (size_t i = 0; i < cts.size(); ++i) {
    if (!is_inexact(outs[i].dtype())) continue;
    check_cotangent(cts[i], outs[i], i);
    in.push_back(cts[i]);
  }
  const Arrays grads = call(backward_, in);
  Arrays out;
  size_t next = 0;
  for (size_t i = 0; i < wanted_.size(); ++i) out.push_back(wanted_[i] ? grads[next++] : zeros_of(types_[i]));
  return out;
}

Arrays custom_vjp_flat(TreeRefs args, const FlatFunction& f, const FlatFunction& forward, const FlatFunction& backward) {
  const Arrays leaves = leaves_of_trees(args);
  const Traced body = trace_flat("custom_vjp", leaves, f);
  const FlatTrace fwd = trace_with_result("custom_vjp", leaves, forward);  // {result, residuals}
  const std::span<const Array> results(fwd.result.arrays.data(), fwd.result.counts[0]);
  Arrays in(fwd.result.arrays.begin() + static_cast<std::ptrdiff_t>(results.size()), fwd.result.arrays.end());
  in.insert(in.end(), results.begin(), results.end());
  return detail::custom_vjp(body, fwd.traced, trace_flat("custom_vjp", in, backward), leaves);
}

Arrays jvp_flat(TreeRefs args, TreeRefs tangents, const FlatFunction& f, bool with_aux) {
  const Arrays leaves = leaves_of_trees(args);
  const FlatTrace call = trace_with_result("jvp", leaves, f);
  return jvp_results(call.traced, leaves, leaves_of_trees(tangents), outputs_without_aux(call.result, with_aux));
}

LinearMap::LinearMap(TreeRefs args, const FlatFunction& f) {
  const Arrays leaves = leaves_of_trees(args);
  types_ = types_of_arrays(leaves);
  const Traced traced = trace_flat("linearize", leaves, f);
  const VjpPrograms programs = linear_programs(traced, floating(leaves));
  split_results(call(programs.forward, with_captures(leaves, traced)), programs.outputs, outputs_, residuals_);
  program_ = programs.backward;
}
LinearMap::LinearMap(const LinearMap&) = default;
LinearMap::LinearMap(LinearMap&&) noexcept = default;
LinearMap::~LinearMap() = default;

Arrays LinearMap::operator()(TreeRefs tangents, TreeRef like) const {
  Arrays in = residuals_;
  append(in, checked_tangents("linearize", types_, leaves_of_trees(tangents)));
  const Arrays results = call(program_, in);
  Arrays out;
  size_t next = 0;
  for (const Array& a : leaves_of_trees({like})) out.push_back(is_inexact(a.dtype()) ? results[next++] : zeros_of(a.type()));
  return out;
}

TransposedMap::TransposedMap(TreeRefs args, const FlatFunction& f) {
  const Arrays leaves = leaves_of_trees(args);
  for (const Array& a : leaves) check_differentiable(a, "linear_transpose: an argument");
  const Traced traced = trace_flat("linear_transpose", leaves, f);
  types_ = output_types(traced.program);
  program_ = transposed_program(traced, std::vector<bool>(leaves.size(), true));
  captures_ = traced.captures;
}
TransposedMap::TransposedMap(const TransposedMap&) = default;
TransposedMap::TransposedMap(TransposedMap&&) noexcept = default;
TransposedMap::~TransposedMap() = default;

Arrays TransposedMap::operator()(TreeRef cotangent) const {
  Arrays in = captures_;
  append(in, checked_tangents("linear_transpose", types_, leaves_of_trees({cotangent})));
  return call(program_, in);
}

Arrays custom_jvp_flat(TreeRefs args, const FlatFunction& f, const FlatFunction& rule) {
  const Arrays leaves = leaves_of_trees(args);
  const Traced body = trace_flat("custom_jvp", leaves, f);
  Arrays twice = leaves;  // the primals stand for the tangents
  append(twice, leaves);
  return detail::custom_jvp(body, trace_flat("custom_jvp", twice, rule), leaves);
}

JacobianResults jacobian_flat(const char* what, TreeRefs args, Positions positions, const FlatFunction& f, bool with_aux,
                              JacobianMode mode) {
  const std::vector<bool> wanted = wanted_arrays(what, args, positions);
  const Arrays leaves = leaves_of_trees(args);
  const FlatTrace call = trace_with_result(what, leaves, f);
  const size_t outputs = outputs_without_aux(call.result, with_aux);
  const ProgramPtr program = jacobian_program(call.traced, wanted, outputs, mode);
  return {Gradients(detail::call(program, with_captures(leaves, call.traced)), call.result.arrays.size(), args, positions),
          outputs, static_cast<size_t>(std::count(wanted.begin(), wanted.end(), true))};
}

Arrays scan_flat(TreeRef init, TreeRef xs, const FlatFunction& f, const ScanOptions& options) {
  const Arrays elements = leaves_of_trees({xs});
  const int64_t length = scan_length(elements, options);
  Arrays start = leaves_of_trees({init});
  for (;;) {  // until the carry has the same types before and after an iteration
    std::vector<Type> types;
    {
      Tracing tracing("scan");
      Arrays inputs;
      for (const Array& a : start) inputs.push_back(tracing.input(a.type(), a));
      for (const Array& a : elements) inputs.push_back(tracing.input(element_type(a), a));
      FlatTrees result = f(inputs.data());  // {carry, y}
      const std::span<Array> carry(result.arrays.data(), result.counts[0]);
      types = carry_types("scan", start, carry);
      if (have_types(start, types)) {
        TreeStructure(init, true)
            .check_same(TreeStructure(result.trees[0], true), "scan", "in the initial carry", "in the returned carry",
                        "a value that changes between iterations must be an Array");
        widen(carry, types);
        return unrolled_scan(tracing.finish(result.arrays), start, elements, length, options);
      }
    }
    widen(start, types);
  }
}

Arrays while_loop_flat(TreeRef init, const FlatFunction& condition, const FlatFunction& body) {
  Arrays start = leaves_of_trees({init});
  for (;;) {  // until the carry has the same types before and after a round
    const FlatTrace test = trace_with_result("while_loop", start, condition);
    check_condition(test.result.arrays[0]);
    std::vector<Type> types;
    {
      Tracing tracing("while_loop");
      Arrays inputs;
      for (const Array& a : start) inputs.push_back(tracing.input(a.type(), a));
      FlatTrees next = body(inputs.data());
      types = loop_types(start, next.arrays, test.result.arrays[0]);
      if (have_types(start, types)) {
        TreeStructure(init, true)
            .check_same(TreeStructure(next.whole[0], true), "while_loop", "in the initial carry", "in the returned carry",
                        "a value that changes between rounds must be an Array");
        widen(next.arrays, types);
        return detail::while_loop(test.traced, tracing.finish(next.arrays), start);
      }
    }
    widen(start, types);
  }
}

Arrays branches_flat(const char* what, bool by_index, const Array& choice, std::span<const FlatFunction> branches, TreeRefs operands) {
  const Arrays leaves = leaves_of_trees(operands);
  std::vector<FlatTrace> calls;
  std::vector<Arrays> results;
  for (const FlatFunction& branch : branches) {
    calls.push_back(trace_with_result(what, leaves, branch));
    results.push_back(calls.back().result.arrays);
  }
  const std::vector<Type> types = branch_types(what, results);  // common to all branches
  std::vector<Traced> programs;
  for (size_t i = 0; i < calls.size(); ++i) {
    TreeStructure(calls[0].result.whole[0], true)
        .check_same(TreeStructure(calls[i].result.whole[0], true), what, "in one branch's result", "in the other's",
                    "a value that depends on the predicate must be an Array");
    if (!have_types(results[i], types)) {
      Tracing tracing(what);
      Arrays inputs;
      for (const Array& a : leaves) inputs.push_back(tracing.input(a.type(), a));
      calls[i].result = branches[i](inputs.data());
      widen(calls[i].result.arrays, types);
      calls[i].traced = tracing.finish(calls[i].result.arrays);
    }
    programs.push_back(calls[i].traced);
  }
  if (by_index) return detail::switch_case(branch_index(choice, programs.size()), programs, leaves);
  return detail::cond(choice, programs[0], programs[1], leaves);
}

}  // namespace lockstep::detail
