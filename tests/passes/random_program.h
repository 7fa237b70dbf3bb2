// Random well-typed programs for property tests. For every value the generator tracks a bound of its elements and of
// the rounding error. So results are compared exactly where they must be equal, and within a derived bound where sums
// may be computed in another order. Used by one thread.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "ops/constrain.h"
#include "ops/control.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/reduce.h"
#include "passes/passes.h"
#include "passes/random_equation.h"

namespace lockstep {

class RandomPrograms {
 public:
  RandomPrograms(uint32_t seed, RandomOptions options) : random_(seed), options_(std::move(options)) {}
  RandomPrograms(uint32_t seed, bool smooth) : RandomPrograms(seed, RandomOptions{.smooth = smooth}) {}

  RandomProgram make() {
    const int inputs = pick(2, 5), steps = pick(5, 40);
    for (int i = 0; i < inputs; ++i) {
      Type t{pick_dtype(),
             pick_of(std::vector<Shape>{{}, {3}, {4}, {3, 4}, {4, 3}, {2, 3, 4}, {1, 4}, {3, 4}, {0, 4}})};
      if (!options_.axis.empty() && pick(0, 2)) t.varying = {options_.axis};
      known_.push_back({b_.input(t), 2.0, 0.0});
    }
    for (int tries = 0; tries < 20 * steps && static_cast<int>(known_.size()) < inputs + steps; ++tries) step();
    RandomProgram out;
    Values outputs;
    // Unused values, so that most of the program is live, and sometimes any other.
    const Program so_far = b_.finish({});
    std::vector<bool> used(so_far.types.size(), false);
    for (const Eqn& eqn : so_far.eqns)
      for (ValueId id : eqn.in) used[id] = true;
    for (const TrackedValue& v : known_) {
      if (used[v.value.id()] ? pick(0, 30) != 0 : pick(0, 3) == 0) continue;
      outputs.push_back(v.value);
      out.error.push_back(v.error);
    }
    outputs.push_back(known_.back().value);
    out.error.push_back(known_.back().error);
    for (const TrackedValue& v : aside_) {
      outputs.push_back(v.value);
      out.error.push_back(v.error);
    }
    out.program = b_.take(outputs);
    out.examples = inputs_of(out.program);
    out.inputs = out.examples[0];
    for (size_t i = 0; i < out.program.inputs.size(); ++i) {
      const ValueId id = out.program.inputs[i];
      out.wanted.push_back(is_inexact(out.program.types[id].dtype) && !fixed_.contains(id));
      const auto source = source_.find(id);
      out.source.push_back(source == source_.end() ? i : position_in(out.program.inputs, source->second));
    }
    return out;
  }

 private:
  struct TrackedValue {
    Value value;
    double bound;  // of the absolute value of elements; floats only
    double error;  // absolute; 0: exact
  };

  static size_t position_in(const std::vector<ValueId>& ids, ValueId id) {
    return static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
  }
  int pick(int lo, int hi) { return lo + static_cast<int>(random_() % static_cast<uint32_t>(hi - lo + 1)); }
  template <class T>
  const T& pick_of(const std::vector<T>& list) {
    return list[random_() % list.size()];
  }
  DType pick_dtype() {
    if (options_.smooth) return pick(0, 4) ? f64 : i32;
    return pick_of(std::vector<DType>{f32, f32, f32, f64, i32, boolean});
  }
  // Prefers recent values, which makes long chains.
  const TrackedValue& any() {
    const size_t last = pick(0, 2) ? std::min<size_t>(known_.size(), 5) : known_.size();
    return known_[known_.size() - 1 - random_() % last];
  }

  // A value that `fits`, or null.
  template <class F>
  const TrackedValue* find(F&& fits) {
    const size_t n = known_.size(), first = random_() % n;
    for (size_t i = 0; i < n; ++i) {
      const TrackedValue& v = known_[(first + i) % n];
      if (fits(v)) return &v;
    }
    return nullptr;
  }
  const TrackedValue* like(const Type& t) {
    return find([&](const TrackedValue& v) { return v.value.type() == t; });
  }

  static double epsilon(DType t) { return t == f32 ? 1.2e-7 : 2.3e-16; }

