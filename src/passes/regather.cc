#include "passes/regather.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/ops.h"
#include "passes/costly.h"

namespace lockstep {
namespace {

bool is_weight_gather(const Eqn& eqn) { return eqn.op == &lane_all_gather_op; }

// Who makes and who uses what.
class Uses {
 public:
  explicit Uses(const Program& p) : p_(p), users_(p.types.size()), cheap_(p.types.size(), false) {
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

  // Made of inputs by elementwise equations and views alone.
  bool is_cheap(ValueId id) const { return cheap_[id]; }

  // The equations that compute with a value or with views of it, in order; and those views, in order.
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

std::vector<Again> decide_again(const Program& p, const RegatherOptions& options) {
  const Uses uses(p);
  const Costly costly(p);
  std::vector<Again> out;
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& eqn = p.eqns[i];
    if (!is_weight_gather(eqn) || p.types[eqn.out[0]].bytes() < options.least_bytes || !uses.is_cheap(eqn.in[0]))
      continue;
    const auto [users, views] = uses.of(eqn.out[0]);
    for (size_t k = 1; k < users.size(); ++k)
      if (costly.count(users[k]) > costly.count(users[k - 1] + 1) + options.keep) out.push_back({i, users[k]});
  }
  std::stable_sort(out.begin(), out.end(), [](const Again& a, const Again& b) { return a.use < b.use; });
  return out;
}

Program gather_again(const Program& p, const std::vector<Again>& again) {
  const Uses uses(p);
  Program out{p.types, p.inputs, {}, p.outputs};
  std::vector<ValueId> now(p.types.size());  // what stands for a value at this place
  for (ValueId id = 0; id < now.size(); ++id) now[id] = id;
  const auto copy = [&](const Eqn& eqn, bool fresh) {
    out.eqns.push_back(eqn);
    for (ValueId& id : out.eqns.back().in) id = now[id];
    if (!fresh) return;
    for (ValueId& id : out.eqns.back().out) {
      now[id] = static_cast<ValueId>(out.types.size());
      out.types.push_back(p.types[id]);
      id = now[id];
    }
  };
  size_t next = 0;
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    for (; next < again.size() && again[next].use == i; ++next) {
      const size_t from = again[next].gather;
      LOCKSTEP_CHECK(from < i && is_weight_gather(p.eqns[from]), "equation {} is no gather before {}", from, i);
      copy(p.eqns[from], true);
      // Views that come later will be of the new one by themselves.
      for (size_t view : uses.of(p.eqns[from].out[0]).second)
        if (view < i) copy(p.eqns[view], true);
    }
    copy(p.eqns[i], false);
  }
  LOCKSTEP_CHECK(next == again.size(), "a gather for an equation that is not there");
  return out;
}

}  // namespace lockstep
