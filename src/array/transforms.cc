// The parts of the transforms that do not depend on C++ types: programs of gradients and batches, control
// flow, errors.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "array/apply.h"
#include "array/trace.h"
#include "base/check.h"
#include "lockstep/collectives.h"
#include "lockstep/control.h"
#include "lockstep/forward.h"
#include "lockstep/math.h"
#include "lockstep/vmap.h"
#include "ops/collectives.h"
#include "ops/control.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep::detail {

void throw_tree_mismatch(const char* what, size_t wanted, size_t got) {
  throw_error("{}: one tree has {} arrays, another {}; the trees must have the same structure", what, wanted, got);
}

std::string TreeStructure::text_of_real(double value) { return fmt::format("{}", value); }

void TreeStructure::check_same(const TreeStructure& other, const char* what, const char* here, const char* there,
                               const char* remedy) const {
  static const std::pair<std::string, std::string> kNothing{"", "nothing"};
  for (size_t i = 0; i < std::max(entries_.size(), other.entries_.size()); ++i) {
    const auto& a = i < entries_.size() ? entries_[i] : kNothing;
    const auto& b = i < other.entries_.size() ? other.entries_[i] : kNothing;
    if (a == b) continue;
    const std::string& where = a.first.empty() ? b.first : a.first;
    throw_error("{}: {}{} {} and {} {}; {}", what, where.empty() ? "" : fmt::format("at {}: ", where), a.second, here,
                b.second, there, remedy);
  }
}

Arrays call(const ProgramPtr& program, std::span<const Array> args) {
  auto body = [&](Builder& b, const Values& in) { return b.inline_program(*program, in); };
  if (tracing()) return apply("call", args, {}, body);
  return run_now(*program, args);
}

Arrays with_captures(std::span<const Array> args, const Traced& traced) {
  Arrays out(args.begin(), args.end());
  out.insert(out.end(), traced.captures.begin(), traced.captures.end());
  return out;
}

std::vector<Type> output_types(const ProgramPtr& program) { return program->output_types(); }

void check_scalar_loss(const Array& loss) {
  if (loss.rank() != 0)
    throw_error(
        "grad: the function returned {}; a gradient needs a scalar: reduce it with mean() or sum(), or use vjp with a "
        "cotangent of that shape",
        to_string(loss.type()));
  if (!is_floating(loss.dtype()))
    throw_error("grad: the function returned {}; a gradient needs a floating result: use astype()",
                to_string(loss.type()));
}

void check_differentiable(const Array& argument, const std::string& path) {
  if (!is_floating(argument.dtype()))
    throw_error(
        "{} is {}, which has no gradient; convert it to a floating type, or differentiate with respect to other "
        "arguments: grad<1>(f)",
        path, to_string(argument.type()));
}

void check_cotangent(const Array& cotangent, const Array& result, size_t index) {
  if (cotangent.type() != result.type())
    throw_error(
        "vjp: cotangent {} is {}, but the result is {}; a cotangent has its result's type: start with "
        "ones_like(result)",
        index, to_string(cotangent.type()), to_string(result.type()));
}

ProgramPtr gradient_program(const Traced& traced, std::vector<bool> wanted) {
  wanted.resize(traced.program->inputs.size(), false);
  const ProgramPtr program = recognized(traced);
  const Program& p = *program;
  const Program both = joint(p, wanted);
  // Cotangents: 1 for the loss, 0 for aux.
  Builder b;
  Values args;
  for (ValueId id : p.inputs) args.push_back(b.input(p.types[id]));
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    const Type& t = p.types[p.outputs[i]];
    if (is_floating(t.dtype)) args.push_back(full(b, t, i == 0 ? 1.0 : 0.0));
  }
  return std::make_shared<const Program>(b.take(b.inline_program(both, args)));
}

VjpPrograms vjp_programs(const Traced& traced, std::vector<bool> wanted) {
  wanted.resize(traced.program->inputs.size(), false);
  const ProgramPtr program = recognized(traced);
  const Program& p = *program;
  Split s = split(inline_bodies(joint(p, wanted), Inline::early), p.inputs.size(), p.outputs.size());
  return {std::make_shared<const Program>(std::move(s.known)), std::make_shared<const Program>(std::move(s.rest)),
          s.outputs};
}

VmapProgram batch_program(const Traced& traced, std::vector<bool> batched, int64_t size, const std::vector<bool>& force,
                          const std::string& axis) {
  batched.resize(traced.program->inputs.size(), false);
  BatchedProgram b = batch(*traced.program, batched, size, force, axis);
  return {std::make_shared<const Program>(std::move(b.program)), std::move(b.batched)};
}

