// Keys of four words: everything that draws numbers takes them.
#include <set>

#include "array/near.h"
#include "lockstep/attention.h"
#include "lockstep/create.h"
#include "lockstep/distributions.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

constexpr auto kPhilox = random::BitGenerator::philox;

Array words_of(const Array& x, int64_t begin, int64_t end) { return slice(x, {begin}, {end}); }
std::vector<uint32_t> list(const Array& x) { return x.to_vector<uint32_t>(); }

TEST(Philox, SeedIsTheThreefryKeyTwice) {
  const auto words = list(random::key((uint64_t{7} << 32) + 9, kPhilox));
  EXPECT_EQ(words, (std::vector<uint32_t>{7, 9, 7, 9}));
}

TEST(Philox, GivesKnownAnswers) {
  EXPECT_EQ(list(random::bits(random::key(0, kPhilox), {4})),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, KeysAreSplitAsTwoThreefryKeys) {
  const Array key = random::wrap_key_data(Array::from(std::vector<uint32_t>{1, 2, 3, 4}, {4}));
  const Array first = words_of(key, 0, 2), second = words_of(key, 2, 4);
  const Array keys = random::split(key, 3), left = random::split(first, 3), right = random::split(second, 3);
  EXPECT_EQ(keys.shape(), (Shape{3, 4}));
  EXPECT_EQ(list(keys), list(concatenate({left, right}, 1)));
  EXPECT_EQ(random::split(key, Shape{2, 3}).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(list(random::fold_in(key, 77)),
            list(concatenate({random::fold_in(first, 77), random::fold_in(second, 77)}, 0)));
}

TEST(Philox, IsTheSameUnderJitAndVmap) {
  const Array keys = random::split(random::key(7, kPhilox), 3);
  const auto draw = [](const Array& key) {
    const auto [a, b] = random::split<2>(key);
    return random::normal(a, {5}) + random::uniform(b, {5}, -1, 1) +
           random::randint(random::fold_in(key, 3), {5}, 0, 10) + random::permutation(b, 5) +
           random::bernoulli(a, 0.5, {5}) + random::gamma(b, 2.0, {5}) + random::choice(a, 9, {5}) +
           random::poisson(a, 3.0, {5});
  };
  const Array batched = vmap(draw)(keys), compiled = jit(vmap(draw))(keys);
  for (int i = 0; i < 3; ++i) {
    const auto one = draw(at(keys, i)).to_vector<double>();
    EXPECT_ELEMENTS(at(batched, i), one, 1e-4);
    EXPECT_ELEMENTS(at(compiled, i), one, 1e-4);
    EXPECT_ELEMENTS(jit(draw)(at(keys, i)), one, 1e-4);
  }
}

TEST(Philox, NumbersFollowTheirDistributions) {
  const Array key = random::key(3, kPhilox);
  for (DType t : {bf16, f16, f32, f64}) {
    const Array u = astype(random::uniform(key, {20001}, 0, 1, t), f64),
                n = astype(random::normal(key, {20001}, t), f64);
    EXPECT_GE(min(u).item<double>(), 0.0);
    EXPECT_LT(max(u).item<double>(), 1.0);
    EXPECT_NEAR(mean(u).item<double>(), 0.5, 0.01) << name(t);
    EXPECT_NEAR(var(u).item<double>(), 1.0 / 12, 0.003) << name(t);
    EXPECT_NEAR(mean(n).item<double>(), 0.0, 0.03) << name(t);
    EXPECT_NEAR(var(n).item<double>(), 1.0, 0.03) << name(t);
    // Neighbours are independent.
    const Array centered = n - mean(n);
    const Array products = slice(centered, {0}, {20000}) * slice(centered, {1}, {20001});
    EXPECT_NEAR(mean(products).item<double>(), 0.0, 0.03) << name(t);
  }
  // About half of the words have each bit set.
  const auto words = list(random::bits(key, {20000}));
  for (int bit = 0; bit < 32; ++bit) {
    int64_t set = 0;
    for (const uint32_t w : words) set += (w >> bit) & 1;
    EXPECT_NEAR(static_cast<double>(set), 10000, 300) << "bit " << bit;
  }
  EXPECT_GT(std::set<uint32_t>(words.begin(), words.end()).size(), 19990u);
}

TEST(Philox, DrawsIntegersOfAllSizes) {
  const Array key = random::key(5, kPhilox);
  const auto words = list(random::bits(key, {6}));
  const auto bytes = random::bits(key, {6}, u8).to_vector<uint8_t>();
  const auto halves = random::bits(key, {6}, u16).to_vector<uint16_t>();
  const auto wide = random::bits(key, {3}, u64).to_vector<uint64_t>();
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(bytes[i], static_cast<uint8_t>(words[i]));
    EXPECT_EQ(halves[i], static_cast<uint16_t>(words[i]));
    EXPECT_EQ(static_cast<uint32_t>(wide[i / 2] >> (i % 2 * 32)), words[i]);
  }
}

TEST(Philox, AttentionTakesItsKeys) {
  const Array q = random::normal(random::key(1), {1, 8, 2, 4});
  const auto attend = [&](const Array& key) {
    return dot_product_attention(q, q, q, {.dropout = 0.5, .dropout_key = key}).first;
  };
  const Array key = random::key(5, kPhilox), other = random::fold_in(key, 1);
  EXPECT_EQ(attend(key).to_vector<float>(), attend(key).to_vector<float>());
  EXPECT_NE(attend(key).to_vector<float>(), attend(other).to_vector<float>());
}

TEST(Philox, RejectsOtherKeys) {
  EXPECT_THROWS(
      random::normal(zeros({3}, u32), {3}), Error,
      "random::normal: the key is u32[3]; a key is u32[2], or u32[4] for philox: create one with random::key");
  EXPECT_THROWS(random::normal(random::split(random::key(0, kPhilox)), {3}), Error,
                "select one of several keys with at(), or use vmap");
  EXPECT_THROWS(random::wrap_key_data(zeros({3}, u32)), Error,
                "random::wrap_key_data: the data is u32[3]; keys are u32[..., 2] (threefry) or u32[..., 4] (philox)");
}

}  // namespace
}  // namespace lockstep
