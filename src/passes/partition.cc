#include "passes/partition.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "passes/place.h"
#include "passes/reshard.h"
#include "program/effects.h"

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
        values_(p.types.size()),
        uses_(p.types.size(), 0) {
    for (const Eqn& eqn : p.eqns)
      for (ValueId id : eqn.in) ++uses_[id];
    for (ValueId id : p.outputs) uses_[id] += 2;  // an output counts as a non-linear use
  }

  Program operator()() {
    for (ValueId id : p_.inputs) {
      Type type = p_.types[id];
      type.shape = local_shape(type.shape, placement_.lane_specs[id]);
      values_[id] = {b_.input(type), {placement_.lane_specs[id], {}, PendingReduction::none}};
    }
    for (const Eqn& eqn : p_.eqns) {
      if (eqn.op->rule)
        emit_cut(eqn);
      else
        emit_replicated(eqn);
    }
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(get(id, placement_.lane_specs[id]));
    return b_.take(outputs);
  }

 private:
  struct LaneValue {
    Value value;
    LaneLayout layout;
  };

  Shape local_shape(const Shape& global, const LaneSpec& lane_spec) const {
    Shape shape;
    for (const Range& range : lane_box(grid_, lane_spec, global, lane_)) shape.push_back(range.size());
    return shape;
  }

  // Returns the value with this lane spec and no pending reduction. Caches it, so that two users share one move.
  Value get(ValueId id, const LaneSpec& lane_spec) {
    const LaneValue& current = values_[id];
    if (current.layout.partial.empty() && current.layout.lane_spec == lane_spec) return current.value;
    if (const auto at = moved_.find({id, lane_spec}); at != moved_.end()) return at->second;
    LaneLayout layout = current.layout;
    Value value = resharder_.move(current.value, p_.types[id].shape, layout, lane_spec);
    value = resharder_.reduce(value, layout);
    return moved_[{id, lane_spec}] = value;
  }

  // Whether the equation has an effect that a lane before this one has on the same operands.
  bool repeats(const Eqn& eqn, const FactorAxes& sharded) const {
    if (!has_effect(eqn)) return false;
    std::vector<std::string> others;
    for (const LaneAxis& axis : grid_.axes)
      if (std::none_of(sharded.begin(), sharded.end(), [&](const auto& entry) {
            return std::find(entry.second.begin(), entry.second.end(), axis.name) != entry.second.end();
          }))
        others.push_back(axis.name);
    return position_along(grid_, others, lane_) != 0;
  }

  // An op whose dimensions are never sharded runs on every lane with full operands.
  void emit_replicated(const Eqn& eqn) {
    Values in;
    for (ValueId id : eqn.in) in.push_back(get(id, LaneSpec(p_.types[id].shape.size())));
    const Values out = b_.emit(*eqn.op, in, repeats(eqn, {}) ? without_repeated_effects(eqn.attrs) : eqn.attrs);
    for (size_t k = 0; k < out.size(); ++k)
      store(eqn.out[k], out[k], {LaneSpec(out[k].shape().size()), {}, PendingReduction::none});
  }

  // Ranges of the sharded factors on this lane.
  FactorRanges ranges(const Eqn& eqn, const Rule& rule, const FactorAxes& axes) const {
    FactorRanges out;
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

  // The pending reduction that a linear equation may pass on to its result: that of all operands of a sum, or of one
  // operand of a product. Only if no other equation needs the operand reduced, and the result is not larger.
  LaneLayout carried(const Eqn& eqn, const Rule& rule, const FactorAxes& axes) const {
    LaneLayout none;
    if (eqn.op->linear == Linear::no || eqn.out.size() != 1) return none;
    const LaneValue* first = nullptr;
    size_t partial = 0;
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const LaneValue& current = values_[eqn.in[t]];
      if (current.layout.partial.empty()) {
        // Zeros on all lanes are terms of a sum that is zero.
        if (eqn.op->linear == Linear::all && is_zero(current.value)) ++partial;
        continue;
      }
      if (uses_[eqn.in[t]] > 1 || current.layout.kind != PendingReduction::sum) return none;
      if (current.layout.lane_spec != lane_spec_of(rule.in[t], axes)) return none;
      if (first && first->layout.partial != current.layout.partial) return none;
      if (count(p_.types[eqn.out[0]].shape) > count(p_.types[eqn.in[t]].shape)) return none;
      first = &current;
      ++partial;
    }
    if (!first || (eqn.op->linear == Linear::one ? partial != 1 : partial != eqn.in.size())) return none;
    for (const auto& [factor, cutting] : axes)
      for (const std::string& axis : cutting)
        if (std::find(first->layout.partial.begin(), first->layout.partial.end(), axis) != first->layout.partial.end())
          return none;
    return first->layout;
  }

  // An operand with its halos along the sharded factors. The one along the second factor includes that of the first.
  Value with_halos(Value x, ValueId id, const Rule& rule, size_t term, const FactorAxes& axes) {
    for (size_t d = 0; d < rule.in[term].size(); ++d) {
      const auto at = axes.find(rule.in[term][d]);
      const Halo halo = halo_of(rule, term, rule.in[term][d]);
      if (at == axes.end() || (halo.before == 0 && halo.after == 0)) continue;
      Value& made = with_halo_[{x.id(), d, halo.before, halo.after}];
      if (!made) made = resharder_.with_halo(x, d, at->second, p_.types[id].shape[d], halo);
      x = made;
    }
    return x;
  }

  void emit_cut(const Eqn& eqn) {
    const Rule rule = rule_of(p_, eqn);
    const FactorAxes axes = factor_axes(p_, grid_, eqn, rule, placement_.lane_specs);
    const LaneLayout carry = carried(eqn, rule, axes);
    Values in;
    std::vector<Type> types;
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const LaneValue& current = values_[eqn.in[t]];
      in.push_back(!carry.partial.empty() && !current.layout.partial.empty()
                       ? current.value
                       : get(eqn.in[t], lane_spec_of(rule.in[t], axes)));
      in.back() = with_halos(in.back(), eqn.in[t], rule, t, axes);
      types.push_back(p_.types[eqn.in[t]]);
    }
    const LocalEqn local = local_eqn(*eqn.op, types, eqn.attrs, ranges(eqn, rule, axes));
    const Values out =
        eqn.op->annotation
            ? in
            : b_.emit(*eqn.op, in, repeats(eqn, axes) ? without_repeated_effects(local.attrs) : local.attrs);
    for (size_t k = 0; k < out.size(); ++k) {
      LaneLayout layout{lane_spec_of(rule.out[k], axes), carry.partial, carry.kind};
      for (const auto& [factor, cutting] : axes) {
        if (rule.out[k].find(factor) != std::string::npos) continue;
        layout.partial.insert(layout.partial.end(), cutting.begin(), cutting.end());
        layout.kind = eqn.op->pending;
      }
      std::sort(layout.partial.begin(), layout.partial.end());
      store(eqn.out[k], out[k], layout);
    }
  }

  // Stores a value with the lane spec of its placement. A pending reduction is left to a single user. For several users
  // it is done here, so that collectives come in the order in which values are computed and can overlap with
  // computation.
  void store(ValueId id, Value value, LaneLayout layout) {
    if (layout.lane_spec != placement_.lane_specs[id])
      value = resharder_.move(value, p_.types[id].shape, layout, placement_.lane_specs[id]);
    if (uses_[id] > 1) value = resharder_.reduce(value, layout);
    values_[id] = {value, layout};
  }

  const Program& p_;
  const LaneGrid& grid_;
  const Placement& placement_;
  int64_t lane_;
  Resharder resharder_;
  Builder b_;
  std::vector<LaneValue> values_;
  std::map<std::pair<ValueId, LaneSpec>, Value> moved_;
  std::map<std::tuple<ValueId, size_t, int64_t, int64_t>, Value> with_halo_;
  std::vector<int> uses_;
};

}  // namespace

Program partition(const Program& p, const LaneGrid& grid, const Placement& placement, int64_t lane) {
  return checked(Partitioner(p, grid, placement, lane)());
}

}  // namespace lockstep
