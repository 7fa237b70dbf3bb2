#include <map>
#include <optional>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

enum class Activation { tanh, relu };

struct Layer {
  Array w, b;
};

struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Array> extra;
  std::optional<Array> scale;
  std::tuple<Array, std::pair<Array, int>> rest;
  std::array<Array, 2> moments;
  Activation activation = Activation::tanh;
  std::string name;
  double rate = 0;
};

Model make_model() {
  return {.layers = {{array({1, 2}), Array(3)}, {array({4, 5}), Array(6)}},
          .extra = {{"a", Array(7)}, {"b", Array(8)}},
          .scale = Array(9),
          .rest = {Array(10), {Array(11), 5}},
          .moments = {Array(12), Array(13)},
          .activation = Activation::relu,
          .name = "mlp",
          .rate = 0.5};
}

template <class T>
std::vector<std::string> paths(const T& tree) {
  std::vector<std::string> out;
  for (const auto& [path, leaf] : tree_flatten(tree)) out.push_back(path);
  return out;
}

using Paths = std::vector<std::string>;

TEST(Tree, PathsAreFieldNamesIndicesAndKeys) {
  EXPECT_EQ(paths(make_model()), (Paths{"layers/0/w", "layers/0/b", "layers/1/w", "layers/1/b", "extra/a", "extra/b",
                                        "scale", "rest/0", "rest/1/0", "moments/0", "moments/1"}));
}

TEST(Tree, AnArrayIsATreeOfOneLeafWithoutAPath) {
  EXPECT_EQ(paths(Array(1)), Paths{""});
  EXPECT_EQ(tree_leaves(Array(1)).size(), 1u);
}

TEST(Tree, LocalStructsHaveFieldNames) {
  struct Inner {
    Array gain;
    int64_t repeats;
    Array shift;
  };
  struct Outer {
    Inner first;
    std::vector<Inner> more;
  };
  const Outer tree{{Array(1), 2, Array(3)}, {{Array(4), 5, Array(6)}}};
  EXPECT_EQ(paths(tree), (Paths{"first/gain", "first/shift", "more/0/gain", "more/0/shift"}));
}

TEST(Tree, MapsMayHaveIntegerAndEnumKeys) {
  EXPECT_EQ(paths(std::map<int, Array>{{-2, 1}, {7, 2}}), (Paths{"-2", "7"}));
  EXPECT_EQ(paths(std::map<Activation, Array>{{Activation::relu, 1}}), Paths{"1"});
}

TEST(Tree, EmptyContainersHaveNoLeaves) {
  EXPECT_TRUE(tree_leaves(std::vector<Layer>{}).empty());
  EXPECT_TRUE(tree_leaves(std::optional<Array>{}).empty());
  EXPECT_TRUE(tree_leaves(std::tuple<>{}).empty());
  EXPECT_TRUE(tree_leaves(std::map<std::string, Layer>{}).empty());
  EXPECT_TRUE(tree_leaves(Nothing{}).empty());
  EXPECT_TRUE(tree_leaves(std::vector<bool>{true}).empty());
}

TEST(Tree, MapKeepsStructureAndStaticValues) {
  const Model doubled = tree_map([](const Array& a) { return a * 2; }, make_model());
  EXPECT_TEXT(doubled.layers[1].w, "i32[2] [8, 10]");
  EXPECT_TEXT(doubled.extra.at("b"), "i32[] 16");
  EXPECT_TEXT(*doubled.scale, "i32[] 18");
  EXPECT_TEXT(std::get<1>(doubled.rest).first, "i32[] 22");
  EXPECT_EQ(std::get<1>(doubled.rest).second, 5);
  EXPECT_EQ(doubled.activation, Activation::relu);
  EXPECT_EQ(doubled.name, "mlp");
  EXPECT_EQ(doubled.rate, 0.5);
}

TEST(Tree, MapTakesSeveralTreesOfOneStructure) {
  const std::vector<Layer> a{{1, 2}}, b{{10, 20}};
  const std::pair<Array, Array> c{100, 200};
  const std::vector<Layer> out = tree_map([](Array x, Array y, Array z) { return x + y + z; }, a, b, c);
  EXPECT_EQ(out[0].w.item<int>(), 111);
  EXPECT_EQ(out[0].b.item<int>(), 222);
}

TEST(Tree, UnflattenInvertsFlatten) {
  const Model model = make_model();
  const std::vector<Array> leaves = tree_leaves(model);
  const Model again = tree_unflatten(model, leaves);
  const std::vector<Array> leaves_again = tree_leaves(again);
  ASSERT_EQ(leaves.size(), leaves_again.size());
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_EQ(leaves[i].node(), leaves_again[i].node());
}

TEST(Tree, MismatchErrorsNameBothCounts) {
  const std::vector<Array> two{1, 2}, three{1, 2, 3};
  EXPECT_THROWS(tree_map([](Array a, Array) { return a; }, two, three), Error,
                "tree_map: one tree has 2 arrays, another 3; the trees must have the same structure");
  EXPECT_THROWS(tree_unflatten(three, two), Error, "tree_unflatten: one tree has 3 arrays, another 2");
}

TEST(Tree, StructsOfTwentyFourFieldsAreTied) {
  struct Wide {
    Array a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24;
  };
  EXPECT_EQ(paths(Wide{}).size(), 24u);
  EXPECT_EQ(paths(Wide{}).back(), "a24");
}

}  // namespace
}  // namespace lockstep
