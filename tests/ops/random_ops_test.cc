#include "ops/random_ops.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "ops/evaluate.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// Values computed by JAX.
const nlohmann::json& golden() {
  static const nlohmann::json cases = [] {
    std::ifstream file(LOCKSTEP_TEST_DATA "/random.json");
    return nlohmann::json::parse(file)["cases"];
  }();
  return cases;
}

HostArray words(const nlohmann::json& list) {
  const auto values = list.get<std::vector<double>>();
  return HostArray({u32, {static_cast<int64_t>(values.size())}}, values);
}

HostArray bits_of(const HostArray& key, const Shape& shape) {
  return evaluate({key}, [&](const Values& in) { return Values{random_bits(in[0], shape)}; })[0];
}

TEST(RandomBits, MatchJax) {
  ASSERT_FALSE(golden().empty());
  for (const auto& c : golden()) {
    const HostArray wanted = words(c["bits32"]["data"]);
    expect_equal(bits_of(words(c["key"]), wanted.type.shape), wanted);
  }
}

TEST(RandomBits, DependOnlyOnTheRowMajorIndex) {
  const HostArray key({u32, {2}}, {7, 4000000000.0});
  const HostArray line = bits_of(key, {70000});
  expect_equal(HostArray({u32, {70000}}, bits_of(key, {7, 100, 100}).values()), line);
  const HostArray shorter = bits_of(key, {16391});
  for (int64_t i = 0; i < shorter.size(); ++i) ASSERT_EQ(shorter.get(i), line.get(i)) << i;
}

TEST(RandomBits, AreThreefryOfTheIndex) {
  const HostArray key({u32, {2}}, {1, 2});
  const HostArray hi({u32, {40000}}, std::vector<double>(40000, 0));
  HostArray lo({u32, {40000}});
  for (int64_t i = 0; i < lo.size(); ++i) lo.set(i, static_cast<double>(i));
  const HostArrays x = evaluate({key, hi, lo}, [](const Values& in) { return threefry(in[0], in[1], in[2]); });
  const HostArray bits = bits_of(key, {40000});
  for (int64_t i = 0; i < lo.size(); ++i)
    ASSERT_EQ(bits.buffer->as<uint32_t>()[i], x[0].buffer->as<uint32_t>()[i] ^ x[1].buffer->as<uint32_t>()[i]) << i;
}

TEST(RandomBits, SupportEmptyAndScalarShapes) {
  const HostArray key({u32, {2}}, {0, 0});
  EXPECT_EQ(bits_of(key, {3, 0}).size(), 0);
  EXPECT_EQ(bits_of(key, {}).get(0), 4070199207.0);
  EXPECT_EQ(bits_of(HostArray({u32, {0, 2}}), {5}).type, (Type{u32, {0, 5}}));
}

HostArray some_words(Type type, uint32_t seed) {
  HostArray out(std::move(type));
  std::mt19937 random(seed);
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, random());
  return out;
}

TEST(RandomBits, BatchMatchesLoop) {
  const ValueFunction f = [](const Values& in) { return Values{random_bits(in[0], {3, 5})}; };
  expect_batch_is_loop({some_words({u32, {2}}, 1)}, f, some_words);
  expect_batch_is_loop({some_words({u32, {4, 2}}, 1)}, f, some_words);
}

TEST(Threefry, MatchesJaxSplitAndFoldIn) {
  for (const auto& c : golden()) {
    const HostArray key = words(c["key"]);
    const HostArrays split = evaluate({key, HostArray({u32, {3}}, {0, 0, 0}), HostArray({u32, {3}}, {0, 1, 2})},
                                      [](const Values& in) { return threefry(in[0], in[1], in[2]); });
    for (size_t i = 0; i < 3; ++i)
      for (size_t word = 0; word < 2; ++word)
        EXPECT_EQ(split[word].get(static_cast<int64_t>(i)), c["split3"][i][word].get<double>());
    const HostArray data({u32, {}}, {c["fold_in"]["data"].get<double>()});
    const HostArrays folded = evaluate({key, HostArray({u32, {}}, {0}), data},
                                       [](const Values& in) { return threefry(in[0], in[1], in[2]); });
    for (size_t word = 0; word < 2; ++word) EXPECT_EQ(folded[word].get(0), c["fold_in"]["key"][word].get<double>());
  }
}

TEST(Threefry, BatchMatchesLoop) {
  const ValueFunction f = [](const Values& in) { return threefry(in[0], in[1], in[2]); };
  for (const Shape& keys : {Shape{2}, Shape{4, 2}})
    expect_batch_is_loop({some_words({u32, keys}, 1), some_words({u32, {4, 5}}, 2), some_words({u32, {4, 5}}, 3)}, f,
                         some_words);
}

TEST(Threefry, RejectsInvalidKeysAndCounters) {
  Builder b;
  const Value key = b.input({u32, {2}}), wide = b.input({u32, {3}}), real = b.input({f32, {2}});
  const Value keys = b.input({u32, {4, 2}}), counters = b.input({u32, {5}});
  EXPECT_EQ(error_of([&] { random_bits(wide, {4}); }),
            "random_bits: the key is u32[3]; a key is u32[2] (threefry) or u32[4] (philox), or several of them with leading "
            "dimensions");
  EXPECT_EQ(error_of([&] { threefry(real, key, key); }),
            "threefry: the key is f32[2]; a key is u32[2], or several of them with leading dimensions");
  EXPECT_EQ(error_of([&] { threefry(key, key, wide); }),
            "threefry: the counters are u32[2] and u32[3]; both must be u32 of one shape");
  EXPECT_EQ(error_of([&] { threefry(keys, counters, counters); }),
            "threefry: keys u32[4,2] do not fit counters u32[5]; the leading dimensions must be those of the keys");
}

}  // namespace
}  // namespace lockstep