  // Adds a result. Bounds values that may grow, and leaves values dead that are too inexact to compare.
  void keep(Value v, double bound, double error) {
    if (count(v.shape()) > 400 || v.rank() > 4) return;
    if (!is_floating(v.dtype())) return known_.push_back({v, 0, 0});
    if (error > 0) error += epsilon(v.dtype()) * bound;
    if (bound > 20) {
      v = tanh(v);
      bound = 1;
    }
    if (error < 1e-3) known_.push_back({v, bound, error});
  }
  void keep_like(Value v, const TrackedValue& x) { keep(v, x.bound, x.error); }

  // Whether a discontinuous, or a non-differentiable, op may be applied to x.
  bool may_jump(const TrackedValue& x) const { return x.error == 0; }
  bool may_bend(const TrackedValue& x) const { return !options_.smooth || x.error == 0; }

  HostArray make_array(const Type& t) {
    HostArray x({t.dtype, t.shape});
    for (int64_t i = 0; i < x.size(); ++i) {
      if (is_floating(t.dtype))
        x.set(i, std::uniform_real_distribution<double>(-2, 2)(random_));
      else
        x.set(i, t.dtype == boolean ? pick(0, 1) : pick(-3, 5));
    }
    return x;
  }

  void step() {
    if (options_.more && pick(1, options_.more_every) == 1) return equation(options_.more(random_));
    const TrackedValue x = any();
    switch (pick(0, 13)) {
      case 0:
      case 1:
        return unary(x);
      case 2:
      case 3:
      case 4:
        return binary(x);
      case 5:
        return choose(x);
      case 6:
        return constant(x);
      case 7:
      case 8:
        return rearrange(x);
      case 9:
        return reduce(x);
      case 10:
      case 11:
        return contract(x);
      case 12:
        return index(x);
      default:
        return nest(x);
    }
  }

  // The inputs of a program for each example. Those that do not vary over the devices are the same on all of them.
  std::vector<HostArrays> inputs_of(const Program& p) {
    std::vector<HostArrays> out(options_.examples);
    for (ValueId id : p.inputs) {
      HostArrays& values = values_[id];
      const bool same = !options_.axis.empty() && p.types[id].varying.empty();
      while (values.size() < out.size())
        values.push_back(same && !values.empty() ? values[0] : make_array(p.types[id]));
      for (size_t e = 0; e < out.size(); ++e) out[e].push_back(values[e]);
    }
    return out;
  }

  // A new input, or a known value where that may be one: then its values replace the given ones.
  Value operand(RandomEquation& made, size_t i, const Values& earlier) {
    const Type& t = made.types[i];
    if (!made.free.empty() && made.free[i] && pick(0, 1)) {
      if (const TrackedValue* x =
              find([&](const TrackedValue& v) { return v.error == 0 && v.bound <= 2 && v.value.type() == t; })) {
        const Program p = b_.finish({{x->value}});
        const std::vector<HostArrays> values = options_.evaluate(drop_dead(p), inputs_of(p));
        for (size_t e = 0; e < values.size(); ++e) made.in[e][i] = values[e][0];
        return x->value;
      }
    }
    const Value v = b_.input(t);
    for (const HostArrays& in : made.in) values_[v.id()].push_back(in[i]);
    if (!made.wanted.empty() && !made.wanted[i]) fixed_.insert(v.id());
    if (!made.source.empty() && made.source[i] != i) source_[v.id()] = earlier[made.source[i]].id();
    return v;
  }

  // Its operands may be annotated. Elements that are only moved, or computed elementwise, are equal on any lane.
  void equation(RandomEquation made) {
    Values plain, in;
    for (size_t i = 0; i < made.types.size(); ++i) {
      plain.push_back(operand(made, i, plain));
      in.push_back(pick(0, 1) ? constrained(plain[i]) : plain[i]);
    }
    Builder alone;
    Values operands;
    for (const Type& t : made.types) operands.push_back(alone.input(t));
    const Program one = alone.take(alone.emit(*made.op, operands, made.attrs));
    const std::vector<HostArrays> results = options_.evaluate(one, made.in);
    const Values out = b_.emit(*made.op, in, made.attrs);
    for (size_t k = 0; k < out.size(); ++k) {
      double bound = 0;
      bool finite = true;
      for (const HostArrays& each : results)
        for (int64_t i = 0; i < each[k].size(); ++i) {
          const double size = std::abs(each[k].get(i));
          if (std::isfinite(size)) bound = std::max(bound, size);
          finite &= std::isfinite(size);
        }
      const DType t = out[k].dtype();
      const double unit = t == bf16 ? 0x1p-7 : t == f16 ? 0x1p-10 : t == f32 ? 1e-5 : 1e-12;
      const bool tied = options_.smooth && made.ties;  // not to be sorted or compared
      const bool exact = !is_floating(t) || (!tied && (made.op->loop || made.op->view));
      const TrackedValue v{out[k], bound, exact ? 0 : 4 * unit * std::max(bound, 1.0)};
      const bool usual = t == f32 || t == f64 || t == i32 || t == boolean;
      if (usual && finite && count(out[k].shape()) > 0)
        keep(v.value, v.bound, v.error);
      else
        aside_.push_back(v);
    }
  }

