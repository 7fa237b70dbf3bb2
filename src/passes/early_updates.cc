#include "passes/early_updates.h"

#include <algorithm>
#include <numeric>

#include "ops/lane_ops.h"
#include "passes/eqn_cost.h"
#include "program/effects.h"

namespace lockstep {
namespace {

class UpdateMover {
 public:
  UpdateMover(const Program& p, const EarlyUpdateOptions& options)
      : p_(p),
        options_(options),
        maker_(p.types.size(), p.eqns.size()),
        origin_(p.types.size(), Origin::other),
        moves_(p.eqns.size(), false),
        after_(p.eqns.size()) {
    std::iota(after_.begin(), after_.end(), size_t{0});
  }

  std::vector<size_t> operator()() {
    find_origins();
    find_last_uses();
    move_up();
    std::vector<size_t> order(p_.eqns.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return after_[a] < after_[b]; });
    return order;
  }

 private:
  // What a value depends on: only inputs; scattered pieces and inputs; anything else. The maximum over the operands.
  enum class Origin : uint8_t { inputs, scatter, other };

  void find_origins() {
    for (ValueId id : p_.inputs) origin_[id] = Origin::inputs;
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      for (ValueId id : eqn.out) maker_[id] = i;
      if (is_reduce_scatter(eqn) && p_.types[eqn.out[0]].bytes() >= options_.min_bytes)
        origin_[eqn.out[0]] = Origin::scatter;
      if (is_ordered(eqn)) continue;
      Origin origin = Origin::inputs;
      for (ValueId id : eqn.in) origin = std::max(origin, origin_[id]);
      const bool cheap = is_free(eqn) || eqn.op->loop;
      const bool small =
          std::all_of(eqn.out.begin(), eqn.out.end(), [&](ValueId id) { return p_.types[id].bytes() <= kSmallBytes; });
      moves_[i] = origin == Origin::scatter && (cheap || small);
      if (origin == Origin::inputs && !cheap) origin = Origin::other;
      for (ValueId id : eqn.out) origin_[id] = origin;
    }
  }

  bool depends_on_inputs_only(size_t i) const {
    const Eqn& eqn = p_.eqns[i];
    return !is_ordered(eqn) && !eqn.out.empty() && origin_[eqn.out[0]] == Origin::inputs;
  }

  void find_last_uses() {
    last_.assign(p_.types.size(), 0);
    for (size_t i = p_.eqns.size(); i-- > 0;) {
      size_t use = moves_[i] ? 0 : i;
      if (depends_on_inputs_only(i)) {
        use = 0;
        for (ValueId id : p_.eqns[i].out) use = std::max(use, last_[id]);
      }
      for (ValueId id : p_.eqns[i].in) last_[id] = std::max(last_[id], use);
    }
  }

  void move_up() {
    const ExpensiveEqns expensive(p_);
    std::vector<size_t> free_at = last_;  // by value: when it, and the inputs it was computed from, may be overwritten
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      if (depends_on_inputs_only(i))
        for (ValueId id : eqn.out)
          for (ValueId operand : eqn.in) free_at[id] = std::max(free_at[id], free_at[operand]);
      if (!moves_[i]) continue;
      size_t after = 0;
      for (ValueId id : eqn.in) {
        if (origin_[id] == Origin::inputs)
          after = std::max(after, free_at[id]);
        else if (p_.eqns[maker_[id]].op->is_collective() && options_.scatter_wait > 0)
          after = std::max(after, expensive.n_after(maker_[id], options_.scatter_wait, i + 1) - 1);
        else
          after = std::max(after, after_[maker_[id]]);
      }
      after_[i] = std::min(after, i);
    }
    // Values that they compute from inputs must come no later than they do.
    for (size_t i = p_.eqns.size(); i-- > 0;)
      for (ValueId id : p_.eqns[i].in)
        if (maker_[id] < p_.eqns.size() && depends_on_inputs_only(maker_[id]))
          after_[maker_[id]] = std::min(after_[maker_[id]], after_[i]);
  }

  const Program& p_;
  const EarlyUpdateOptions& options_;
  std::vector<size_t> maker_;   // by value: its equation; eqns.size() for inputs
  std::vector<Origin> origin_;  // by value
  std::vector<size_t> last_;   // by value: last use, also of values computed from it, by an equation that does not move
  std::vector<bool> moves_;    // by equation
  std::vector<size_t> after_;  // by equation: it is placed after this one; its own index if it does not move
};

}  // namespace

std::vector<size_t> order_updates_early(const Program& lane0, const EarlyUpdateOptions& options) {
  return UpdateMover(lane0, options)();
}

}  // namespace lockstep
