// Specs, shardings, axes and donations for each array of a tree.
#include <map>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

template <class T>
struct LayerOf {
  T w, b;
};
using Layer = LayerOf<Array>;
struct Params {
  Layer up, down;
};
template <class T>
struct ParamsOf {
  LayerOf<T> up;
  T down;  // one value for both arrays of Params::down
};

Mesh model_mesh() { return make_mesh({{"model", 4}}); }
Params make_params() {
  return {{reshape(arange(16), {2, 8}), arange(8)}, {reshape(arange(16), {8, 2}), arange(2)}};
}

std::string shard_texts(const Params& p) {
  std::string out;
  for (const auto& [path, leaf] : tree_flatten(p)) out += path + to_string(leaf.shape()) + ' ';
  return out;
}

// The shapes of the shards that the function sees.
std::string shards_with(const PerLeaf<PartitionSpec>& specs) {
  std::string seen;
  shard_map(
      [&](Params p) {
        seen = shard_texts(p);
        return Array(0.f);
      },
      {.mesh = model_mesh(), .in_specs = {specs}, .out_specs = {P()}})(make_params());
  return seen;
}

constexpr const char* kSharded = "up/w[2, 2] up/b[2] down/w[2, 2] down/b[2] ";

TEST(PerLeaf, SpecsComeAsStructsAsMapsAndByPattern) {
  struct Specs {
    LayerOf<PartitionSpec> up, down;
  };
  EXPECT_EQ(shards_with(Specs{{P({}, "model"), P("model")}, {P("model"), P()}}), kSharded);
  EXPECT_EQ(shards_with(std::map<std::string, PartitionSpec>{{"up/w", P({}, "model")},
                                                             {"up/b", P("model")},
                                                             {"down/w", P("model")},
                                                             {"down/b", P()}}),
            kSharded);
  EXPECT_EQ(shards_with(specs_by_path({{"up/w", P({}, "model")}, {"*/w", P("model")}, {"up/?", P("model")}, {"*", P()}})),
            kSharded);
}

TEST(PerLeaf, AValueForAPartIsForAllArraysInIt) {
  EXPECT_EQ(shards_with(ParamsOf<PartitionSpec>{{P({}, "model"), P("model")}, P()}),
            "up/w[2, 2] up/b[2] down/w[8, 2] down/b[2] ");
  EXPECT_EQ(shards_with(P()), "up/w[2, 8] up/b[8] down/w[8, 2] down/b[2] ");
}

TEST(PerLeaf, ResultsHaveASpecForEachArray) {
  const auto f = shard_map([](Params p) { return std::pair{p, psum(sum(p.up.b), "model")}; },
                           {.mesh = model_mesh(),
                            .in_specs = {ParamsOf<PartitionSpec>{{P({}, "model"), P("model")}, P()}},
                            .out_specs = {ParamsOf<PartitionSpec>{{P({}, "model"), P("model")}, P()}, P()}});
  const auto [params, total] = f(make_params());
  EXPECT_EQ(shard_texts(params), shard_texts(make_params()));
  EXPECT_EQ(params.up.w.to_vector<int>(), make_params().up.w.to_vector<int>());
  EXPECT_EQ(to_string(params.up.w.sharding().spec()), "P(None, 'model')");
  EXPECT_EQ(total.item<int>(), 28);
  const auto whole =
      shard_map([](Params p) { return std::pair{p, p.down.b}; },
                {.mesh = model_mesh(), .in_specs = {P()}, .out_specs = {specs_by_path({{"0/up/*", P()}, {"*", P()}})}});
  EXPECT_EQ(whole(make_params()).second.size(), 2);
}

TEST(PerLeaf, ErrorsNamePaths) {
  using Map = std::map<std::string, PartitionSpec>;
  EXPECT_THROWS(shards_with(Map{{"up", P()}, {"down/w", P()}}), Error,
                "shard_map: in_specs[0]: no entry for the array \"down/b\"; the entries are \"down/w\", \"up\"; add one");
  EXPECT_THROWS(shards_with(Map{{"up", P()}, {"down", P()}, {"dwn", P()}}), Error,
                "shard_map: in_specs[0]: the entry \"dwn\" belongs to no array; the arrays are \"up/w\", \"up/b\"");
  EXPECT_THROWS(shards_with(specs_by_path({{"*/w", P()}})), Error,
                "no pattern matches the array \"up/b\"; the patterns are \"*/w\"; add {\"*\", ...} for the others");
}

TEST(PerLeaf, PatternsMatchAnyTextAndAnEmptyPrefix) {
  EXPECT_TRUE(detail::matches_pattern("*/w", "layers/0/w"));
  EXPECT_TRUE(detail::matches_pattern("*/w", "w"));
  EXPECT_TRUE(detail::matches_pattern("layers/*/mlp/*", "layers/10/mlp/w/scale"));
  EXPECT_TRUE(detail::matches_pattern("*", ""));
  EXPECT_FALSE(detail::matches_pattern("*/w", "layers/0/wq"));
  EXPECT_FALSE(detail::matches_pattern("w?", "w"));
  EXPECT_FALSE(detail::matches_pattern("", "w"));
}