void update_batch_size(int64_t& size, const Array& array, std::optional<int64_t> axis, const std::string& path) {
  if (!axis) return;
  const int64_t rank = array.rank(), at = *axis < 0 ? *axis + rank : *axis;
  if (at < 0 || at >= rank)
    throw_error("vmap: {} is {} and has no axis {}; set its in_axes to std::nullopt to share it", path,
                to_string(array.type()), *axis);
  const int64_t n = array.shape()[static_cast<size_t>(at)];
  if (size >= 0 && n != size)
    throw_error("vmap: {} is {}, {} along axis {}, but an earlier argument has {}; mapped axes must have equal extents",
                path, to_string(array.type()), n, *axis, size);
  size = n;
}

void check_batch_size(int64_t size) {
  if (size < 0) throw_error("vmap: no argument is mapped; at least one entry of in_axes must be an axis");
}

void check_in_axes(size_t axes, size_t arguments) {
  if (axes > arguments)
    throw_error("vmap: in_axes has {} entries for {} arguments; give at most one per argument", axes, arguments);
}

Type without_axis(const Type& type, int64_t axis) {
  Type out = type;
  out.shape.erase(out.shape.begin() + (axis < 0 ? axis + type.rank() : axis));
  return out;
}

Type example_type(const Type& type, std::optional<int64_t> axis, const std::string& axis_name) {
  Type out = axis ? without_axis(type, *axis) : type;
  if (!axis_name.empty()) out.varying = union_of(out.varying, {axis_name});
  return out;
}

void check_shared_results(const std::vector<bool>& batched) {
  for (size_t i = 0; i < batched.size(); ++i)
    if (batched[i])
      throw_error(
          "vmap: result {} depends on the mapped arguments, but out_axes is std::nullopt; set an axis, or reduce the "
          "result over the batch (psum over the axis name)",
          i);
}

Array axis_to_front(const Array& x, int64_t axis) {
  const int64_t at = axis < 0 ? axis + x.rank() : axis;
  if (at == 0) return x;
  return apply1("vmap", {x}, [&](Builder&, const Values& v) { return transpose(v[0], move_dim(v[0].rank(), at, 0)); });
}

Array front_to_axis(const Array& x, int64_t axis) {
  const int64_t at = axis < 0 ? axis + x.rank() : axis;
  if (at == 0) return x;
  if (at < 0 || at >= x.rank())
    throw_error("vmap: a batched result is {}, for which out_axes {} is out of range; use an axis within its rank",
                to_string(x.type()), axis);
  return apply1("vmap", {x}, [&](Builder&, const Values& v) { return transpose(v[0], move_dim(v[0].rank(), 0, at)); });
}

Array zeros_of(const Type& type) {
  return apply1("zeros", {}, [&](Builder& b, const Values&) {
    return is_floating(type.dtype) ? full(b, type, 0.0) : full(b, type, int64_t{0});
  });
}

namespace {

// Returns `program` with a longer list of inputs, in which its own are at `positions`.
ProgramPtr extend_inputs(const Program& program, const std::vector<Type>& inputs,
                         const std::vector<size_t>& positions) {
  Builder b;
  Values all, args;
  for (const Type& t : inputs) all.push_back(b.input(t));
  for (size_t at : positions) args.push_back(all[at]);
  return std::make_shared<const Program>(b.take(b.inline_program(program, args)));
}

std::vector<Type> types_of(std::span<const Array> arrays) {
  std::vector<Type> out;
  for (const Array& a : arrays) out.push_back(a.type());
  return out;
}

// {0, ..., own - 1} followed by `captures` positions from `first`.
std::vector<size_t> positions(size_t own, size_t first, size_t captures) {
  std::vector<size_t> out;
  for (size_t i = 0; i < own; ++i) out.push_back(i);
  for (size_t i = 0; i < captures; ++i) out.push_back(first + i);
  return out;
}

}  // namespace

int64_t scan_length(std::span<const Array> xs, int64_t length) {
  for (const Array& x : xs) {
    if (x.rank() == 0)
      throw_error("scan: an array of xs is {}, a scalar; xs need a leading axis to scan over", to_string(x.type()));
    if (length >= 0 && x.shape()[0] != length)
      throw_error("scan: an array of xs is {}, but the length is {}; leading axes must agree", to_string(x.type()),
                  length);
    length = x.shape()[0];
  }
  if (length < 0) throw_error("scan: neither xs nor a length is given; pass {{.length = n}}");
  return length;
}

