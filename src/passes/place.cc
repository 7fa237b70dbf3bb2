#include "passes/place.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool uses_any(const LaneSpec& lane_spec, const std::vector<std::string>& axes) {
  for (const auto& dimension : lane_spec)
    for (const std::string& axis : dimension)
      if (contains(axes, axis)) return true;
  return false;
}

// Whether the pieces of a dimension begin and end between steps of its factor.
bool falls_between_steps(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t steps, int64_t step) {
  if (step == 1) return true;
  for (int64_t at = 0; at < lanes_along(grid, axes); ++at)
    if (lane_range(grid, axes, steps * step, at).end != step * lane_range(grid, axes, steps, at).end) return false;
  return true;
}

// Whether every shard of a factor is as large as the halo of its neighbors.
bool contains_halos(const LaneGrid& grid, const std::vector<std::string>& axes, const Rule& rule, char factor,
                    int64_t steps) {
  for (size_t t = 0; t < rule.in_halo.size(); ++t) {
    if (!rule.in_halo[t].contains(factor)) continue;
    const Halo halo = halo_of(rule, t, factor);
    const int64_t step = step_of(rule.in_step, t, factor), least = std::max<int64_t>({halo.before, halo.after, 1});
    for (int64_t at = 0; at < lanes_along(grid, axes); ++at)
      if (lane_range(grid, axes, steps, at).size() * step < least) return false;
  }
  return true;
}

class Placer {
 public:
  Placer(const Program& p, const LaneGrid& grid, const LaneConstraints& inputs, const LaneConstraints& outputs)
      : p_(p), grid_(grid), constrained_(p.types.size()) {
    placement_.lane_specs.resize(p.types.size());
    placement_.reasons.resize(p.types.size());
    for (size_t id = 0; id < p.types.size(); ++id) {
      placement_.lane_specs[id].resize(p.types[id].shape.size());
      constrained_[id].resize(p.types[id].shape.size(), false);
    }
    for (size_t i = 0; i < p.inputs.size() && i < inputs.size(); ++i) constrain(p.inputs[i], inputs[i], "input", i);
    for (const Eqn& eqn : p.eqns)
      if (eqn.op->annotation) constrain(eqn.out[0], eqn.op->annotation(p.types[eqn.out[0]], eqn.attrs));
    // An input that is also an output keeps its constraint as an input.
    for (size_t i = 0; i < p.outputs.size() && i < outputs.size(); ++i)
      constrain(p.outputs[i], outputs[i], "output", i);
  }

  // A broadcast passes the lane spec of its operand on only if nothing else decides: a sharded bias must not shard the
  // activations that it is added to.
  Placement operator()() {
    for (const bool through_broadcasts : {false, true}) {
      bool changed = true;
      while (changed) {
        changed = false;
        for (size_t i = 0; i < p_.eqns.size(); ++i) changed |= visit(i, through_broadcasts);
        for (size_t i = p_.eqns.size(); i-- > 0;) changed |= visit(i, through_broadcasts);
      }
    }
    return std::move(placement_);
  }

 private:
  void constrain(ValueId id, const std::optional<LaneSpec>& lane_spec, const char* what, size_t i) {
    if (!lane_spec || !placement_.reasons[id].empty()) return;
    constrained_[id].assign(constrained_[id].size(), true);
    placement_.lane_specs[id] = *lane_spec;
    placement_.reasons[id] = fmt::format("{} {}", what, i);
  }
  // Axes that do not cross lanes shard nothing here.
  void constrain(ValueId id, const Annotation& annotation) {
    for (size_t d = 0; d < annotation.axes.size(); ++d) {
      if (!annotation.axes[d]) continue;
      constrained_[id][d] = true;
      for (const std::string& axis : *annotation.axes[d])
        if (grid_.find(axis)) placement_.lane_specs[id][d].push_back(axis);
    }
    placement_.reasons[id] =
        annotation.at.empty() ? annotation.by : fmt::format("{} at {}", annotation.by, annotation.at);
  }

  bool visit(size_t index, bool through_broadcasts) {
    const Eqn& eqn = p_.eqns[index];
    if (!eqn.op->rule) return false;
    const Rule rule = rule_of(p_, eqn);
    const FactorAxes axes = factor_axes(p_, grid_, eqn, rule, placement_.lane_specs);
    if (axes.empty()) return false;
    bool changed = false;
    for (size_t t = 0; t < eqn.in.size(); ++t) changed |= extend(eqn.in[t], rule.in[t], axes, index);
    if (!through_broadcasts && makes_dimensions(rule)) return changed;
    for (size_t k = 0; k < eqn.out.size(); ++k) changed |= extend(eqn.out[k], rule.out[k], axes, index);
    return changed;
  }

