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

#include "ops/fused.h"
#include "passes/group_graph.h"
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
        is_output_(p.types.size(), false),
        previous_collective_(p.eqns.size(), -1),
        groups_(dependencies()) {
    for (const ValueId id : p.outputs) is_output_[id] = true;
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      head_.push_back(can_head(i) ? static_cast<int>(i) : -1);
      suits_head_.push_back(suits_head(p.eqns[i]));
    }
  }

  Program run() {
    for (size_t i = p_.eqns.size(); i-- > 0;)
      if (elementwise(i) || can_head(i)) join_consumers(static_cast<int>(i));
    return emit_groups();
  }

 private:
  // Fills in what uses what. Returns, by equation, those that must come after it.
  std::vector<std::vector<int>> dependencies() {
    std::vector<std::vector<int>> after(p_.eqns.size());
    int collective = -1;
    for (size_t k = 0; k < p_.eqns.size(); ++k) {
      const int i = static_cast<int>(k);
      for (ValueId id : eqn(i).out) maker_[id] = i;
      for (ValueId id : eqn(i).in) {
        users_[id].push_back(i);
        if (maker_[id] >= 0) after[static_cast<size_t>(maker_[id])].push_back(i);
      }
      if (!is_ordered(eqn(i))) continue;
      if (collective >= 0) after[static_cast<size_t>(collective)].push_back(i);
      previous_collective_[k] = collective;
      collective = i;
    }
    return after;
  }

  int group_of(int i) const { return groups_.group_of(static_cast<size_t>(i)); }
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
      else if (groups.size() <= kMaxMembers && std::find(groups.begin(), groups.end(), group_of(user)) == groups.end())
        groups.push_back(group_of(user));
    }
    if (groups.empty() || (all && join(i, groups)) || p_.types[eqn(i).out[0]].bytes() < kLargeBytes) return;
    for (const int group : groups)  // in the order of their first use
      if (join(i, {group})) return;
  }

  // Merges the group of equation i into these groups. Returns false, and changes nothing, if that is not possible.
  bool join(int i, std::vector<int> groups) {
    groups.push_back(group_of(i));
    size_t members = 0;
    int heads = 0, head = -1;
    bool suitable = true;
    for (int g : groups) {
      members += groups_.members(g).size();
      heads += head_[g] >= 0;
      head = std::max(head, head_[g]);
      suitable = suitable && suits_head_[g];
    }
    if (members > kMaxMembers || heads > 1 || (heads == 1 && (!suitable || could_be_epilogue(i))) ||
        (heads == 1 && head_reads(head, groups)) || !groups_.merge(groups))
      return false;
    head_[groups[0]] = head;
    suits_head_[groups[0]] = suitable;
    return true;
  }

  // Whether a member of these groups makes an operand of the head, which reads its operands before any member runs.
  bool head_reads(int head, const std::vector<int>& groups) const {
    return std::any_of(eqn(head).in.begin(), eqn(head).in.end(), [&](ValueId id) {
      return maker_[id] >= 0 && std::find(groups.begin(), groups.end(), group_of(maker_[id])) != groups.end();
    });
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

  // The groups in an order in which values are defined before they are used; otherwise by their last member.
  std::vector<int> order() const {
    std::vector<int> last(groups_.size(), -1), by_last, out, pending;
    for (size_t i = 0; i < groups_.size(); ++i) last[static_cast<size_t>(groups_.group_of(i))] = static_cast<int>(i);
    for (size_t g = 0; g < groups_.size(); ++g)
      if (last[g] >= 0) by_last.push_back(static_cast<int>(g));
    std::sort(by_last.begin(), by_last.end(), [&](int a, int b) { return last[a] < last[b]; });
    enum class Visit : uint8_t { none, open, done };
    std::vector<Visit> visited(groups_.size(), Visit::none);
    for (const int first : by_last) {
      pending.push_back(first);
      while (!pending.empty()) {
        const int g = pending.back();
        Visit& visit = visited[g];
        if (visit == Visit::none) {
          visit = Visit::open;
          push_earlier(g, pending);
          continue;
        }
        pending.pop_back();
        if (visit == Visit::open) out.push_back(g);
        visit = Visit::done;
      }
    }
    return out;
  }

  // Adds the groups that must come before a group, the first of them last.
  void push_earlier(int g, std::vector<int>& pending) const {
    const size_t begin = pending.size();
    for (int m : groups_.members(g)) {
      if (previous_collective_[m] >= 0) pending.push_back(group_of(previous_collective_[m]));
      for (ValueId id : eqn(m).in)
        if (maker_[id] >= 0) pending.push_back(group_of(maker_[id]));
    }
    pending.erase(std::remove(pending.begin() + static_cast<std::ptrdiff_t>(begin), pending.end(), g), pending.end());
    std::reverse(pending.begin() + static_cast<std::ptrdiff_t>(begin), pending.end());
  }

  Program emit_groups() {
    Builder b;
    Values map(p_.types.size());
    for (ValueId id : p_.inputs) map[id] = b.input(p_.types[id]);
    Values inner(p_.types.size());
    for (int g : order()) {
      const std::vector<int>& members = groups_.members(g);
      const bool plain = members.size() == 1 && !(elementwise(members[0]) && reads_view(members[0]));
      if (plain)
        b.copy(p_, eqn(members[0]), map);
      else
        emit_group(b, g, map, inner);
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

  // `inner`: the values of the body, by ValueId of the program; absent before and after.
  void emit_group(Builder& b, int g, Values& map, Values& inner) {
    std::vector<int> members = groups_.members(g);
    std::sort(members.begin(), members.end());
    const int head = head_[g];
    Builder body;
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
    for (int m : members) clear_values_of(m, inner);
  }

  // Removes what emit_group() defines for one member.
  void clear_values_of(int m, Values& inner) const {
    for (ValueId id : eqn(m).out) inner[id] = Value();
    for (ValueId id : eqn(m).in) {
      inner[id] = Value();
      if (is_duplicated(maker_[id]))
        for (ValueId source : eqn(maker_[id]).in) inner[source] = Value();
    }
  }

  bool used_outside(ValueId id, int g) const {
    return is_output_[id] ||
           std::any_of(users_[id].begin(), users_[id].end(), [&](int user) { return group_of(user) != g; });
  }

  const Program& p_;
  std::vector<int> maker_;                // by ValueId: the equation that defines it, or -1
  std::vector<std::vector<int>> users_;   // by ValueId: the equations that use it
  std::vector<bool> is_output_;           // by ValueId
  std::vector<int> previous_collective_;  // by equation: the collective before it if it is one; or -1
  GroupGraph groups_;
  std::vector<int> head_;         // by group: the equation that has the others as its epilogue, or -1
  std::vector<bool> suits_head_;  // by group: whether all members may be part of an epilogue
};

}  // namespace

Program fuse(const Program& p) { return Fuser(p).run(); }

}  // namespace lockstep