  Value constrained(Value v) {
    Annotation said{"x=12,y=12", {}, "random", ""};
    said.axes.resize(v.shape().size());
    for (const char* axis : {"x", "y"}) {
      if (v.rank() == 0) break;
      auto& axes = said.axes[random_() % said.axes.size()];
      if (!axes) axes.emplace();
      if (pick(0, 2)) axes->emplace_back(axis);
    }
    return constrain(v, said);
  }

  void unary(const TrackedValue& x) {
    const Value v = x.value;
    if (v.dtype() == boolean) return keep(bit_not(v), 0, 0);
    if (v.dtype() == i32) {
      const int which = pick(0, 3);
      if (which == 3) return keep(cast(v, options_.smooth ? f64 : f32), 2.2e9, 0);
      return keep(which == 0 ? neg(v) : which == 1 ? abs(v) : sign(v), 0, 0);
    }
    switch (pick(0, 9)) {
      case 0:
        return keep(tanh(v), 1, x.error);
      case 1:
        return keep(sin(v), 1, x.error);
      case 2:
        return keep(logistic(v), 1, x.error);
      case 3:
        return keep(erf(v), 1, 1.2 * x.error);
      case 4:
        return keep_like(neg(v), x);
      case 5:
        if (may_bend(x)) keep_like(abs(v), x);
        return;
      case 6:
        if (x.bound <= 2) keep(exp(v), 8, 8 * x.error);
        return;
      case 7:
        return keep(sqrt(v * v + 1.0), x.bound + 1, x.error);
      case 8:
        if (may_jump(x)) pick(0, 1) ? keep(floor(v), x.bound + 1, 0) : keep(cast(v, i32), 0, 0);
        return;
      default:
        if (options_.smooth) return;
        return keep(cast(v, v.dtype() == f32 ? f64 : f32), x.bound, x.error > 0 ? x.error + 2e-7 * x.bound : 0);
    }
  }

  void binary(const TrackedValue& x) {
    const TrackedValue y = *like(x.value.type());
    const Value a = x.value, c = y.value;
    if (a.dtype() == boolean) return keep(pick(0, 1) ? bit_and(a, c) : bit_xor(a, c), 0, 0);
    switch (pick(0, 6)) {
      case 0:
        return keep(add(a, c), x.bound + y.bound, x.error + y.error);
      case 1:
        return keep(sub(a, c), x.bound + y.bound, x.error + y.error);
      case 2:
        return keep(mul(a, c), x.bound * y.bound, x.error * y.bound + y.error * x.bound + x.error * y.error);
      case 3:
        if (!is_floating(a.dtype())) return keep(pick(0, 1) ? div(a, c) : rem(a, c), 0, 0);
        return keep(div(a, c * c + 1.0), x.bound, x.error + 2 * y.error * x.bound);
      case 4:
      case 5:
        if (may_bend(x) && may_bend(y))
          keep(pick(0, 1) ? maximum(a, c) : minimum(a, c), std::max(x.bound, y.bound), std::max(x.error, y.error));
        return;
      default:
        if (may_jump(x) && may_jump(y)) keep(pick(0, 1) ? lt(a, c) : eq(a, c), 0, 0);
    }
  }

  void choose(const TrackedValue& x) {
    const TrackedValue y = *like(x.value.type());
    if (const TrackedValue* p = like({boolean, x.value.shape(), x.value.type().varying}))
      keep(select(p->value, x.value, y.value), std::max(x.bound, y.bound), std::max(x.error, y.error));
  }

