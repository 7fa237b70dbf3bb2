// sample_tokens(): which tokens it draws, and how often.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/throws.h"
#include "lockstep/create.h"
#include "lockstep/generate.h"
#include "lockstep/jit.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

std::vector<int64_t> draw(const Array& logits, const Sampling& sampling, uint64_t seed = 0) {
  return sample_tokens(logits, random::key(seed), sampling).to_vector<int64_t>();
}

Array random_logits(int64_t rows, int64_t vocabulary, uint64_t seed) {
  return 3 * random::normal(random::key(seed), {rows, vocabulary});
}

// n rows with these logits.
Array repeated(const std::vector<float>& logits, int64_t n) {
  const auto vocabulary = static_cast<int64_t>(logits.size());
  return broadcast_to(Array::from(logits, {1, vocabulary}), {n, vocabulary});
}

// softmax(logits / temperature) of the kept tokens, in double.
std::vector<double> probabilities(const std::vector<float>& logits, double temperature,
                                  const std::vector<bool>& kept = {}) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out;
  for (size_t i = 0; i < logits.size(); ++i)
    out.push_back(kept.empty() || kept[i] ? std::exp((logits[i] - largest) / temperature) : 0);
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& each : out) each /= sum;
  return out;
}

// Pearson's statistic. No token of probability 0 may occur.
double chi_square(const std::vector<int64_t>& draws, const std::vector<double>& expected) {
  std::vector<double> counts(expected.size());
  for (const int64_t token : draws) ++counts.at(static_cast<size_t>(token));
  double out = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double wanted = expected[i] * static_cast<double>(draws.size());
    if (expected[i] == 0)
      EXPECT_EQ(counts[i], 0) << i;
    else
      out += (counts[i] - wanted) * (counts[i] - wanted) / wanted;
  }
  return out;
}

const std::vector<float> kEight = {0.3f, -1.2f, 2.1f, 0.9f, -0.4f, 1.6f, 0.f, -2.f};
// The 99.9 % quantiles of the distribution with 7 and 2 degrees of freedom.
constexpr double kQuantile7 = 24.32, kQuantile2 = 13.82;
constexpr int64_t kDraws = 10000;

TEST(Sampling, TemperatureZeroIsArgmax) {
  const Array logits = random_logits(50, 40, 1);
  EXPECT_EQ(draw(logits, {.temperature = 0}), argmax(logits, 1).to_vector<int64_t>());
  EXPECT_EQ(draw(logits, {.temperature = 0, .top_k = 5, .top_p = 0.3}, 7), argmax(logits, 1).to_vector<int64_t>());
  EXPECT_EQ(draw(repeated({1, 4, 4, 0}, 3), {.temperature = 0}), (std::vector<int64_t>{1, 1, 1}));
}

TEST(Sampling, TopOneIsArgmax) {
  const Array logits = random_logits(50, 40, 2);
  EXPECT_EQ(draw(logits, {.top_k = 1}, 3), argmax(logits, 1).to_vector<int64_t>());
  EXPECT_EQ(draw(repeated({1, 4, 4, 0}, 3), {.top_k = 1}, 5), (std::vector<int64_t>{1, 1, 1}));
}

TEST(Sampling, SmallTemperaturesApproachArgmax) {
  const Array logits = random_logits(50, 40, 3);
  for (const double temperature : {1e-4, 1e-30, 1e-300})
    EXPECT_EQ(draw(logits, {.temperature = temperature}), argmax(logits, 1).to_vector<int64_t>()) << temperature;
}

TEST(Sampling, DrawsFollowTheSoftmax) {
  for (const double temperature : {0.7, 1.0, 1.8})
    EXPECT_LT(chi_square(draw(repeated(kEight, kDraws), {.temperature = temperature}, 11),
                         probabilities(kEight, temperature)),
              kQuantile7)
        << temperature;
  // The test would notice another temperature.
  EXPECT_GT(chi_square(draw(repeated(kEight, kDraws), {.temperature = 1.2}, 11), probabilities(kEight, 1)), kQuantile7);
}

TEST(Sampling, TopKDrawsFromTheMostProbable) {
  const std::vector<bool> kept = {false, false, true, true, false, true, false, false};
  EXPECT_LT(chi_square(draw(repeated(kEight, kDraws), {.top_k = 3}, 4), probabilities(kEight, 1, kept)), kQuantile2);
  EXPECT_LT(chi_square(draw(repeated(kEight, kDraws), {.top_k = 100}, 4), probabilities(kEight, 1)), kQuantile7);
}

