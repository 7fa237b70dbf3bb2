#include "passes/free_early.h"

#include <algorithm>
#include <numeric>

#include "program/effects.h"
#include "program/op.h"

namespace lockstep {
namespace {

constexpr int64_t kSmallResults = 4 << 10;

class Mover {
 public:
  explicit Mover(const Program& p)
      : p_(p), last_use_(p.types.size(), -1), available_(p.types.size(), -1), used_(p.types.size(), -1) {
    for (size_t i = 0; i < p.eqns.size(); ++i)
      for (const ValueId id : p.eqns[i].in) last_use_[id] = static_cast<int64_t>(i);
    for (const ValueId id : p.inputs) last_use_[id] = kNever;
    is_result_.resize(p.types.size(), false);
    for (const ValueId id : p.outputs) {
      last_use_[id] = kNever;
      is_result_[id] = true;
    }
  }

  Program operator()() {
    std::vector<int64_t> after;  // by equation: it is placed after this one, or where it is
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      after.push_back(place(i));
      for (const ValueId id : p_.eqns[i].out) available_[id] = after[i];
      for (const ValueId id : p_.eqns[i].in) used_[id] = std::max(used_[id], after[i]);
    }
    std::vector<size_t> order(p_.eqns.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return after[a] < after[b]; });
    Program out = p_;
    for (size_t i = 0; i < order.size(); ++i) out.eqns[i] = p_.eqns[order[i]];
    return out;
  }

 private:
  static constexpr int64_t kNever = INT64_MAX;

  int64_t place(size_t i) const {
    const Eqn& eqn = p_.eqns[i];
    const auto own = static_cast<int64_t>(i);
    int64_t made = 0, freed = 0, at = -1;
    for (const ValueId id : eqn.out)
      if (!is_result_[id]) made += p_.types[id].bytes();
    for (size_t k = 0; k < eqn.in.size(); ++k) {
      const ValueId id = eqn.in[k];
      at = std::max(at, available_[id]);
      if (overwrites(eqn, id)) at = std::max(at, used_[id]);
      const bool again = std::find(eqn.in.begin(), eqn.in.begin() + static_cast<std::ptrdiff_t>(k), id) !=
                         eqn.in.begin() + static_cast<std::ptrdiff_t>(k);
      if (last_use_[id] == own && !again) freed += p_.types[id].bytes();
    }
    return !is_ordered(eqn) && made <= std::max(freed, kSmallResults) ? std::min(at, own) : own;
  }

  // Whether a result of the program may be written over this input.
  bool overwrites(const Eqn& eqn, ValueId input) const {
    return available_[input] < 0 && std::any_of(eqn.out.begin(), eqn.out.end(), [&](ValueId id) {
             return is_result_[id] && p_.types[id] == p_.types[input];
           });
  }

  const Program& p_;
  std::vector<int64_t> last_use_;   // by value: the equation; kNever for inputs and results of the program
  std::vector<int64_t> available_;  // by value: after which equation; -1: from the beginning
  std::vector<int64_t> used_;       // by value: the place of its last use so far
  std::vector<bool> is_result_;     // by value
};

}  // namespace

Program free_early(const Program& p) { return Mover(p)(); }

}  // namespace lockstep