Type element_type(const Array& xs) { return without_axis(xs.type(), 0); }

namespace {

// The common type of two arrays, or nullopt.
std::optional<Type> unify(const Array& a, const Array& b) {
  const Array both[] = {a, b};
  Type out = a.type();
  out.dtype = is_number(a) || is_number(b) ? common_dtype(both) : a.dtype();
  for (const Array& each : both)
    if (each.shape() != out.shape || (each.dtype() != out.dtype && !is_number(each))) return {};
  out.varying = union_of(a.type().varying, b.type().varying);
  return out;
}

}  // namespace

std::vector<Type> carry_types(std::span<const Array> init, std::span<const Array> carry) {
  if (init.size() != carry.size())
    throw_error(
        "scan: the body receives a carry of {} arrays and returns one of {}; it must return a carry of the same "
        "structure",
        init.size(), carry.size());
  std::vector<Type> out;
  for (size_t i = 0; i < init.size(); ++i) {
    const std::optional<Type> type = unify(init[i], carry[i]);
    if (!type)
      throw_error("scan: the body receives array {} of the carry as {} and returns {}; it must keep the type", i,
                  to_string(init[i].type()), to_string(carry[i].type()));
    out.push_back(*type);
  }
  return out;
}

std::vector<Type> branch_types(std::span<const Array> a, std::span<const Array> b) {
  if (a.size() != b.size())
    throw_error("cond: one branch returns {} arrays, the other {}; the branches must agree", a.size(), b.size());
  std::vector<Type> out;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::optional<Type> type = unify(a[i], b[i]);
    if (!type)
      throw_error("cond: result {} is {} in one branch and {} in the other; the branches must agree", i,
                  to_string(a[i].type()), to_string(b[i].type()));
    out.push_back(*type);
  }
  return out;
}

bool have_types(std::span<const Array> arrays, std::span<const Type> types) {
  return std::equal(arrays.begin(), arrays.end(), types.begin(), types.end(),
                    [](const Array& a, const Type& t) { return a.type() == t; });
}

Array widened(const Array& a, const Type& to) {
  if (a.type() == to) return a;
  const Array typed = a.dtype() == to.dtype ? a : astype(a, to.dtype);
  std::vector<std::string> axes;
  const std::vector<std::string>& has = a.type().varying;
  std::set_difference(to.varying.begin(), to.varying.end(), has.begin(), has.end(), std::back_inserter(axes));
  return axes.empty() ? typed : pvary(typed, axes);
}

void check_predicate(const Array& p) {
  if (p.rank() != 0 || p.dtype() != DType::boolean)
    throw_error(
        "cond: the predicate is {}; it must be a bool scalar: compare, or reduce with any() or all(), or use where() "
        "to select elements",
        to_string(p.type()));
}

Arrays scan(const Traced& body, std::span<const Array> init, std::span<const Array> xs, int64_t length, bool reverse) {
  Arrays args(init.begin(), init.end());
  args.insert(args.end(), xs.begin(), xs.end());
  args = with_captures(args, body);
  const auto n = static_cast<std::ptrdiff_t>(init.size()), m = static_cast<std::ptrdiff_t>(xs.size());
  return apply("scan", args, {}, [&](Builder& b, const Values& v) {
    return lockstep::scan(b, body.program, Values(v.begin(), v.begin() + n), Values(v.begin() + n, v.begin() + n + m),
                          Values(v.begin() + n + m, v.end()), length, reverse);
  });
}

Arrays cond(const Array& predicate, const Traced& if_true, const Traced& if_false, std::span<const Array> operands) {
  // Both branches take the operands and the captures of either.
  Arrays args = with_captures(with_captures(operands, if_true), if_false);
  const std::vector<Type> types = types_of(args);
  const size_t own = operands.size(), first = own + if_true.captures.size();
  const ProgramPtr yes = extend_inputs(*if_true.program, types, positions(own, own, if_true.captures.size()));
  const ProgramPtr no = extend_inputs(*if_false.program, types, positions(own, first, if_false.captures.size()));
  args.insert(args.begin(), predicate);
  return apply("cond", args, {}, [&](Builder& b, const Values& v) {
    const Values rest(v.begin() + 1, v.end());
    if (v[0].type().varying.empty()) return lockstep::cond(v[0], yes, no, rest);
    // If devices may choose differently, both branches run: a value that both branches share must not be
    // summed over the devices inside one branch.
    Values out = b.inline_program(*yes, rest);
    const Values otherwise = b.inline_program(*no, rest);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = lockstep::select(lockstep::broadcast(v[0], out[i].shape(), {}), out[i], otherwise[i]);
    return out;
  });
}

