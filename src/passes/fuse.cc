// Fusion. Elementwise equations of one shape form a group if one uses a result of another, so that the values between
// them never reach memory. An op that supports an epilogue (a matrix product) becomes the head of the group that
// consumes it. Views (broadcast, transpose, slice) and constants are duplicated inside each group that reads them.
//
// Groups grow from consumers to producers. An equation joins the group of its consumers if all of them are elementwise
// and of the same shape, and if merging their groups creates no cycle among groups. Consumers that only reduce the
// result (a norm) are ignored: it is written to memory for them, and no other equation reads it again. If the other
// consumers of a large result prevent this, the equation joins only the first group that it can: reading a large result
// from memory takes longer than computing it, and it is written for the others in any case. An equation that
// could be the epilogue of the product before it does not join a group with another head. An epilogue has real numbers of
// at least 16 bits only. Collectives keep their order:
// each counts as a consumer of the one before.
#include <algorithm>
#include <functional>

#include "base/check.h"
#include "ops/fused.h"
#include "passes/passes.h"
#include "program/effects.h"

namespace lockstep {
namespace {

constexpr size_t kMaxMembers = 96;  // bounds the registers of one group
constexpr int64_t kMuchSmaller = 64;
constexpr int64_t kLargeBytes = int64_t{8} << 20;  // more than what caches hold from one kernel to the next

class Fuser {
 public:
  explicit Fuser(const Program& p)
      : p_(p),
        maker_(p.types.size(), -1),
        users_(p.types.size()),
        group_(p.eqns.size()),
        next_collective_(p.eqns.size(), -1),
        previous_collective_(p.eqns.size(), -1) {
    int collective = -1;
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      for (ValueId id : p.eqns[i].out) maker_[id] = static_cast<int>(i);
      for (ValueId id : p.eqns[i].in) users_[id].push_back(static_cast<int>(i));
      group_[i] = static_cast<int>(i);
      seen_.push_back(0);
      members_.push_back({static_cast<int>(i)});
      head_.push_back(can_head(i) ? static_cast<int>(i) : -1);
      suits_head_.push_back(suits_head(p.eqns[i]));
      if (!is_ordered(p.eqns[i])) continue;
      if (collective >= 0) next_collective_[static_cast<size_t>(collective)] = static_cast<int>(i);
      previous_collective_[i] = collective;
      collective = static_cast<int>(i);
    }
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      std::vector<int>& after = after_.emplace_back();
      if (next_collective_[i] >= 0) after.push_back(next_collective_[i]);
      for (ValueId id : p.eqns[i].out) after.insert(after.end(), users_[id].begin(), users_[id].end());
    }
  }

  Program run() {
    for (size_t i = p_.eqns.size(); i-- > 0;)
      if (elementwise(i) || can_head(i)) join_consumers(static_cast<int>(i));
    return emit_groups();
  }

 private:
  const Eqn& eqn(int i) const { return p_.eqns[static_cast<size_t>(i)]; }
  bool elementwise(size_t i) const { return p_.eqns[i].op->loop != nullptr; }
  bool can_head(size_t i) const { return p_.eqns[i].op->with_epilogue != nullptr; }
  // Whether each consumer gets its own copy: views and constants.
  bool is_duplicated(int i) const {
    return i >= 0 && (eqn(i).op->view || (eqn(i).in.empty() && eqn(i).attrs.find("value")));
  }
  // Whether it may be part of an epilogue: no operand or result is complex or an 8-bit float.
  bool suits_head(const Eqn& e) const {
    const auto real = [&](ValueId id) { return !is_complex(p_.types[id].dtype) && !is_float8(p_.types[id].dtype); };
    return std::all_of(e.in.begin(), e.in.end(), real) && std::all_of(e.out.begin(), e.out.end(), real);
  }
  const Shape& shape(int i) const { return p_.types[eqn(i).out[0]].shape; }