// The tokens that top_p keeps, by a plain sum in double.
std::vector<bool> nucleus(const std::vector<double>& probability, double top_p) {
  std::vector<size_t> order(probability.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return probability[a] > probability[b]; });
  std::vector<bool> kept(probability.size());
  double sum = 0;
  for (const size_t token : order) {
    if (sum >= top_p) break;
    kept[token] = true;
    sum += probability[token];
  }
  return kept;
}

TEST(Sampling, TopPCutsWhereTheProbabilityIsReached) {
  std::vector<float> logits;
  for (const double p : {0.125, 0.5, 0.125, 0.25}) logits.push_back(static_cast<float>(std::log(p)));
  for (const auto& [top_p, tokens] : std::vector<std::pair<double, std::vector<int64_t>>>{
           {1e-9, {1}}, {0.49, {1}}, {0.51, {1, 3}}, {0.74, {1, 3}}, {0.76, {0, 1, 3}}, {0.9, {0, 1, 2, 3}}}) {
    std::vector<int64_t> drawn = draw(repeated(logits, 2000), {.top_p = top_p}, 9);
    std::sort(drawn.begin(), drawn.end());
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
    EXPECT_EQ(drawn, tokens) << top_p;
  }
  for (const double top_p : {0.1, 0.45, 0.6, 0.8, 0.93})
    EXPECT_LT(chi_square(draw(repeated(kEight, kDraws), {.top_p = top_p}, 21),
                         probabilities(kEight, 1, nucleus(probabilities(kEight, 1), top_p))),
              kQuantile7)
        << top_p;
}

TEST(Sampling, TopPAppliesToTheTokensOfTopK) {
  // Of the three most probable tokens, the first two have 0.82 together; of all tokens they have 0.68.
  const std::vector<bool> kept = {false, false, true, false, false, true, false, false};
  EXPECT_LT(chi_square(draw(repeated(kEight, kDraws), {.top_k = 3, .top_p = 0.8}, 6), probabilities(kEight, 1, kept)),
            kQuantile2);
}

TEST(Sampling, RowsDoNotDependOnTheirNumber) {
  for (const Sampling& sampling : {Sampling{}, Sampling{.top_k = 5}, Sampling{.top_p = 0.7}}) {
    const Array logits = random_logits(9, 40, 5);
    std::vector<int64_t> all = draw(logits, sampling, 8);
    all.resize(4);
    EXPECT_EQ(draw(slice(logits, {0}, {4}), sampling, 8), all);
  }
}

TEST(Sampling, KeysDecide) {
  const Array logits = random_logits(64, 40, 6);
  EXPECT_EQ(draw(logits, {}, 1), draw(logits, {}, 1));
  EXPECT_NE(draw(logits, {}, 1), draw(logits, {}, 2));
  const auto compiled = jit([](const Array& x, const Array& key) { return sample_tokens(x, key, {.top_p = 0.9}); });
  EXPECT_EQ(compiled(logits, random::key(1)).to_vector<int64_t>(), draw(logits, {.top_p = 0.9}, 1));
}

TEST(Sampling, RowsWithoutFiniteLogitsAreMarked) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const Array logits = array({{1.f, 2.f}, {kNan, 2.f}, {1.f, kInfinity}, {5.f, 2.f}});
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 1e-3}, Sampling{.top_p = 0.1}})
    EXPECT_EQ(draw(logits, sampling), (std::vector<int64_t>{1, -1, -1, 0}));
}

TEST(Sampling, WrongValuesAreRejected) {
  const Array logits = zeros({1, 4});
  EXPECT_THROWS(draw(logits, {.temperature = -1}), Error,
                "generate: the temperature is -1; give a number of at least 0");
  EXPECT_THROWS(draw(logits, {.temperature = std::nan("")}), Error, "generate: the temperature is nan");
  EXPECT_THROWS(draw(logits, {.top_k = -1}), Error, "generate: top_k is -1; give at least 1, or 0 for all tokens");
  EXPECT_THROWS(draw(logits, {.top_p = 0}), Error, "generate: top_p is 0; give a number above 0 and up to 1");
  EXPECT_THROWS(draw(logits, {.top_p = 1.5}), Error, "generate: top_p is 1.5");
  EXPECT_THROWS(draw(zeros({4}), {}), Error, "sample_tokens: the logits are f32[4]; give [samples, vocabulary]");
}

}  // namespace
}  // namespace lockstep