Arrays remat(const Traced& body, std::span<const Array> args) {
  return apply("remat", with_captures(args, body), {},
               [&](Builder& b, const Values& v) { return lockstep::remat(b, body.program, v); });
}

Arrays custom_vjp(const Traced& body, const Traced& forward, const Traced& backward, std::span<const Array> args) {
  const Arrays all = with_captures(with_captures(with_captures(args, body), forward), backward);
  const size_t n = args.size(), at_forward = n + body.captures.size(),
               at_backward = at_forward + forward.captures.size();
  std::vector<Type> types = types_of(all);
  const ProgramPtr f = extend_inputs(*body.program, types, positions(n, n, body.captures.size()));
  const ProgramPtr fwd = extend_inputs(*forward.program, types, positions(n, at_forward, forward.captures.size()));
  if (body.program->output_types() != std::vector<Type>([&] {
        auto t = fwd->output_types();
        t.resize(std::min(t.size(), body.program->outputs.size()));
        return t;
      }()))
    throw_error(
        "custom_vjp: forward returns other result types than the function; its first element must be the function's "
        "result");
  const Program& back = *backward.program;
  const size_t own = back.inputs.size() - backward.captures.size();  // residuals and cotangents
  std::vector<Type> back_types;
  for (size_t i = 0; i < own; ++i) back_types.push_back(back.types[back.inputs[i]]);
  back_types.insert(back_types.end(), types.begin(), types.end());
  const ProgramPtr bwd = extend_inputs(back, back_types, positions(own, own + at_backward, backward.captures.size()));
  if (bwd->outputs.size() != n)
    throw_error("custom_vjp: backward returns {} arrays for {} argument arrays; it must return one gradient for each",
                bwd->outputs.size(), n);
  for (size_t i = 0; i < n; ++i)
    if (is_floating(types[i].dtype) && bwd->output_types()[i] != types[i])
      throw_error("custom_vjp: gradient {} is {}, but the argument is {}; a gradient has its argument's type", i,
                  to_string(bwd->output_types()[i]), to_string(types[i]));
  return apply("custom_vjp", all, {}, [&](Builder& b, const Values& v) {
    return lockstep::custom_vjp(b, f, fwd, bwd, static_cast<int64_t>(n), v);
  });
}

Arrays custom_jvp(const Traced& body, const Traced& rule, const Arrays& args) {
  const Arrays all = with_captures(with_captures(args, body), rule);
  const std::vector<Type> types = types_of(all);
  const size_t n = args.size(), outputs = body.program->outputs.size();
  const ProgramPtr f = extend_inputs(*body.program, types, positions(n, n, body.captures.size()));
  if (rule.program->outputs.size() != 2 * outputs)
    throw_error(
        "custom_jvp: the rule returns {} arrays; it must return {{result, tangent}}, of {} arrays each, like the "
        "function's "
        "result",
        rule.program->outputs.size(), outputs);
  Builder b;
  Values inputs, in;
  for (const Type& t : types) inputs.push_back(b.input(t));
  in.assign(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(n));
  for (size_t i = 0; i < n; ++i)
    in.push_back(is_floating(types[i].dtype) ? b.input(types[i]) : full(b, types[i], int64_t{0}));
  in.insert(in.end(), inputs.end() - static_cast<std::ptrdiff_t>(rule.captures.size()), inputs.end());
  const Values out = b.inline_program(*rule.program, in);
  Values results;
  for (size_t k = 0; k < 2 * outputs; ++k) {
    const Type wanted = f->output_types()[k % outputs];
    if (k >= outputs && !is_floating(wanted.dtype)) continue;
    Type widest = out[k].type();
    widest.varying = union_of(widest.varying, wanted.varying);
    if (widest != wanted)
      throw_error("custom_jvp: {} {} of the rule is {}, but the function's result is {}; both have one type",
                  k < outputs ? "result" : "tangent", k % outputs, to_string(out[k].type()), to_string(wanted));
    results.push_back(out[k]);
    for (const std::string& axis : wanted.varying) results.back() = lockstep::pvary(results.back(), axis);
  }
  const auto derived = std::make_shared<const Program>(b.take(results));
  return apply("custom_jvp", all, {}, [&](Builder& builder, const Values& v) {
    return lockstep::custom_jvp(builder, f, derived, static_cast<int64_t>(n), v);
  });
}

}  // namespace lockstep::detail
