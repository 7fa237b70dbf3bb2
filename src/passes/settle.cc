#include "passes/settle.h"

#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "passes/costly.h"

namespace lockstep {
namespace {

class Settler {
 public:
  Settler(const Program& p, const SettleOptions& options)
      : p_(p),
        options_(options),
        maker_(p.types.size(), p.eqns.size()),
        from_(p.types.size(), From::elsewhere),
        settles_(p.eqns.size(), false),
        with_(p.eqns.size()) {
    std::iota(with_.begin(), with_.end(), size_t{0});
  }

  std::vector<size_t> operator()() {
    find_origins();
    find_last_uses();
    move_up();
    std::vector<size_t> order(p_.eqns.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return with_[a] < with_[b]; });
    return order;
  }

 private:
  enum class From : uint8_t { inputs, scatter, elsewhere };  // the last that holds of an operand holds of the result

  void find_origins() {
    for (ValueId id : p_.inputs) from_[id] = From::inputs;
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      for (ValueId id : eqn.out) maker_[id] = i;
      if (eqn.op == &lane_reduce_scatter_op && p_.types[eqn.out[0]].bytes() >= options_.least_bytes)
        from_[eqn.out[0]] = From::scatter;
      if (eqn.op->meets) continue;
      From from = From::inputs;
      for (ValueId id : eqn.in) from = std::max(from, from_[id]);
      const bool cheap = is_free(eqn) || eqn.op->loop;
      const bool small =
          std::all_of(eqn.out.begin(), eqn.out.end(), [&](ValueId id) { return p_.types[id].bytes() <= kSmallBytes; });
      settles_[i] = from == From::scatter && (cheap || small);
      if (from == From::inputs && !cheap) from = From::elsewhere;
      for (ValueId id : eqn.out) from_[id] = from;
    }
  }

  bool is_of_inputs(size_t i) const {
    const Eqn& eqn = p_.eqns[i];
    return !eqn.op->meets && !eqn.out.empty() && from_[eqn.out[0]] == From::inputs;
  }

  void find_last_uses() {
    last_.assign(p_.types.size(), 0);
    for (size_t i = p_.eqns.size(); i-- > 0;) {
      size_t use = settles_[i] ? 0 : i;
      if (is_of_inputs(i)) {
        use = 0;
        for (ValueId id : p_.eqns[i].out) use = std::max(use, last_[id]);
      }
      for (ValueId id : p_.eqns[i].in) last_[id] = std::max(last_[id], use);
    }
  }

  void move_up() {
    const Costly costly(p_);
    std::vector<size_t> free = last_;  // by value of inputs: when all of these may be written over
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      if (is_of_inputs(i))
        for (ValueId id : eqn.out)
          for (ValueId operand : eqn.in) free[id] = std::max(free[id], free[operand]);
      if (!settles_[i]) continue;
      size_t with = 0;
      for (ValueId id : eqn.in) {
        if (from_[id] == From::inputs)
          with = std::max(with, free[id]);
        else if (p_.eqns[maker_[id]].op->meets && options_.wait > 0)
          with = std::max(with, costly.after(maker_[id], options_.wait, i + 1) - 1);
        else
          with = std::max(with, with_[maker_[id]]);
      }
      with_[i] = std::min(with, i);
    }
    // What they read of inputs comes no earlier than they do.
    for (size_t i = p_.eqns.size(); i-- > 0;)
      for (ValueId id : p_.eqns[i].in)
        if (maker_[id] < p_.eqns.size() && is_of_inputs(maker_[id]))
          with_[maker_[id]] = std::min(with_[maker_[id]], with_[i]);
  }

  const Program& p_;
  const SettleOptions& options_;
  std::vector<size_t> maker_;  // by value: its equation, or how many there are
  std::vector<From> from_;     // by value
  std::vector<size_t> last_;   // by value: its last use by an equation that does not move, itself or what is made of it
  std::vector<bool> settles_;  // by equation
  std::vector<size_t> with_;   // by equation: the one it comes after
};

}  // namespace

std::vector<size_t> settled(const Program& lane0, const SettleOptions& options) { return Settler(lane0, options)(); }

}  // namespace lockstep
