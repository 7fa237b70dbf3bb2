#include "ops/cross_entropy.h"

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/throws.h"
#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/loops/cross_entropy_loops.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

std::vector<float> random_floats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(normal(random));
  return out;
}

bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST(CrossEntropyLoops, InstructionSetsGiveTheSameBits) {
  const CrossEntropyLoops& plain = *all_cross_entropy_loops().front();
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const CrossEntropyLoops* fast : all_cross_entropy_loops())
    for (const int64_t n : {0, 1, 31, 32, 33, 100, 2048}) {
      const std::vector<float> x = random_floats(n, seed + static_cast<uint32_t>(n));
      EXPECT_TRUE(same(fast->max(x.data(), n), plain.max(x.data(), n))) << n;
      EXPECT_TRUE(same(fast->sum_exp(x.data(), n, 1.5f), plain.sum_exp(x.data(), n, 1.5f))) << n;
      EXPECT_TRUE(same(fast->sum(x.data(), n, 1.5f), plain.sum(x.data(), n, 1.5f))) << n;
      std::vector<float> y(x.size()), z = x;
      fast->gradient(y.data(), x.data(), n, 4.0f, 0.01f, 0.7f);
      plain.gradient(z.data(), z.data(), n, 4.0f, 0.01f, 0.7f);
      EXPECT_EQ(y, z) << n;
    }
}

TEST(CrossEntropyLoops, MaxIgnoresNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const CrossEntropyLoops* loops : all_cross_entropy_loops()) {
    std::vector<float> x(70, nan);
    EXPECT_EQ(loops->max(x.data(), 70), -inf);
    x[66] = -3;
    EXPECT_EQ(loops->max(x.data(), 70), -3);
    x[3] = 2;
    EXPECT_EQ(loops->max(x.data(), 70), 2);
    EXPECT_EQ(loops->max(x.data(), 0), -inf);
  }
}

const Attrs kNoSmoothing{{"smoothing", 0.0}};

TEST(CrossEntropyRow, HasTheSameBitsForAnyNumberOfThreads) {
  for (const DType t : {f32, bf16, f64}) {
    const HostArray z = normal_numbers({t, {50, 3000}}, 1);
    const HostArray labels({i32, {50}}, std::vector<double>(50, 7));
    const HostArray dloss = normal_numbers({t == f64 ? f64 : f32, {50}}, 2);
    const auto both = [&](int threads) {
      Pool pool({.threads = threads});
      const HostArrays loss = run_op(cross_entropy_op, {z, labels}, kNoSmoothing, pool);
      const HostArray dz = run_op(cross_entropy_grad_op, {z, labels, loss[1], dloss}, kNoSmoothing, pool)[0];
      return std::vector{loss[0].values(), loss[1].values(), dz.values()};
    };
    EXPECT_EQ(both(4), both(1));
  }
}

TEST(CrossEntropyRow, ReadsTheArrayBeforeACastToF32) {
  const auto cast_of = [](DType from, DType to) {
    return print(
        trace({{from, {3, 5}}, {i32, {3}}}, [&](const Values& v) { return cross_entropy(cast(v[0], to), v[1]); }));
  };
  for (const DType narrow : {bf16, f16})
    EXPECT_NE(cast_of(narrow, f32).find("cross_entropy[smoothing=0.0] %0 %1"), std::string::npos);
  EXPECT_EQ(cast_of(f64, f32).find("cross_entropy[smoothing=0.0] %0 %1"), std::string::npos);
  EXPECT_EQ(cast_of(bf16, f64).find("cross_entropy[smoothing=0.0] %0 %1"), std::string::npos);
}

TEST(CrossEntropyRow, RejectsWrongOperands) {
  const Type z{f32, {3, 5}}, y{i32, {3}}, loss{f32, {3}};
  const auto expect = [](const Op& op, std::vector<Type> in, const char* part, double smoothing = 0) {
    const Attrs attrs{{"smoothing", smoothing}};
    EXPECT_THROWS(infer_types(op, in, attrs), Error, part);
  };
  expect(cross_entropy_op, {z}, "cross_entropy: takes 2 operands and got 1");
  expect(cross_entropy_op, {{i32, {3, 5}}, y}, "cross_entropy: the logits are i32[3,5]; they must be floating");
  expect(cross_entropy_op, {{f32, {3, 0}}, y}, "with at least one class");
  expect(cross_entropy_op, {{f32, {}}, y}, "the logits are f32[]");
  expect(cross_entropy_op, {z, loss}, "the labels are f32[3] for logits f32[3,5]; they must be integers [3]");
  expect(cross_entropy_op, {z, {i32, {5}}}, "the labels are i32[5]");
  expect(cross_entropy_op, {z, y}, "cross_entropy: the smoothing is 1; it must be at least 0 and less than 1", 1);
  expect(cross_entropy_grad_op, {z, y}, "cross_entropy_grad: takes 4 operands and got 2");
  expect(cross_entropy_grad_op, {z, y, {bf16, {3}}, loss}, "the lse is bf16[3]; it must be f32[3] for logits f32[3,5]");
  expect(cross_entropy_grad_op, {z, y, loss, {f32, {4}}}, "the cotangent is f32[4]; it must be f32[3]");
}

}  // namespace
}  // namespace lockstep
