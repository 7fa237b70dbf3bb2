// Random programs similar to training steps: layers, losses per row, gradients, weights updated in place. A GPU must
// compute the same bits as a plain evaluation: with small integers everything is exact. LOCKSTEP_RANDOM_PROGRAMS is the
// number of programs (4), LOCKSTEP_RANDOM_SEED the first seed.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "hardware/cuda/api.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "rows/on_gpu.h"

namespace lockstep {
namespace {

int64_t number_in(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {
    rows_ = one_of<int64_t>({8, 32, 64, 100, 128, 128});
    type_ = one_of<DType>({DType::f32, DType::f32, DType::bf16, DType::f16});
    begin();
    const int64_t layers = below(3) + 1, more = below(8);
    for (int64_t i = 0; i < layers; ++i) add_layer();
    if (below(4) > 0) add_loss();
    for (int64_t i = 0; i < more; ++i) add_something();
    if (below(4) > 0) add_updates();
    // Values without uses, and some of the others.
    for (size_t i = 0; i < known_.size(); ++i)
      if (i + 1 == known_.size() || below(4) == 0) outputs_.push_back(known_[i]);
  }

  Program take() { return b_.take(outputs_); }
  const std::vector<bool>& donated() const { return donated_; }

 private:
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + below(static_cast<int64_t>(all.size())));
  }
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  int64_t width() { return one_of<int64_t>({10, 16, 24, 33, 64, 96, 128, 200, 256}); }
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
      known_.push_back(input({type_, {rows_, wide}}));
      return;
    }
    const Value table = input({DType::u8, {50, wide}}), index = input({DType::i32, {rows_}});
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
    const Value less = wide - broadcast(most, wide.type().shape, {0});
    const Value sums = within(reduce_sum(less, {1}), 3);
    const Value gradient = cast(within(less * broadcast(sums, less.type().shape, {0}), 3), type_);
    outputs_.push_back(below(2) == 0 ? reduce_sum(sums, {0}) : argmax(y, 1));
    known_.push_back(gradient);
    known_.push_back(within(einsum("mn,kn->mk", gradient, cast(w, type_)), 3));
  }

  void add_something() {
    const Value x = any();
    switch (below(7)) {
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
        outputs_.push_back(reduce_sum(cast(x * x, DType::f32), {0, 1}));
        return;
      case 5: {  // products of rows with each other
        const Value y = any();
        const Value g = within(einsum("mk,mn->kn", x, y), 3);
        outputs_.push_back(g);
        return;
      }
      default:
        known_.push_back(within(x + broadcast(cast(reduce_min(x, {0}), type_), x.type().shape, {1}), 3));
    }
  }

  void add_updates() {
    for (const auto& [w, x] : weights_) {
      for (size_t i = known_.size(); i-- > 0;) {
        if (width_of(known_[i]) != w.type().shape[1]) continue;
        const Value g = cast(einsum("mk,mn->kn", x, known_[i]), DType::f32);
        outputs_.push_back(within(w - g, 4));
        if (below(3) == 0) outputs_.push_back(reduce_sum(within(g, 8) * within(g, 8), {0, 1}));
        break;
      }
    }
    for (const auto& [bias, at] : biases_)
      if (at < known_.size() && width_of(known_[at]) == bias.type().shape[0])
        outputs_.push_back(within(bias - cast(reduce_sum(known_[at], {0}), DType::f32), 4));
  }

  struct Weight {
    Value w, x;
  };
  struct Bias {
    Value bias;
    size_t at;
  };

  std::mt19937 random_;
  Builder b_;
  int64_t rows_ = 0;
  DType type_ = DType::f32;
  std::vector<bool> donated_;
  std::vector<Weight> weights_;
  std::vector<Bias> biases_;
  Values known_;  // matrices of `rows_` rows
  Values outputs_;
};

TEST(RandomProgramsOnGpu, ComputeTheSame) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  const int64_t first = number_in("LOCKSTEP_RANDOM_SEED", 1), count = number_in("LOCKSTEP_RANDOM_PROGRAMS", 4);
  for (int64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(fmt::format("LOCKSTEP_RANDOM_SEED={}", seed));
    RandomProgram random(static_cast<uint32_t>(seed));
    const Program program = random.take();
    HostArrays in;
    for (const Type& type : program.input_types()) {
      in.push_back(small_integers(type, static_cast<uint32_t>(seed * 100 + static_cast<int64_t>(in.size()))));
      if (type.dtype == DType::i32)  // row indices of a table, also negative ones
        for (int64_t i = 0; i < in.back().size(); ++i) in.back().set(i, static_cast<double>((i * 37 + seed) % 70 - 10));
    }
    const HostArrays wanted = eager(program, in), got = planned_on_gpu(program, in, random.donated());
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o << " of\n" << print(program);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace lockstep
#endif