  void constant(const TrackedValue& x) {
    const Type t{x.value.dtype(), x.value.shape()};
    if (t.dtype == i32 && t.rank() > 0 && pick(0, 1))
      return keep(iota(b_, t, pick(0, static_cast<int>(t.rank()) - 1)), 0, 0);
    if (!is_floating(t.dtype)) return keep(full(b_, t, static_cast<int64_t>(pick(0, 1))), 0, 0);
    keep(full(b_, t, pick_of(std::vector<double>{0.0, -0.0, 1.0, 0.5, -1.25})), 2, 0);
  }

  void rearrange(const TrackedValue& x) {
    const Value v = x.value;
    const Shape& s = v.shape();
    const auto rank = static_cast<int>(v.rank());
    Dims order = counting(0, rank), zeros(s.size(), 0), ones(s.size(), 1);
    switch (pick(0, 7)) {
      case 0: {
        const int at = pick(0, rank);
        Shape to = s;
        to.insert(to.begin() + at, pick(1, 4));
        order = counting(0, rank + 1);
        order.erase(order.begin() + at);
        return keep_like(broadcast(v, to, order), x);
      }
      case 1:
        return keep_like(reshape(v, pick(0, 1) ? Shape{count(s)} : prepend(1, s)), x);
      case 2:
        std::shuffle(order.begin(), order.end(), random_);
        return keep_like(transpose(v, order), x);
      case 3: {
        Dims starts, limits;
        for (int64_t n : s) {
          starts.push_back(pick(0, static_cast<int>(n) / 2));
          limits.push_back(pick(static_cast<int>(starts.back()), static_cast<int>(n)));
        }
        return keep_like(slice(v, starts, limits, pick(0, 2) ? ones : Dims(s.size(), 2)), x);
      }
      case 4:
        return keep_like(reverse(v, rank ? Dims{pick(0, rank - 1)} : Dims{}), x);
      case 5: {
        Dims hi = zeros;
        for (int64_t& n : hi) n = pick(0, 1);
        return keep_like(pad(v, full(b_, {v.dtype(), {}}, 1), zeros, hi, pick(0, 3) ? zeros : ones), x);
      }
      case 6: {
        if (rank == 0) return;
        const TrackedValue y = *like(v.type());
        return keep(concatenate({v, y.value}, pick(0, rank - 1)), std::max(x.bound, y.bound),
                    std::max(x.error, y.error));
      }
      default:
        return keep_like(pick(0, 1) ? stop_gradient(v) : constrained(v), x);
    }
  }

  void reduce(const TrackedValue& x) {
    const Value v = x.value;
    if (v.rank() == 0) return;
    const auto axis = pick(0, static_cast<int>(v.rank()) - 1);
    const auto n = static_cast<double>(v.shape()[static_cast<size_t>(axis)]), many = n * n * epsilon(v.dtype());
    if (v.dtype() == boolean) return keep(pick(0, 1) ? reduce_and(v, {axis}) : reduce_or(v, {axis}), 0, 0);
    switch (pick(0, 4)) {
      case 0:
      case 1:
        return keep(reduce_sum(v, {axis}), n * x.bound, n * x.error + many * x.bound);
      case 2:
        return keep(cumsum(v, axis, pick(0, 1) == 1), n * x.bound, n * x.error + many * x.bound);
      case 3:
        if (may_bend(x) && n > 0) keep_like(pick(0, 1) ? reduce_max(v, {axis}) : reduce_min(v, {axis}), x);
        return;
      default:
        if (may_jump(x) && n > 0) keep(pick(0, 1) ? argmax(v, axis) : argmin(v, axis), 0, 0);
    }
  }