TEST(PerLeaf, JitTakesShardingsForEachArray) {
  const Mesh mesh = model_mesh();
  const auto shardings = shardings_by_path(mesh, {{"up/w", P({}, "model")}, {"*", P()}});
  const auto f = jit([](Params p, Array x) { return std::pair{tree_map([&](Array a) { return a + x; }, p), x}; },
                     {.in_shardings = {shardings, NamedSharding(mesh, P())},
                      .out_shardings = {shardings, NamedSharding()}});
  const auto [params, x] = f(make_params(), 1);
  EXPECT_EQ(to_string(params.up.w.sharding().spec()), "P(None, 'model')");
  EXPECT_EQ(params.down.b.to_vector<int>(), (std::vector<int>{1, 2}));
  EXPECT_THROWS(jit([](Params p) { return p; }, {.in_shardings = {shardings_by_path(mesh, {{"up/*", P()}})}})(make_params()),
                Error, "jit: in_shardings[0]: no pattern matches the array \"down/w\"");
}

TEST(PerLeaf, DevicePutTakesShardingsForEachArray) {
  const Mesh mesh = model_mesh();
  const Params p = device_put(
      make_params(), named_shardings(mesh, ParamsOf<PartitionSpec>{{P({}, "model"), P("model")}, P()}));
  EXPECT_EQ(to_string(p.up.b.sharding().spec()), "P('model')");
  EXPECT_EQ(to_string(p.down.w.sharding().spec()), "P()");
  EXPECT_EQ(p.up.w.to_vector<int>(), make_params().up.w.to_vector<int>());
  const auto f = jit([&](Params q) { return with_sharding_constraint(q, shardings_by_path(mesh, {{"*/w", P({}, {})}, {"*", P()}})); });
  EXPECT_EQ(shard_texts(f(p)), shard_texts(p));
}

TEST(PerLeaf, VmapTakesAxesForEachArray) {
  const auto f = [](Layer p, Array x) { return std::pair{p.w * x + p.b, p.b}; };
  const Layer p{array({{1, 2, 3}, {4, 5, 6}}), Array::from(std::vector<int>{10}, {})};
  const auto g = vmap(f, {.in_axes = {LayerOf<Axis>{1, std::nullopt}, 0}, .out_axes = {0, std::nullopt}});
  const auto [y, b] = g(p, array({1, 2, 3}));
  EXPECT_TEXT(y, "i32[3,2] [[11, 14], [14, 20], [19, 28]]");
  EXPECT_TEXT(b, "i32[] 10");
  const auto by_path = vmap(f, {.in_axes = {axes_by_path({{"w", -1}, {"*", std::nullopt}}), 0}, .out_axes = {1, std::nullopt}});
  EXPECT_TEXT(by_path(p, array({1, 2, 3})).first, "i32[2,3] [[11, 14, 19], [14, 20, 28]]");
  EXPECT_THROWS(vmap(f, {.in_axes = {LayerOf<Axis>{1, std::nullopt}, 0}, .out_axes = {0, 0, 0}})(p, array({1, 2, 3})), Error,
                "vmap: out_axes has 3 entries for a result of 2 elements");
}

TEST(PerLeaf, PmapTakesAxesForEachArray) {
  const auto f = pmap([](Layer p, Array x) { return std::pair{p.w * x, psum(p.w, "devices")}; },
                      {.in_axes = {LayerOf<Axis>{1, std::nullopt}}, .out_axes = {0, std::nullopt}});
  const auto [y, total] = f(Layer{array({{1, 2}, {3, 4}}), array({5})}, array({1, 10}));
  EXPECT_TEXT(y, "i32[2,2] [[1, 3], [20, 40]]");
  EXPECT_TEXT(total, "i32[2] [3, 7]");
}

TEST(PerLeaf, DonatesArraysByPath) {
  struct State {
    Array step;
    std::vector<Array> moments;
  };
  const auto f = jit([](State s) { return tree_map([](Array a) { return a + 1; }, s); }, {.donate_paths = {"0/moments/*"}});
  const State s{ones({3}), {ones({3}), ones({3})}};
  EXPECT_TEXT(f(s).moments[1], "f32[3] [2, 2, 2]");
  EXPECT_TEXT(s.step, "f32[3] [1, 1, 1]");
  EXPECT_THROWS(s.moments[0].to_vector<float>(), Error, "donated");
  const auto wrong = jit([](State t) { return t; }, {.donate_paths = {"1/*"}});
  EXPECT_THROWS(wrong(State{ones({3}), {}}), Error, "jit: the pattern \"1/*\" of donate_paths matches no array");
}

}  // namespace
}  // namespace lockstep
