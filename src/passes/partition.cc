#include "passes/partition.h"

#include <algorithm>
#include <map>

#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "passes/place.h"
#include "passes/reshard.h"

namespace lockstep {
namespace {

bool is_zero(Value x) {
  const Attr* value = full_value(x);
  return value && (*value == Attr(0.0) || *value == Attr(int64_t{0}));
}

// Writes the program of one lane, equation by equation.
class Partitioner {
 public:
  Partitioner(const Program& p, const LaneGrid& grid, const Placement& placement, int64_t lane)
      : p_(p),
        grid_(grid),
        placement_(placement),
        lane_(lane),
        resharder_(grid, lane),
        held_(p.types.size()),
        uses_(p.types.size(), 0) {
    for (const Eqn& eqn : p.eqns)
      for (ValueId id : eqn.in) ++uses_[id];
    for (ValueId id : p.outputs) uses_[id] += 2;  // leaving the program is no linear use
  }

  Program operator()() {
    for (ValueId id : p_.inputs) {
      Type type = p_.types[id];
      type.shape = piece(type.shape, placement_.cuts[id]);
      held_[id] = {b_.input(type), {placement_.cuts[id], {}, Owed::nothing}};
    }
    for (const Eqn& eqn : p_.eqns) {
      if (eqn.op->rule)
        cut(eqn);
      else
        keep_whole(eqn);
    }
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(get(id, placement_.cuts[id]));
    return b_.take(outputs);
  }

 private:
  struct Held {
    Value value;
    Layout layout;
  };

  Shape piece(const Shape& whole, const LaneCuts& cuts) const {
    Shape shape;
    for (const Range& range : lane_box(grid_, cuts, whole, lane_)) shape.push_back(range.size());
    return shape;
  }

  // The value with nothing owed, cut like this. Kept, so that what two equations need is moved once.
  Value get(ValueId id, const LaneCuts& cuts) {
    const Held& held = held_[id];
    if (held.layout.owed.empty() && held.layout.cuts == cuts) return held.value;
    if (const auto at = moved_.find({id, cuts}); at != moved_.end()) return at->second;
    Layout layout = held.layout;
    Value value = resharder_.move(held.value, p_.types[id].shape, layout, cuts);
    value = resharder_.pay(value, layout);
    return moved_[{id, cuts}] = value;
  }

  // An op whose dimensions are never cut runs on every lane alike.
  void keep_whole(const Eqn& eqn) {
    Values in;
    for (ValueId id : eqn.in) in.push_back(get(id, LaneCuts(p_.types[id].shape.size())));
    const Values out = b_.emit(*eqn.op, in, eqn.attrs);
    for (size_t k = 0; k < out.size(); ++k)
      hold(eqn.out[k], out[k], {LaneCuts(out[k].shape().size()), {}, Owed::nothing});
  }

  // Ranges of the cut factors on this lane.
  Cut ranges(const Eqn& eqn, const Rule& rule, const FactorAxes& axes) const {
    Cut out;
    const auto add = [&](const std::string& factors, const Shape& shape, const Steps& steps, size_t term) {
      for (size_t d = 0; d < factors.size(); ++d)
        if (const auto at = axes.find(factors[d]); at != axes.end())
          out[factors[d]] = lane_range(grid_, at->second, shape[d] / step_of(steps, term, factors[d]),
                                       position_along(grid_, at->second, lane_));
    };
    for (size_t t = 0; t < eqn.in.size(); ++t) add(rule.in[t], p_.types[eqn.in[t]].shape, rule.in_step, t);
    for (size_t k = 0; k < eqn.out.size(); ++k) add(rule.out[k], p_.types[eqn.out[k]].shape, rule.out_step, k);
    return out;
  }

  // What the equation may leave owed because it is linear: the same over all operands of a sum, or over one of a
  // product. Only where nothing else wants the operand paid, and the result is no larger.
  Layout carried(const Eqn& eqn, const Rule& rule, const FactorAxes& axes) const {
    Layout none;
    if (eqn.op->linear == Linear::no || eqn.out.size() != 1) return none;
    const Held* first = nullptr;
    size_t owing = 0;
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const Held& held = held_[eqn.in[t]];
      if (held.layout.owed.empty()) {
        // Zeros on all lanes are the terms of a sum that is zero.
        if (eqn.op->linear == Linear::all && is_zero(held.value)) ++owing;
        continue;
      }
      if (uses_[eqn.in[t]] > 1 || held.layout.kind != Owed::sum) return none;
      if (held.layout.cuts != cuts_of(rule.in[t], axes)) return none;
      if (first && first->layout.owed != held.layout.owed) return none;
      if (count(p_.types[eqn.out[0]].shape) > count(p_.types[eqn.in[t]].shape)) return none;
      first = &held;
      ++owing;
    }
    if (!first || (eqn.op->linear == Linear::one ? owing != 1 : owing != eqn.in.size())) return none;
    for (const auto& [factor, cutting] : axes)
      for (const std::string& axis : cutting)
        if (std::find(first->layout.owed.begin(), first->layout.owed.end(), axis) != first->layout.owed.end())
          return none;
    return first->layout;
  }

  void cut(const Eqn& eqn) {
    const Rule rule = rule_of(p_, eqn);
    const FactorAxes axes = factor_axes(p_, grid_, eqn, rule, placement_.cuts);
    const Layout carry = carried(eqn, rule, axes);
    Values in;
    std::vector<Type> types;
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const Held& held = held_[eqn.in[t]];
      in.push_back(!carry.owed.empty() && !held.layout.owed.empty() ? held.value
                                                                    : get(eqn.in[t], cuts_of(rule.in[t], axes)));
      types.push_back(p_.types[eqn.in[t]]);
    }
    const LocalEqn local = local_eqn(*eqn.op, types, eqn.attrs, ranges(eqn, rule, axes));
    const Values out = eqn.op->annotation ? in : b_.emit(*eqn.op, in, local.attrs);
    for (size_t k = 0; k < out.size(); ++k) {
      Layout layout{cuts_of(rule.out[k], axes), carry.owed, carry.kind};
      for (const auto& [factor, cutting] : axes) {
        if (rule.out[k].find(factor) != std::string::npos) continue;
        layout.owed.insert(layout.owed.end(), cutting.begin(), cutting.end());
        layout.kind = eqn.op->owed;
      }
      std::sort(layout.owed.begin(), layout.owed.end());
      hold(eqn.out[k], out[k], layout);
    }
  }

  // Values are held as they were placed. What is owed stays so until the one who uses it needs it paid; for several it
  // is paid at once, so that lanes meet in the order in which values are made and can go on computing meanwhile.
  void hold(ValueId id, Value value, Layout layout) {
    if (layout.cuts != placement_.cuts[id])
      value = resharder_.move(value, p_.types[id].shape, layout, placement_.cuts[id]);
    if (uses_[id] > 1) value = resharder_.pay(value, layout);
    held_[id] = {value, layout};
  }

  const Program& p_;
  const LaneGrid& grid_;
  const Placement& placement_;
  int64_t lane_;
  Resharder resharder_;
  Builder b_;
  std::vector<Held> held_;
  std::map<std::pair<ValueId, LaneCuts>, Value> moved_;
  std::vector<int> uses_;
};

}  // namespace

Program partition(const Program& p, const LaneGrid& grid, const Placement& placement, int64_t lane) {
  return checked(Partitioner(p, grid, placement, lane)());
}

}  // namespace lockstep
