// Random programs similar to training steps: layers, losses per row, gradients, weights updated in place. With small
// integers as inputs everything that they compute is exact. LOCKSTEP_RANDOM_PROGRAMS is the number of programs,
// LOCKSTEP_RANDOM_SEED the first seed. One thread.
#pragma once

#include <cstdlib>
#include <random>
#include <vector>

#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {

// The seeds of the programs to test.
struct RandomSeeds {
  uint32_t first, end;

  // `count`: unless LOCKSTEP_RANDOM_PROGRAMS is set.
  static RandomSeeds of(int64_t count) {
    const auto number_in = [](const char* variable, int64_t otherwise) {
      const char* const text = std::getenv(variable);
      return text ? std::atoll(text) : otherwise;
    };
    const int64_t first = number_in("LOCKSTEP_RANDOM_SEED", 1);
    return {static_cast<uint32_t>(first), static_cast<uint32_t>(first + number_in("LOCKSTEP_RANDOM_PROGRAMS", count))};
  }
};

class RandomTrainingProgram {
 public:
  explicit RandomTrainingProgram(uint32_t seed) : random_(seed) {
    wide_ = below(3) == 0;
    rows_ = wide_ ? 128 : one_of<int64_t>({8, 32, 64, 67, 67, 67, 100, 128, 128});
    type_ = one_of<DType>({DType::f32, DType::f32, DType::bf16, DType::f16});
    begin();
    const int64_t layers = below(3) + (wide_ ? 2 : 1), more = below(8);
    for (int64_t i = 0; i < layers; ++i) add_layer();
    if (below(4) > 0) add_loss();
    for (int64_t i = 0; i < more; ++i) add_something();
    if (wide_ || below(4) > 0) add_updates();
    // Values without uses, and some of the others.
    for (size_t i = 0; i < known_.size(); ++i)
      if (i + 1 == known_.size() || below(4) == 0) outputs_.push_back(known_[i]);
  }

  Program take() { return b_.take(outputs_); }
  const std::vector<bool>& donated() const { return donated_; }

  static HostArrays inputs(const Program& program, uint32_t seed) {
    HostArrays in;
    for (const Type& type : program.input_types()) {
      in.push_back(small_integers(type, seed * 100 + static_cast<uint32_t>(in.size())));
      if (type.dtype == DType::i32)  // row indices of a table, also negative ones
        for (int64_t i = 0; i < in.back().size(); ++i) in.back().set(i, static_cast<double>((i * 37 + seed) % 70 - 10));
    }
    return in;
  }

 private:
  struct Weight {
    Value w, x;
  };
  struct Bias {
    Value bias;
    size_t at;
  };

