#include "plan/cuda/combine.h"

#include <algorithm>
#include <functional>

#include "ops/cuda/combined.h"
#include "passes/passes.h"
#include "program/builder.h"
#include "program/effects.h"

namespace lockstep {
namespace {

class Combiner {
 public:
  explicit Combiner(const Program& p)
      : p_(p), uses_(p), previous_collective_(p.eqns.size(), -1), group_of_(p.eqns.size(), -1) {
    int collective = -1;
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      if (!is_ordered(p.eqns[i])) continue;
      previous_collective_[i] = collective;
      collective = static_cast<int>(i);
    }
  }

  Program run() {
    for (size_t i = 0; i < p_.eqns.size(); ++i)
      for (const CombinedKernel* kernel : combined_kernels()) {
        if (group_of_[i] >= 0) break;
        add_group(*kernel, kernel->find(uses_, i));
      }
    return groups_.empty() ? p_ : emitted();
  }

 private:
  struct Group {
    const CombinedKernel* kernel;
    CombinedEqns found;
  };

  void add_group(const CombinedKernel& kernel, CombinedEqns found) {
    if (found.eqns.size() + found.views.size() < 2) return;
    if (std::any_of(found.eqns.begin(), found.eqns.end(), [&](size_t i) { return group_of_[i] >= 0; })) return;
    for (const size_t i : found.eqns) group_of_[i] = static_cast<int>(groups_.size());
    groups_.push_back({&kernel, std::move(found)});
    if (!is_cyclic(groups_.back().found.eqns)) return;
    for (const size_t i : groups_.back().found.eqns) group_of_[i] = -1;
    groups_.pop_back();
  }

  // The equations that must be complete before equation i, or the equations of its group.
  std::vector<size_t> needed_by(size_t i) const {
    std::vector<size_t> out;
    const auto add = [&](size_t member) {
      for (const ValueId id : p_.eqns[member].in)
        if (const int from = uses_.definition(id); from >= 0) out.push_back(static_cast<size_t>(from));
      if (previous_collective_[member] >= 0) out.push_back(static_cast<size_t>(previous_collective_[member]));
    };
    if (group_of_[i] < 0) {
      add(i);
      return out;
    }
    const CombinedEqns& found = groups_[static_cast<size_t>(group_of_[i])].found;
    for (const size_t member : found.eqns) add(member);
    for (const size_t view : found.views) add(view);
    const auto is_own = [&](size_t from) {
      return group_of_[from] == group_of_[i] ||
             std::find(found.views.begin(), found.views.end(), from) != found.views.end();
    };
    std::erase_if(out, is_own);
    return out;
  }

  // Whether what the equations need depends on them.
  bool is_cyclic(const std::vector<size_t>& eqns) const {
    const size_t first = eqns[0];
    const int own = group_of_[first];
    // Only through groups with equations before and after it can an equation before `first` depend on it.
    const bool ordered = std::none_of(groups_.begin(), groups_.end(), [&](const Group& each) {
      return each.found.eqns.front() < first && each.found.eqns.back() > first;
    });
    std::vector<bool> seen(p_.eqns.size());
    std::vector<size_t> stack = needed_by(first);
    while (!stack.empty()) {
      const size_t i = stack.back();
      stack.pop_back();
      if (group_of_[i] == own) return true;
      if (seen[i] || (ordered && i < first)) continue;
      seen[i] = true;
      for (const size_t from : needed_by(i)) stack.push_back(from);
    }
    return false;
  }

  Program emitted() {
    Builder b;
    Values map(p_.types.size());
    for (const ValueId id : p_.inputs) map[id] = b.input(p_.types[id]);
    std::vector<bool> done(p_.eqns.size());
    const std::function<void(size_t)> emit = [&](size_t i) {
      if (done[i]) return;
      done[i] = true;
      const int group = group_of_[i];
      if (group >= 0)
        for (const size_t member : groups_[static_cast<size_t>(group)].found.eqns) done[member] = true;
      for (const size_t from : needed_by(i)) emit(from);
      if (group < 0)
        b.copy(p_, p_.eqns[i], map);
      else
        emit_group(b, groups_[static_cast<size_t>(group)], map);
    };
    for (size_t i = 0; i < p_.eqns.size(); ++i)
      if (group_of_[i] < 0 || groups_[static_cast<size_t>(group_of_[i])].found.eqns.back() == i) emit(i);
    Values outputs;
    for (const ValueId id : p_.outputs) outputs.push_back(map[id]);
    return drop_dead(b.take(outputs));
  }

  void emit_group(Builder& b, const Group& group, Values& map) const {
    std::vector<size_t> members = group.found.eqns;
    members.insert(members.end(), group.found.views.begin(), group.found.views.end());
    std::sort(members.begin(), members.end());
    Builder body;
    Values inner(p_.types.size()), operands, results;
    std::vector<ValueId> result_ids;
    for (const size_t i : members) {
      for (const ValueId id : p_.eqns[i].in) {
        if (inner[id]) continue;
        operands.push_back(map[id]);
        inner[id] = body.input(p_.types[id]);
      }
      body.copy(p_, p_.eqns[i], inner);
    }
    for (const size_t i : group.found.eqns)
      for (const ValueId id : p_.eqns[i].out)
        if (is_used_outside(id)) {
          results.push_back(inner[id]);
          result_ids.push_back(id);
        }
    const Values out = combined(b, group.kernel->name, operands, body.take(results));
    for (size_t k = 0; k < out.size(); ++k) map[result_ids[k]] = out[k];
  }

  bool is_used_outside(ValueId id) const {
    const int own = group_of_[static_cast<size_t>(uses_.definition(id))];
    const std::vector<size_t>& users = uses_.users(id);
    return uses_.is_output(id) ||
           std::any_of(users.begin(), users.end(), [&](size_t i) { return group_of_[i] != own; });
  }

  const Program& p_;
  const ValueUses uses_;
  std::vector<int> previous_collective_;  // by equation: the collective before it if it is one; or -1
  std::vector<int> group_of_;             // by equation; -1: none
  std::vector<Group> groups_;
};

}  // namespace

Program combine(const Program& program) { return Combiner(program).run(); }

}  // namespace lockstep