  // A contraction over the last dimension of x and some dimension of another value: a matrix, vector or outer product.
  void contract(const TrackedValue& x) {
    const Value v = x.value;
    if (v.dtype() == boolean || v.rank() == 0) return;
    const int64_t n = v.shape().back();
    const std::string own = std::string("abcd").substr(0, static_cast<size_t>(v.rank()));
    const TrackedValue* y = find([&](const TrackedValue& k) {
      return k.value.dtype() == v.dtype() && k.value.rank() >= 1 && k.value.rank() <= 2 && k.value.shape()[0] == n;
    });
    if (!y) return;
    const TrackedValue other = *y;
    const std::string kept = own.substr(0, own.size() - 1),
                      term = own.substr(own.size() - 1) + (other.value.rank() == 2 ? "z" : "");
    std::string result = kept + term.substr(1);
    if (pick(0, 2) == 0) std::reverse(result.begin(), result.end());
    const auto m = static_cast<double>(n);
    keep(einsum(own + "," + term + "->" + result, v, other.value), m * x.bound * other.bound,
         m * (x.error * other.bound + other.error * x.bound + x.error * other.error) +
             m * m * epsilon(v.dtype()) * x.bound * other.bound);
  }

  void index(const TrackedValue& x) {
    const Value v = x.value;
    if (v.rank() == 0 || count(v.shape()) == 0) return;
    const TrackedValue* i = find([](const TrackedValue& k) { return k.value.dtype() == i32 && k.value.rank() <= 1; });
    if (!i) return;
    const Value at = i->value;
    const auto axis = pick(0, static_cast<int>(v.rank()) - 1);
    switch (pick(0, 3)) {
      case 0: {
        const Value taken = gather(v, at, axis);
        return keep_like(pick(0, 1) ? taken : scatter(v, at, neg_or_same(taken), "set", axis), x);
      }
      case 1: {
        if (v.dtype() == boolean) return;
        const TrackedValue taken{gather(v, at, axis), x.bound, x.error};
        const auto n = static_cast<double>(count(at.shape())) + 1;
        return keep(scatter_add(v, at, taken.value, axis), n * x.bound,
                    n * x.error + n * n * epsilon(v.dtype()) * x.bound);
      }
      case 2: {
        if (at.rank() != 0) return;
        Dims sizes = v.shape();
        for (int64_t& n : sizes) n = (n + 1) / 2;
        const Values starts(sizes.size(), at);
        const Value block = dynamic_slice(v, starts, sizes);
        return pick(0, 1) ? keep_like(block, x) : keep_like(update_slice(v, neg_or_same(block), starts), x);
      }
      default:
        if (!may_jump(x)) return;
        return keep_like(sort({v}, axis, pick(0, 1) == 1)[0], x);
    }
  }
  static Value neg_or_same(Value v) { return v.dtype() == boolean ? v : neg(v); }

  // Nested programs.
  void nest(const TrackedValue& x) {
    const Value v = x.value;
    if (!is_floating(v.dtype())) return;
    auto body_of = [](const std::vector<Type>& types, auto&& f) {
      return std::make_shared<const Program>(trace(types, f));
    };
    if (const TrackedValue* p = like({boolean, {}, v.type().varying}); p && pick(0, 1)) {
      const auto yes = body_of({v.type()}, [](const Values& in) { return Values{tanh(in[0])}; });
      const auto no = body_of({v.type()}, [](const Values& in) { return Values{in[0]}; });
      return keep_like(cond(p->value, yes, no, {v})[0], x);
    }
    if (v.rank() == 0 || pick(0, 1)) {
      const auto body = body_of({v.type()}, [](const Values& in) { return Values{sin(in[0]) * in[0]}; });
      return keep(remat(b_, body, {v})[0], x.bound, x.error * (1 + x.bound));
    }
    const Type row{v.dtype(), Shape(v.shape().begin() + 1, v.shape().end()), v.type().varying};
    const auto body = body_of({row, row}, [](const Values& in) {
      const Value next = tanh(in[0] + in[1]);
      return Values{next, next * in[0]};
    });
    const int64_t n = v.shape()[0];
    const Values out = scan(b_, body, {full(b_, row, 0.0)}, {v}, {}, n, pick(0, 1) == 1);
    keep(out[0], 1, static_cast<double>(n) * x.error);
    keep(out[1], 1, 2 * static_cast<double>(n) * x.error);
  }

  std::mt19937 random_;
  RandomOptions options_;
  Builder b_;
  std::vector<TrackedValue> known_;
  std::vector<TrackedValue> aside_;       // outputs that no step uses
  std::map<ValueId, HostArrays> values_;  // of inputs, in each example
  std::set<ValueId> fixed_;               // inputs to which no gradient flows
  std::map<ValueId, ValueId> source_;     // as in RandomProgram
};

}  // namespace lockstep
