#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

using nlohmann::json;

json cases() {
  std::ifstream file(LOCKSTEP_TEST_DATA "/random.json");
  return json::parse(file).at("cases");
}

Shape shape_of(const json& array) { return array.at("shape").get<Shape>(); }

// The values of JAX, exactly or to about one unit in the last place.
void expect_same(const Array& got, const json& wanted, double tolerance = 0) {
  EXPECT_EQ(got.shape(), shape_of(wanted));
  std::vector<double> values;
  for (const json& v : wanted.at("data")) values.push_back(v.is_boolean() ? v.get<bool>() : v.get<double>());
  EXPECT_ELEMENTS(got, values, tolerance);
}

TEST(Random, MatchesJax) {
  for (const json& c : cases()) {
    const Array key = random::key(c.at("seed").get<uint64_t>());
    EXPECT_EQ(key.to_vector<uint32_t>(), c.at("key").get<std::vector<uint32_t>>());
    const Array keys = random::split(key, 3);
    EXPECT_EQ(keys.shape(), (Shape{3, 2}));
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(at(keys, i).to_vector<uint32_t>(), c.at("split3")[i].get<std::vector<uint32_t>>());
    const json& folded = c.at("fold_in");
    EXPECT_EQ(random::fold_in(key, folded.at("data").get<int>()).to_vector<uint32_t>(),
              folded.at("key").get<std::vector<uint32_t>>());
    expect_same(random::bits(key, shape_of(c.at("bits32"))), c.at("bits32"));
    expect_same(random::uniform(key, shape_of(c.at("uniform"))), c.at("uniform"), 1.2e-7);
    expect_same(random::normal(key, shape_of(c.at("normal"))), c.at("normal"), 1e-6);
    expect_same(random::bernoulli(key, 0.3, shape_of(c.at("bernoulli"))), c.at("bernoulli"));
    expect_same(random::randint(key, shape_of(c.at("randint")), 0, 1000), c.at("randint"));
    expect_same(random::permutation(key, shape_of(c.at("permutation"))[0]), c.at("permutation"));
  }
}

TEST(Random, IsTheSameUnderJitAndVmap) {
  const Array keys = random::split(random::key(7), 3);
  const auto draw = [](const Array& key) {
    const auto [a, b] = random::split<2>(key);
    return random::normal(a, {4}) + random::uniform(b, {4}, -1, 1) +
           random::randint(random::fold_in(key, 3), {4}, 0, 10) + random::permutation(b, 4) +
           random::bernoulli(a, 0.5, {4});
  };
  const Array batched = vmap(draw)(keys), compiled = jit(vmap(draw))(keys);
  for (int i = 0; i < 3; ++i) {
    const auto one = draw(at(keys, i)).to_vector<double>();
    EXPECT_ELEMENTS(at(batched, i), one, 1e-5);
    EXPECT_ELEMENTS(at(compiled, i), one, 1e-5);
    EXPECT_ELEMENTS(jit(draw)(at(keys, i)), one, 1e-5);
  }
}

TEST(Random, GradientsFlowThroughBounds) {
  const Array key = random::key(1), u = random::uniform(key, {5});
  const auto f = [&](const Array& hi) { return sum(random::uniform(key, {5}, 0, hi)); };
  EXPECT_NEAR(grad(f)(astype(2.0, f32)).item<float>(), sum(u).item<float>(), 1e-5);
}

TEST(Uniform, StaysInsideItsBoundsInEveryType) {
  for (DType t : {bf16, f16, f32, f64}) {
    const Array u = random::uniform(random::key(3), {4000}, 0, 1, t);
    EXPECT_EQ(u.dtype(), t);
    EXPECT_GE(min(u).item<double>(), 0.0);
    EXPECT_LT(max(u).item<double>(), 1.0);
    EXPECT_NEAR(mean(astype(u, f64)).item<double>(), 0.5, 0.02) << name(t);
    const Array n = astype(random::normal(random::key(3), {4000}, t), f64);
    EXPECT_TRUE(static_cast<bool>(all(isfinite(n)))) << name(t);
    EXPECT_NEAR(mean(n).item<double>(), 0.0, 0.06) << name(t);
    EXPECT_NEAR(var(n).item<double>(), 1.0, 0.06) << name(t);
  }
  const Array between = random::uniform(random::key(4), {2, 1000}, array({{-3}, {5}}), array({{-1}, {6}}));
  EXPECT_GE(min(at(between, 0)).item<float>(), -3.0f);
  EXPECT_LT(max(at(between, 0)).item<float>(), -1.0f);
  EXPECT_GE(min(at(between, 1)).item<float>(), 5.0f);
}

TEST(Uniform, F64Uses64RandomBits) {
  // The first 64-bit word of key 0 is the first key that split() derives from it.
  const auto words = at(random::split(random::key(0), 1), 0).to_vector<uint32_t>();
  const uint64_t word = (uint64_t{words[0]} << 32) | words[1];
  EXPECT_EQ(random::uniform(random::key(0), {1}, 0, 1, f64).item<double>(), static_cast<double>(word >> 12) * 0x1p-52);
}