  // Shards dimensions that are not sharded yet, unless they have fewer elements than lanes.
  bool extend(ValueId id, const std::string& factors, const FactorAxes& axes, size_t index) {
    bool changed = false;
    LaneSpec& lane_spec = placement_.lane_specs[id];
    for (size_t d = 0; d < factors.size(); ++d) {
      const auto at = axes.find(factors[d]);
      if (at == axes.end() || constrained_[id][d] || !lane_spec[d].empty() || uses_any(lane_spec, at->second)) continue;
      if (p_.types[id].shape[d] < lanes_along(grid_, at->second)) continue;
      lane_spec[d] = at->second;
      placement_.reasons[id] = fmt::format("equation {} ({})", index, p_.eqns[index].op->name);
      changed = true;
    }
    return changed;
  }

  const Program& p_;
  const LaneGrid& grid_;
  Placement placement_;
  std::vector<std::vector<bool>> constrained_;  // by ValueId and dimension
};

}  // namespace

bool makes_dimensions(const Rule& rule) {
  const auto has = [](const std::string& factors, char factor) { return factors.find(factor) != std::string::npos; };
  for (const std::string& result : rule.out)
    for (char factor : result)
      if (!has(rule.unsharded, factor) && std::none_of(rule.in.begin(), rule.in.end(), [&](const std::string& operand) {
            return has(operand, factor);
          }))
        return true;
  return false;
}

Rule rule_of(const Program& p, const Eqn& eqn) {
  std::vector<Type> types;
  for (ValueId id : eqn.in) types.push_back(p.types[id]);
  return eqn.op->rule(types, eqn.attrs);
}

FactorAxes factor_axes(const Program& p, const LaneGrid& grid, const Eqn& eqn, const Rule& rule,
                       const std::vector<LaneSpec>& lane_specs) {
  FactorAxes out;
  std::vector<std::string> used;
  const auto fits = [&](char factor, const std::vector<std::string>& axes, int64_t steps) {
    for (const Steps* side : {&rule.in_step, &rule.out_step})
      for (size_t term = 0; term < side->size(); ++term)
        if (!falls_between_steps(grid, axes, steps, step_of(*side, term, factor))) return false;
    return contains_halos(grid, axes, rule, factor, steps);
  };
  const auto offer = [&](char factor, std::vector<std::string> axes, int64_t steps) {
    while (!axes.empty() && !fits(factor, axes, steps)) axes.pop_back();
    if (axes.empty() || out.contains(factor) || rule.unsharded.find(factor) != std::string::npos) return;
    for (const std::string& axis : axes)
      if (contains(used, axis)) return;
    out[factor] = axes;
    used.insert(used.end(), axes.begin(), axes.end());
  };
  const auto kept = [&](char factor) {
    for (const std::string& result : rule.out)
      if (result.find(factor) != std::string::npos) return true;
    return false;
  };
  const auto offer_results = [&] {
    for (size_t k = 0; k < eqn.out.size(); ++k)
      for (size_t d = 0; d < rule.out[k].size(); ++d) {
        const char factor = rule.out[k][d];
        offer(factor, lane_specs[eqn.out[k]][d], p.types[eqn.out[k]].shape[d] / step_of(rule.out_step, k, factor));
      }
  };
  if (makes_dimensions(rule)) offer_results();
  for (const bool in_results : {true, false})
    for (size_t t = 0; t < eqn.in.size(); ++t)
      for (size_t d = 0; d < rule.in[t].size(); ++d)
        if (const char factor = rule.in[t][d]; kept(factor) == in_results)
          offer(factor, lane_specs[eqn.in[t]][d], p.types[eqn.in[t]].shape[d] / step_of(rule.in_step, t, factor));
  offer_results();
  return out;
}

LaneSpec lane_spec_of(const std::string& factors, const FactorAxes& axes) {
  LaneSpec lane_spec(factors.size());
  for (size_t d = 0; d < factors.size(); ++d)
    if (const auto at = axes.find(factors[d]); at != axes.end()) lane_spec[d] = at->second;
  return lane_spec;
}

Placement place(const Program& p, const LaneGrid& grid, const LaneConstraints& inputs, const LaneConstraints& outputs) {
  return Placer(p, grid, inputs, outputs)();
}

}  // namespace lockstep