  void join_consumers(int i) {
    if (eqn(i).out.size() != 1) return;
    bool all = true;
    std::vector<int> groups;
    for (int user : users_[eqn(i).out[0]]) {
      if (elementwise(static_cast<size_t>(i)) && is_reduction(user)) continue;
      if (!elementwise(static_cast<size_t>(user)) || shape(user) != shape(i))
        all = false;
      else if (std::find(groups.begin(), groups.end(), group_[user]) == groups.end())
        groups.push_back(group_[user]);
    }
    if (groups.empty() || (all && join(i, groups)) || p_.types[eqn(i).out[0]].bytes() < kLargeBytes) return;
    for (const int group : groups)  // in the order of their first use
      if (join(i, {group})) return;
  }

  // Merges the group of equation i into these groups. Returns false, and changes nothing, if that is not possible.
  bool join(int i, std::vector<int> groups) {
    groups.push_back(group_[i]);
    size_t members = 0;
    int heads = 0;
    bool suitable = true;
    for (int g : groups) {
      members += members_[g].size();
      heads += head_[g] >= 0;
      suitable = suitable && suits_head_[g];
    }
    if (members > kMaxMembers || heads > 1 || (heads == 1 && (!suitable || could_be_epilogue(i))) ||
        would_cycle(groups))
      return false;
    const int into = groups[0];
    for (size_t k = 1; k < groups.size(); ++k) {
      for (int m : members_[groups[k]]) group_[m] = into;
      members_[into].insert(members_[into].end(), members_[groups[k]].begin(), members_[groups[k]].end());
      members_[groups[k]].clear();
      head_[into] = std::max(head_[into], head_[groups[k]]);
      suits_head_[into] = suits_head_[into] && suits_head_[groups[k]];
      after_[into].insert(after_[into].end(), after_[groups[k]].begin(), after_[groups[k]].end());
      after_[groups[k]].clear();
    }
    std::vector<int>& after = after_[into];
    std::erase_if(after, [&](int user) { return group_[user] == into; });
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    return true;
  }

  // Whether the result is much smaller than the operand.
  bool is_reduction(int i) const {
    const auto bytes = [&](ValueId id) { return p_.types[id].bytes(); };
    return !elementwise(static_cast<size_t>(i)) && !eqn(i).op->view && !eqn(i).op->is_collective() &&
           eqn(i).out.size() == 1 && eqn(i).in.size() == 1 &&
           kMuchSmaller * bytes(eqn(i).out[0]) <= bytes(eqn(i).in[0]);
  }

  // Whether it could be an epilogue: it is the only user of a product of its shape.
  bool could_be_epilogue(int i) const {
    return std::any_of(eqn(i).in.begin(), eqn(i).in.end(), [&](ValueId id) {
      return maker_[id] >= 0 && can_head(static_cast<size_t>(maker_[id])) && users_[id].size() == 1 &&
             shape(maker_[id]) == shape(i);
    });
  }

  // Whether a path of groups leaves the union of these groups and comes back.
  bool would_cycle(const std::vector<int>& groups) {
    auto inside = [&](int g) { return std::find(groups.begin(), groups.end(), g) != groups.end(); };
    // The head reads its operands before any other member runs, so no member may produce them.
    for (int g : groups)
      if (head_[g] >= 0)
        for (ValueId id : eqn(head_[g]).in)
          if (maker_[id] >= 0 && inside(group_[maker_[id]])) return true;
    ++search_;
    std::vector<int> stack;
    auto push_users = [&](int g) {
      for (int user : after_[g])
        if (seen_[group_[user]] != search_) stack.push_back(group_[user]);
    };
    for (int g : groups) push_users(g);
    std::erase_if(stack, inside);
    while (!stack.empty()) {
      const int g = stack.back();
      stack.pop_back();
      if (inside(g)) return true;
      if (seen_[g] == search_) continue;
      seen_[g] = search_;
      push_users(g);
    }
    return false;
  }