TEST(TruncatedNormal, StaysInsideItsBounds) {
  const Array x = random::truncated_normal(random::key(5), -2, 2, {4000});
  EXPECT_GT(min(x).item<float>(), -2.0f);
  EXPECT_LT(max(x).item<float>(), 2.0f);
  EXPECT_NEAR(var(x).item<float>(), 0.774f, 0.05f);
}

TEST(Randint, CoversItsRange) {
  const auto values = random::randint(random::key(9), {1000}, -2, 3).to_vector<int32_t>();
  EXPECT_EQ(*std::min_element(values.begin(), values.end()), -2);
  EXPECT_EQ(*std::max_element(values.begin(), values.end()), 2);
  EXPECT_TEXT(random::randint(random::key(9), {2}, 4, 4), "i32[2] [4, 4]");
  const Array wide = random::randint(random::key(9), {2, 3}, array({{0}, {100}}), array({1, 101, 101}));
  EXPECT_EQ(wide.shape(), (Shape{2, 3}));
  EXPECT_EQ(at(wide, 0).to_vector<int>()[0], 0);
}

TEST(Randint, TakesBoundsOfEveryIntegerType) {
  const Array key = random::key(9);
  const auto draw = [&](const Array& lo, const Array& hi) { return random::randint(key, {1000}, lo, hi); };
  const std::string wanted = draw(5, 100).to_string();
  EXPECT_TEXT(draw(full({}, 5, i64), full({}, 100, i64)), wanted);
  EXPECT_TEXT(draw(full({}, 5, u32), 100), wanted);
  EXPECT_TEXT(draw(full({}, 5, u8), full({}, 100, u8)), wanted);
  EXPECT_EQ(draw(2147483647, int64_t{1} << 31).to_string(), full({1000}, 2147483647).to_string());
  EXPECT_EQ(draw(int64_t{1} << 40, int64_t{1} << 41).to_string(), full({1000}, 2147483647).to_string());
  const auto all = draw(-(int64_t{1} << 40), int64_t{1} << 40).to_vector<int32_t>();
  EXPECT_LT(*std::min_element(all.begin(), all.end()), -2'000'000'000);
  EXPECT_GT(*std::max_element(all.begin(), all.end()), 2'000'000'000);
}

TEST(Permutation, KeepsEveryElement) {
  const Array rows = array({{0, 1}, {10, 11}, {20, 21}, {30, 31}});
  const Array order = random::permutation(random::key(2), 4), moved = random::permutation(random::key(2), rows);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(at(moved, i).to_vector<int>()[0], 10 * at(order, i).item<int>());
  auto values = random::permutation(random::key(2), 5000).to_vector<int>();
  std::sort(values.begin(), values.end());
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i);
  EXPECT_TEXT(random::permutation(random::key(2), 1), "i32[1] [0]");
  EXPECT_TEXT(random::permutation(random::key(2), 0), "i32[0] []");
}

TEST(Categorical, DrawsByProbability) {
  const Array logits = broadcast_to(log(array({0.1f, 0.6f, 0.3f})), {5000, 3});
  const Array draws = random::categorical(random::key(11), logits);
  EXPECT_EQ(draws.dtype(), i32);
  EXPECT_NEAR(mean(draws == 1).item<float>(), 0.6f, 0.03f);
  EXPECT_NEAR(mean(draws == 2).item<float>(), 0.3f, 0.03f);
  EXPECT_EQ(random::categorical(random::key(11), logits, 0).shape(), (Shape{3}));
  EXPECT_NEAR(mean(random::gumbel(random::key(1), {5000})).item<float>(), 0.5772f, 0.06f);
}

TEST(Random, RejectsInvalidArguments) {
  const Array key = random::key(0);
  EXPECT_THROWS(random::uniform(zeros({2}), {3}), Error,
                "random::uniform: the key is f32[2]; a key is u32[2], or u32[4] for philox: create one with random::key");
  EXPECT_THROWS(random::normal(random::split(key), {3}), Error, "select one of several keys with at(), or use vmap");
  EXPECT_THROWS(random::normal(key, {3}, i32), Error, "random::normal: dtype i32 is not floating; use a floating type");
  EXPECT_THROWS(random::uniform(key, {3}, zeros({2}), 1), Error,
                "random::uniform: shape [2] does not broadcast to [3]");
  EXPECT_THROWS(random::fold_in(key, 0.5), Error, "random::fold_in: the data is f32[]; it must be an integer scalar");
  EXPECT_THROWS(random::randint(key, {2}, 0.5, 1), Error,
                "random::randint: bounds f32[] and i32[]; they must be integers");
  EXPECT_THROWS(random::permutation(key, -1), Error, "random::permutation: -1 numbers");
  EXPECT_THROWS(random::permutation(key, Array(3)), Error, "random::permutation: i32[] is a scalar");
  EXPECT_THROWS(random::bernoulli(key, zeros({2}), {3}), Error,
                "random::bernoulli: shape [2] does not broadcast to [3]");
  EXPECT_THROWS(random::truncated_normal(key, 1, 1, {3}), Error, "random::truncated_normal: bounds 1 and 1; the first must be less than the second");
  EXPECT_THROWS(random::split(key, -1), Error, "random::split: -1 keys requested");
  EXPECT_THROWS(random::categorical(key, 1.0f), Error, "random::categorical: axis -1 is out of range; a scalar has no axes");
}

}  // namespace
}  // namespace lockstep
