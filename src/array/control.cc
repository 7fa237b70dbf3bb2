// Control flow on traced functions: the parts that do not depend on C++ types.
#include <algorithm>
#include <array>
#include <iterator>

#include "array/apply.h"
#include "array/extend_inputs.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/collectives.h"
#include "lockstep/loops.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "ops/control.h"
#include "program/op.h"

namespace lockstep::detail {

int64_t scan_length(std::span<const Array> xs, const ScanOptions& options) {
  if (options.unroll < 1)
    throw_error("scan: unroll is {}; give the number of iterations in each round, at least 1", options.unroll);
  int64_t length = options.length;
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

Type element_type(const Operand& xs) { return without_axis(xs.type(), 0); }

namespace {

// The common type of arrays, or nullopt.
std::optional<Type> unify(std::span<const Array> arrays) {
  Type out = arrays[0].type();
  for (const Array& a : arrays)
    if (is_number(a)) out.dtype = common_dtype(arrays);
  for (const Array& a : arrays) {
    if (a.shape() != out.shape || (a.dtype() != out.dtype && !is_number(a))) return {};
    out.varying = union_of(out.varying, a.type().varying);
  }
  return out;
}

}  // namespace

std::vector<Type> carry_types(const char* what, std::span<const Array> init, std::span<const Array> carry) {
  if (init.size() != carry.size())
    throw_error(
        "{}: the body receives a carry of {} arrays and returns one of {}; it must return a carry of the same "
        "structure",
        what, init.size(), carry.size());
  std::vector<Type> out;
  for (size_t i = 0; i < init.size(); ++i) {
    const std::optional<Type> type = unify(std::array{init[i], carry[i]});
    if (!type)
      throw_error("{}: the body receives array {} of the carry as {} and returns {}; it must keep the type", what, i,
                  to_string(init[i].type()), to_string(carry[i].type()));
    out.push_back(*type);
  }
  return out;
}

std::vector<Type> branch_types(const char* what, std::span<const Arrays> results) {
  if (results.empty()) throw_error("{}: has no branches; give at least one", what);
  const Arrays& first = results[0];
  for (const Arrays& other : results)
    if (other.size() != first.size())
      throw_error("{}: one branch returns {} arrays, the other {}; the branches must agree", what, first.size(),
                  other.size());
  std::vector<Type> out;
  for (size_t i = 0; i < first.size(); ++i) {
    Arrays each;
    for (const Arrays& result : results) {
      each.push_back(result[i]);
      if (!unify(each))
        throw_error("{}: result {} is {} in one branch and {} in the other; the branches must agree", what, i,
                    to_string(first[i].type()), to_string(result[i].type()));
    }
    out.push_back(*unify(each));
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

Arrays unrolled_scan(const Traced& body, std::span<const Array> init, std::span<const Array> xs, int64_t length,
                     const ScanOptions& options) {
  if (options.unroll == 1) return scan(body, init, xs, length, options.reverse);
  Arrays args(init.begin(), init.end());
  args.insert(args.end(), xs.begin(), xs.end());
  const auto n = static_cast<std::ptrdiff_t>(init.size()), m = static_cast<std::ptrdiff_t>(xs.size());
  return apply("scan", with_captures(args, body), {}, [&](Builder& b, const Values& v) {
    return lockstep::unrolled_scan(b, body.program, Values(v.begin(), v.begin() + n),
                                   Values(v.begin() + n, v.begin() + n + m), Values(v.begin() + n + m, v.end()), length,
                                   options.reverse, options.unroll);
  });
}

namespace {

// Branches that take the operands and the captures of all branches.
struct JoinedBranches {
  Arrays args;
  std::vector<ProgramPtr> programs;

  JoinedBranches(std::span<const Traced> branches, std::span<const Array> operands)
      : args(operands.begin(), operands.end()) {
    for (const Traced& each : branches) args = with_captures(args, each);
    const std::vector<Type> types = types_of(args);
    size_t first = operands.size();
    for (const Traced& each : branches) {
      const size_t captures = each.captures.size();
      programs.push_back(extend_inputs(*each.program, types, positions(operands.size(), first, captures)));
      first += captures;
    }
  }
};

// `which` selects a branch: a predicate (the programs are if_false, if_true) or an index. If it varies over devices,
// all branches run: a value that branches share must not be summed over the devices inside one branch.
Values choose(Value which, const std::vector<ProgramPtr>& programs, const Values& operands) {
  if (!which.type().varying.empty()) return choose_among(which, programs, operands);
  if (which.dtype() == DType::boolean) return lockstep::cond(which, programs[1], programs[0], operands);
  return lockstep::switch_case(which, programs, operands);
}

Arrays choose(const char* what, const Array& which, JoinedBranches branches) {
  Arrays args = std::move(branches.args);
  args.insert(args.begin(), which);
  return apply(what, args, {}, [&](Builder&, const Values& v) {
    return choose(v[0], branches.programs, Values(v.begin() + 1, v.end()));
  });
}

}  // namespace

Arrays cond(const Array& predicate, const Traced& if_true, const Traced& if_false, std::span<const Array> operands) {
  JoinedBranches branches(std::array{if_true, if_false}, operands);
  std::swap(branches.programs[0], branches.programs[1]);
  return choose("cond", predicate, std::move(branches));
}

Array branch_index(const Operand& index, size_t branches) {
  if (index.rank() != 0 || is_floating(index.dtype()) || index.dtype() == DType::boolean)
    throw_error("switch_case: the index is {}; it must be an integer scalar, the number of one of {} branches",
                to_string(index.type()), branches);
  if (index.dtype() == DType::i32) return index;
  if (size_of(index.dtype()) < 4) return astype(index, DType::i32);
  return astype(maximum(minimum(index, static_cast<int64_t>(branches) - 1), 0), DType::i32);  // without wrapping
}

Arrays switch_case(const Operand& index, std::span<const Traced> branches, std::span<const Array> operands) {
  return choose("switch_case", index, JoinedBranches(branches, operands));
}

std::vector<Type> loop_types(std::span<const Array> init, std::span<const Array> carry, const Array& condition) {
  std::vector<Type> out = carry_types("while_loop", init, carry);
  for (Type& type : out) type.varying = union_of(type.varying, condition.type().varying);
  return out;
}

void check_condition(const Array& condition) {
  if (condition.rank() != 0 || condition.dtype() != DType::boolean)
    throw_error(
        "while_loop: the condition returns {}; it must return a bool scalar: compare, or reduce with any() or all()",
        to_string(condition.type()));
}

Arrays while_loop(const Traced& cond, const Traced& body, std::span<const Array> init) {
  Arrays args = cond.captures;
  args.insert(args.end(), body.captures.begin(), body.captures.end());
  args.insert(args.end(), init.begin(), init.end());
  // Programs take the captures first.
  const auto reordered = [&](const Traced& f) {
    Arrays in = f.captures;
    in.insert(in.end(), init.begin(), init.end());
    std::vector<size_t> order;
    for (size_t i = 0; i < init.size(); ++i) order.push_back(f.captures.size() + i);
    for (size_t i = 0; i < f.captures.size(); ++i) order.push_back(i);
    return extend_inputs(*f.program, types_of(in), order);
  };
  const auto seen = static_cast<std::ptrdiff_t>(cond.captures.size()),
             carries = static_cast<std::ptrdiff_t>(init.size());
  return apply("while_loop", args, {}, [&](Builder& b, const Values& v) {
    return lockstep::while_loop(b, reordered(cond), reordered(body), Values(v.begin(), v.begin() + seen),
                                Values(v.begin() + seen, v.end() - carries), Values(v.end() - carries, v.end()));
  });
}

LoopBounds loop_bounds(const Array& lower, const Array& upper) {
  for (const Array& each : {lower, upper})
    if (each.rank() != 0 || is_floating(each.dtype()) || each.dtype() == DType::boolean)
      throw_error("fori_loop: a bound is {}; bounds must be integer scalars", to_string(each.type()));
  const DType dtype = common_dtype(std::array{lower, upper});
  LoopBounds out{astype(lower, dtype), astype(upper, dtype), {}};
  if (!lower.is_traced() && !upper.is_traced()) out.known = {lower.item<int64_t>(), upper.item<int64_t>()};
  return out;
}

Array slice_along(const Array& x, int64_t axis, int64_t start, int64_t limit, int64_t step) {
  Shape starts(x.shape().size(), 0), limits = x.shape(), steps(x.shape().size(), 1);
  const auto at = static_cast<size_t>(axis);
  starts[at] = start;
  limits[at] = limit;
  steps[at] = step;
  return slice(x, starts, limits, steps);
}

Array join_along(const Array& x, const Array& y, int64_t axis) { return concatenate({x, y}, axis); }

Array interleave(const Array& even, const Array& odd, int64_t axis) {
  const int64_t pairs = odd.shape(axis);
  const bool more = even.shape(axis) > pairs;
  Shape shape = odd.shape();
  shape[static_cast<size_t>(axis)] *= 2;
  const Array joined = reshape(stack({more ? slice_along(even, axis, 0, pairs) : even, odd}, axis + 1), shape);
  return more ? join_along(joined, slice_along(even, axis, pairs, pairs + 1), axis) : joined;
}

Array in_blocks(const Array& x, int64_t blocks, int64_t size) {
  Shape shape{blocks, size};
  shape.insert(shape.end(), x.shape().begin() + 1, x.shape().end());
  return reshape(x, shape);
}

Array merge_blocks(const Array& x) {
  Shape shape{x.shape(0) * x.shape(1)};
  shape.insert(shape.end(), x.shape().begin() + 2, x.shape().end());
  return reshape(x, shape);
}

int64_t map_length(std::span<const Array> xs, int64_t batch_size) {
  if (batch_size < 1)
    throw_error("map: batch_size is {}; give the number of elements to compute together, at least 1", batch_size);
  if (xs.empty()) throw_error("map: the argument has no arrays; pass an array or a tree of arrays to map over");
  const int64_t n = xs[0].rank() > 0 ? xs[0].shape(0) : -1;
  for (const Array& x : xs)
    if (x.rank() == 0 || x.shape(0) != n)
      throw_error("map: arrays are {} and {}; all must have one leading axis to map over", to_string(xs[0].type()),
                  to_string(x.type()));
  return n;
}

int64_t associative_axis(std::span<const Array> elements, int64_t axis) {
  if (elements.empty()) throw_error("associative_scan: the argument has no arrays; pass an array or a tree of arrays");
  const int64_t at = axis_of("associative_scan", axis, elements[0].shape());
  for (const Array& x : elements)
    if (x.rank() <= at || x.shape(at) != elements[0].shape(at))
      throw_error("associative_scan: arrays are {} and {}; all must have one extent along axis {}",
                  to_string(elements[0].type()), to_string(x.type()), at);
  return at;
}

void check_combined(std::span<const Array> combined, std::span<const Array> operands) {
  for (size_t i = 0; i < std::max(combined.size(), operands.size()); ++i) {
    const std::string got = i < combined.size() ? to_string(combined[i].type()) : "nothing",
                      wanted = i < operands.size() ? to_string(operands[i].type()) : "nothing";
    if (got != wanted)
      throw_error("associative_scan: the function combines arrays {} of type {} to {}; it must keep the type", i,
                  wanted, got);
  }
}

}  // namespace lockstep::detail