  // The groups in an order in which values are defined before they are used; otherwise by their last member.
  std::vector<int> order() const {
    std::vector<int> state(p_.eqns.size(), 0), out, by_last;
    for (size_t g = 0; g < members_.size(); ++g)
      if (!members_[g].empty()) by_last.push_back(static_cast<int>(g));
    auto last = [&](int g) { return *std::max_element(members_[g].begin(), members_[g].end()); };
    std::sort(by_last.begin(), by_last.end(), [&](int a, int b) { return last(a) < last(b); });
    std::function<void(int)> visit = [&](int g) {
      if (state[g]) return;
      state[g] = 1;
      for (int m : members_[g]) {
        if (previous_collective_[m] >= 0) visit(group_[previous_collective_[m]]);
        for (ValueId id : eqn(m).in)
          if (maker_[id] >= 0 && group_[maker_[id]] != g) visit(group_[maker_[id]]);
      }
      out.push_back(g);
    };
    for (int g : by_last) visit(g);
    return out;
  }

  Program emit_groups() {
    Builder b;
    Values map(p_.types.size());
    for (ValueId id : p_.inputs) map[id] = b.input(p_.types[id]);
    for (int g : order()) {
      const bool plain = members_[g].size() == 1 && !(elementwise(members_[g][0]) && reads_view(members_[g][0]));
      if (plain)
        b.copy(p_, eqn(members_[g][0]), map);
      else
        emit_group(b, g, map);
    }
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(map[id]);
    return drop_dead(b.take(outputs));
  }

  bool reads_view(size_t i) const {
    for (ValueId id : p_.eqns[i].in)
      if (is_duplicated(maker_[id])) return true;
    return false;
  }

  void emit_group(Builder& b, int g, Values& map) {
    std::vector<int> members = members_[g];
    std::sort(members.begin(), members.end());
    const int head = head_[g];
    Builder body;
    Values inner(p_.types.size());  // values of the body, by ValueId of the program
    Values operands;
    if (head >= 0) {
      for (ValueId id : eqn(head).in) operands.push_back(map[id]);
      inner[eqn(head).out[0]] = body.input(p_.types[eqn(head).out[0]]);
    }
    auto external = [&](ValueId id) {
      if (inner[id]) return;
      operands.push_back(map[id]);
      inner[id] = body.input(p_.types[id]);
    };
    for (int m : members) {
      if (m == head) continue;
      for (ValueId id : eqn(m).in) {
        if (inner[id]) continue;
        const int from = maker_[id];
        if (is_duplicated(from)) {
          for (ValueId source : eqn(from).in) external(source);
          body.copy(p_, eqn(from), inner);
        } else {
          external(id);
        }
      }
      body.copy(p_, eqn(m), inner);
    }
    Values results;
    std::vector<ValueId> result_ids;
    for (int m : members)
      for (ValueId id : eqn(m).out)
        if (used_outside(id, g)) {
          results.push_back(inner[id]);
          result_ids.push_back(id);
        }
    Attrs attrs = head >= 0 ? eqn(head).attrs : Attrs{};
    attrs.set("body", std::make_shared<const Program>(body.take(results)));
    const Op& op = row_of_group(head >= 0 ? eqn(head).op : nullptr);
    const Values out = b.emit(op, operands, std::move(attrs));
    for (size_t k = 0; k < out.size(); ++k) map[result_ids[k]] = out[k];
  }

  bool used_outside(ValueId id, int g) const {
    for (int user : users_[id])
      if (group_[user] != g) return true;
    return std::find(p_.outputs.begin(), p_.outputs.end(), id) != p_.outputs.end();
  }

  const Program& p_;
  std::vector<int> maker_;                 // by ValueId: the equation that defines it, or -1
  std::vector<std::vector<int>> users_;    // by ValueId: the equations that use it
  std::vector<int> group_;                 // by equation
  std::vector<int> next_collective_;       // by equation: the next collective if it is one; or -1
  std::vector<int> previous_collective_;   // likewise the previous one
  std::vector<std::vector<int>> members_;  // by group
  std::vector<std::vector<int>>
      after_;              // by group: equations of other groups that use its results or are its next collective
  std::vector<int> seen_;  // by group: the last cycle search that visited it
  int search_ = 0;
  std::vector<int> head_;         // by group: the equation that has the others as its epilogue, or -1
  std::vector<bool> suits_head_;  // by group: whether all members may be part of an epilogue
};

}  // namespace

Program fuse(const Program& p) { return Fuser(p).run(); }

}  // namespace lockstep