  template <class T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + below(static_cast<int64_t>(all.size())));
  }
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  int64_t width() {
    return wide_ ? one_of<int64_t>({256, 256, 256, 320}) : one_of<int64_t>({10, 16, 24, 33, 64, 96, 128, 200, 256});
  }
  Value any() { return known_[static_cast<size_t>(below(static_cast<int64_t>(known_.size())))]; }

  Value input(const Type& type, bool donated = false) {
    donated_.push_back(donated);
    return b_.input(type);
  }
  Value number(const Type& type, double value) { return full(b_, type, value); }
  // Keeps values small, so that everything computed from them is exact.
  Value within(Value x, double most) { return maximum(minimum(x, number(x.type(), most)), number(x.type(), -most)); }
  int64_t width_of(Value x) { return x.type().shape[1]; }

  // Rows of a table, scaled or not.
  void begin() {
    const int64_t wide = width();
    if (below(2) == 0) {
      known_.push_back(input({type_, {rows_, wide}}, below(2) == 0));
      return;
    }
    const Value table = input({DType::u8, {50, wide}}), index = input({DType::i32, {rows_}}, below(2) == 0);
    const Value chosen = cast(gather(table, index, 0), DType::f32);
    known_.push_back(cast(chosen * number(chosen.type(), 2) - number(chosen.type(), 3), type_));
  }

  void add_layer() {
    const Value x = any();
    const int64_t wide = width();
    const Value w = input({DType::f32, {width_of(x), wide}}, below(2) == 0);
    weights_.push_back({w, x});
    Value y = einsum("mk,kn->mn", x, cast(w, type_));
    if (below(2) == 0) {
      const Value bias = input({DType::f32, {wide}}, below(2) == 0);
      y = y + broadcast(cast(bias, type_), {rows_, wide}, {1});
      biases_.push_back({bias, known_.size()});
    }
    y = within(y, 3);
    if (below(2) == 0) y = maximum(y, number(y.type(), 0));
    known_.push_back(y);
  }

  // Few columns, sums over rows, and back: like the gradient of a loss.
  void add_loss() {
    const Value x = any();
    const int64_t few = one_of<int64_t>({3, 10, 10, 16, 32});
    const Value w = input({DType::f32, {width_of(x), few}}, below(2) == 0);
    weights_.push_back({w, x});
    const Value y = within(einsum("mk,kn->mn", x, cast(w, type_)), 3);
    const Value wide = below(2) == 0 ? cast(y, DType::f32) : y;
    const Value most = reduce_max(wide, {1});
    Value less = wide - broadcast(most, wide.type().shape, {0});
    if (below(3) == 0) less = less - broadcast(cast(reduce_max(any(), {1}), less.type().dtype), wide.type().shape, {0});
    const Value sums = within(reduce_sum(less, {1}), 3);
    const Value gradient = cast(within(less * broadcast(sums, less.type().shape, {0}), 3), type_);
    outputs_.push_back(below(2) == 0 ? reduce_sum(sums, {0}) : argmax(y, 1));
    known_.push_back(gradient);
    known_.push_back(within(einsum("mn,kn->mk", gradient, cast(w, type_)), 3));
  }

  void add_something() {
    const Value x = any();
    switch (below(9)) {
      case 0:
        return add_layer();
      case 1: {  // of the same shape, or with itself
        Value y = any();
        if (y.type() != x.type()) y = x;
        known_.push_back(below(2) == 0 ? within(x * y, 3) : select(lt(x, y), y, x - y));
        if (below(2) == 0) known_.back() = within(known_.back(), 3);
        known_.back() = within(known_.back(), 4);
        return;
      }
      case 2:  // reversed columns, or some of them
        known_.push_back(below(2) == 0 ? reverse(x, {1})
                                       : slice(x, {0, 0}, {rows_, std::max<int64_t>(width_of(x) / 2, 1)}, {1, 1}));
        return;
      case 3:
        outputs_.push_back(reduce_sum(x, {below(2)}));
        return;
      case 4:
        return add_sum(cast(x * x, DType::f32));
      case 5: {  // products of rows with each other
        const Value y = any();
        const Value g = within(einsum("mk,mn->kn", x, y), 3);
        outputs_.push_back(g);
        return;
      }
      case 6: {  // chosen rows
        const Value chosen = gather(x, input({DType::i32, {rows_}}), 0);
        if (below(2) == 0) outputs_.push_back(chosen);
        const Value other = one_of<Value>({chosen, x, broadcast(reduce_min(x, {0}), x.type().shape, {1})});
        known_.push_back(within(chosen * chosen - other, 3));
        return;
      }
      case 7:  // a weight that rows before this one have read, and may be read again
        if (!weights_.empty()) add_update(weights_[static_cast<size_t>(below(static_cast<int64_t>(weights_.size())))]);
        return;
      default:
        known_.push_back(within(x + broadcast(cast(reduce_min(x, {0}), type_), x.type().shape, {1}), 3));
    }
  }

  // The sum of all elements, which may have other readers.
  void add_sum(Value x) {
    outputs_.push_back(reduce_sum(x, {0, 1}));
    if (below(4) == 0) outputs_.push_back(below(2) == 0 ? x : reduce_sum(x, {0}));
  }

  void add_updates() {
    for (const Weight& each : weights_) {
      if (below(5) == 0) {
        add_update(each);
        continue;
      }
      for (size_t i = known_.size(); i-- > 0;) {
        if (width_of(known_[i]) != width_of(each.w)) continue;
        const Value g = cast(einsum("mk,mn->kn", each.x, known_[i]), DType::f32);
        outputs_.push_back(within(each.w - with_bias(g), 4));
        if (below(3) == 0) add_sum(within(g, 8) * within(g, 8));
        break;
      }
      // The old weights, after the new ones.
      if (below(3) == 0) {
        const Value x = maximum(each.x, number(each.x.type(), 1));
        outputs_.push_back(within(einsum("mk,kn->mn", x, cast(each.w, type_)), 3));
      }
    }
    for (const auto& [bias, at] : biases_) {
      if (at >= known_.size() || width_of(known_[at]) != bias.type().shape[0]) continue;
      const Value sums = cast(reduce_sum(known_[at], {0}), DType::f32);
      outputs_.push_back(within(bias - (below(4) == 0 ? reverse(sums, {0}) : sums), 4));
    }
  }

  // New values of a weight that need no gradient.
  void add_update(const Weight& weight) {
    const Value& w = weight.w;
    const int64_t wide = width_of(w);
    if (below(2) == 0) {
      outputs_.push_back(within(w * number(w.type(), 2) - number(w.type(), 1), 4));
    } else {
      const Value product = einsum("kn,nm->km", cast(w, type_), input({type_, {wide, wide}}));
      outputs_.push_back(within(w - cast(product, DType::f32), 4));
    }
  }

  // A gradient, plus a bias of its width.
  Value with_bias(Value g) {
    for (const auto& [bias, at] : biases_)
      if (bias.type().shape[0] == width_of(g) && below(4) == 0) return g + broadcast(bias, g.type().shape, {1});
    return g;
  }

  std::mt19937 random_;
  Builder b_;
  bool wide_ = false;  // products are large enough to use all of a small GPU
  int64_t rows_ = 0;
  DType type_ = DType::f32;
  std::vector<bool> donated_;
  std::vector<Weight> weights_;
  std::vector<Bias> biases_;
  Values known_;  // matrices of `rows_` rows
  Values outputs_;
};

}  // namespace lockstep
