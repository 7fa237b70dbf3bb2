#include "passes/regather.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/lane_ops.h"
#include "passes/eqn_cost.h"

namespace lockstep {
namespace {

// The uses of values, and which values are cheap to compute from inputs.
class GatherUses {
 public:
  explicit GatherUses(const Program& p) : p_(p), users_(p.types.size()), cheap_(p.types.size(), false) {
    for (ValueId id : p.inputs) cheap_[id] = true;
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      const Eqn& eqn = p.eqns[i];
      for (ValueId id : eqn.in)
        if (users_[id].empty() || users_[id].back() != i) users_[id].push_back(i);
      if (is_free(eqn) || eqn.op->loop)
        for (ValueId id : eqn.out)
          cheap_[id] = std::all_of(eqn.in.begin(), eqn.in.end(), [&](ValueId from) { return cheap_[from]; });
    }
  }

  // Computed from inputs by elementwise equations and views alone.
  bool is_cheap(ValueId id) const { return cheap_[id]; }

  // The equations that compute with a value or with views of it; and those views. Both in order.
  std::pair<std::vector<size_t>, std::vector<size_t>> of(ValueId id) const {
    std::pair<std::vector<size_t>, std::vector<size_t>> out;
    collect(id, out);
    for (std::vector<size_t>* each : {&out.first, &out.second}) {
      std::sort(each->begin(), each->end());
      each->erase(std::unique(each->begin(), each->end()), each->end());
    }
    return out;
  }

 private:
  void collect(ValueId id, std::pair<std::vector<size_t>, std::vector<size_t>>& out) const {
    for (size_t user : users_[id]) {
      if (!p_.eqns[user].op->view) {
        out.first.push_back(user);
        continue;
      }
      out.second.push_back(user);
      for (ValueId result : p_.eqns[user].out) collect(result, out);
    }
  }

  const Program& p_;
  std::vector<std::vector<size_t>> users_;  // by value
  std::vector<bool> cheap_;                 // by value
};

}  // namespace

std::vector<Regather> choose_regathers(const Program& p, const RegatherOptions& options) {
  const GatherUses uses(p);
  const ExpensiveEqns expensive(p);
  std::vector<Regather> out;
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& eqn = p.eqns[i];
    if (!is_all_gather(eqn) || p.types[eqn.out[0]].bytes() < options.min_bytes || !uses.is_cheap(eqn.in[0])) continue;
    const auto [users, views] = uses.of(eqn.out[0]);
    for (size_t k = 1; k < users.size(); ++k)
      if (expensive.count_before(users[k]) > expensive.count_before(users[k - 1] + 1) + options.keep_within)
        out.push_back({i, users[k]});
  }
  std::stable_sort(out.begin(), out.end(), [](const Regather& a, const Regather& b) { return a.use < b.use; });
  return out;
}

Program apply_regathers(const Program& p, const std::vector<Regather>& regathers) {
  const GatherUses uses(p);
  Program out{p.types, p.inputs, {}, p.outputs};
  std::vector<ValueId> current(p.types.size());  // the current copy of each value
  for (ValueId id = 0; id < current.size(); ++id) current[id] = id;
  const auto copy = [&](const Eqn& eqn, bool rename) {
    out.eqns.push_back(eqn);
    for (ValueId& id : out.eqns.back().in) id = current[id];
    if (!rename) return;
    for (ValueId& id : out.eqns.back().out) {
      current[id] = static_cast<ValueId>(out.types.size());
      out.types.push_back(p.types[id]);
      id = current[id];
    }
  };
  size_t next = 0;
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    for (; next < regathers.size() && regathers[next].use == i; ++next) {
      const size_t from = regathers[next].gather;
      LOCKSTEP_CHECK(from < i && is_all_gather(p.eqns[from]), "equation {} is not a gather before {}", from, i);
      copy(p.eqns[from], true);
      // Later views are of the new copy anyway.
      for (size_t view : uses.of(p.eqns[from].out[0]).second)
        if (view < i) copy(p.eqns[view], true);
    }
    copy(p.eqns[i], false);
  }
  LOCKSTEP_CHECK(next == regathers.size(), "a regather for an equation that does not exist");
  return out;
}

}  // namespace lockstep
