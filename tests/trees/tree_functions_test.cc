// Functions on trees beyond tree_map of arrays.
#include <cmath>
#include <map>
#include <optional>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

template <class T>
struct PairOf {
  T a, b;
  int repeats = 1;
};
using Tree = std::map<std::string, std::vector<Array>>;

Tree make_tree() { return {{"x", {array({1., 2.}), Array(3.f)}}, {"y", {array({{4, 5}, {6, 7}})}}}; }

TEST(TreeFunctions, MapToAnotherLeafType) {
  const auto shapes = tree_map([](const Array& a) { return a.shape(); }, make_tree());
  static_assert(std::is_same_v<decltype(shapes), const std::map<std::string, std::vector<Shape>>>);
  EXPECT_EQ(shapes.at("y")[0], (Shape{2, 2}));
  const PairOf<std::string> texts =
      tree_map([](const Array& a) { return a.to_string(); }, PairOf<Array>{array({1}), Array(2), 7});
  EXPECT_EQ(texts.a, "i32[1] [1]");
  EXPECT_EQ(texts.repeats, 7);
  const std::tuple<std::optional<Array>, std::array<Array, 2>, int> mixed{Array(1), {Array(2), Array(3)}, 4};
  const auto names = tree_map([](const Array& a) { return to_string(a.type()); }, mixed);
  EXPECT_EQ(std::get<1>(names)[1], "i32[]");
  EXPECT_EQ(std::get<2>(names), 4);
}

TEST(TreeFunctions, MapWithPath) {
  const auto paths = tree_map_with_path([](const std::string& path, const Array&) { return path; }, make_tree());
  EXPECT_EQ(paths.at("x")[1], "x/1");
  const Tree masked = tree_map_with_path(
      [](const std::string& path, Array a) { return path.starts_with("x") ? zeros_like(a) : a; }, make_tree());
  EXPECT_TEXT(masked.at("x")[0], "f32[2] [0, 0]");
  EXPECT_TEXT(masked.at("y")[0], "i32[2,2] [[4, 5], [6, 7]]");
  EXPECT_EQ(tree_leaves_with_path(make_tree())[2].first, "y/0");
}

TEST(TreeFunctions, StructuresCompareAndUnflatten) {
  const auto structure = tree_structure(make_tree());
  EXPECT_EQ(structure.num_leaves(), 3u);
  Tree other = make_tree();
  EXPECT_EQ(structure, tree_structure(other));
  EXPECT_TEXT(tree_unflatten(structure, {Array(1), Array(2), Array(3)}).at("x")[1], "i32[] 2");
  EXPECT_THROWS(structure.unflatten({Array(1)}), Error, "tree_unflatten: one tree has 3 arrays, another 1");
  other["z"] = {};
  EXPECT_FALSE(structure == tree_structure(other));
  EXPECT_EQ(tree_structure(PairOf<Array>{}).to_string(), "a: an array\nb: an array\nrepeats: 1\n");
}

TEST(TreeFunctions, ReduceAndAll) {
  EXPECT_EQ(tree_reduce([](int64_t n, const Array& a) { return n + a.size(); }, make_tree(), int64_t{0}), 7);
  EXPECT_TEXT(tree_all(make_tree()), "bool[] true");
  EXPECT_TEXT(tree_all(std::vector<Array>{array({1, 0})}), "bool[] false");
  EXPECT_TEXT(tree_all(std::vector<Array>{}), "bool[] true");
  EXPECT_TEXT(jit([](Tree t) { return tree_all(t); })(make_tree()), "bool[] true");
}

TEST(TreeFunctions, TransposeExchangesContainerAndTree) {
  const std::vector<std::pair<Array, Array>> list{{1, 2}, {3, 4}, {5, 6}};
  const std::pair<std::vector<Array>, std::vector<Array>> columns = tree_transpose(list);
  EXPECT_EQ(columns.second.size(), 3u);
  EXPECT_EQ(columns.second[2].item<int>(), 6);
  const PairOf<std::array<Array, 2>> both = tree_transpose(std::array<PairOf<Array>, 2>{{{1, 2}, {3, 4}}});
  EXPECT_EQ(both.b[0].item<int>(), 2);
  EXPECT_THROWS(tree_transpose(std::vector<PairOf<Array>>{}), Error, "tree_transpose: the container is empty");
  EXPECT_THROWS(tree_transpose(std::vector<Tree>{make_tree(), {}}), Error, "tree_transpose");
}

TEST(TreeFunctions, RavelAndUnravel) {
  const auto [flat, unravel] = ravel_pytree(make_tree());
  EXPECT_TEXT(flat, "f32[7] [1, 2, 3, 4, 5, 6, 7]");
  const Tree back = unravel(flat * 2);
  EXPECT_TEXT(back.at("x")[1], "f32[] 6");
  EXPECT_TEXT(back.at("y")[0], "i32[2,2] [[8, 10], [12, 14]]");
  EXPECT_THROWS(unravel(ones({3})), Error, "unravel: the vector is f32[3], but the tree has 7 elements");
  EXPECT_TEXT(ravel_pytree(std::vector<Array>{}).first, "f32[0] []");
  const auto loss = [unravel](Array v) { return sum(square(unravel(v).at("x")[0])); };
  EXPECT_TEXT(grad(loss)(flat), "f32[7] [2, 4, 0, 0, 0, 0, 0]");
}

TEST(TreeFunctions, EvalShapeComputesNothing) {
  const auto out = eval_shape([](Array x, int n) { return std::pair{matmul(x, x), tile(sum(x), {n})}; }, ones({4, 4}), 3);
  EXPECT_EQ(to_string(out.first.type()), "f32[4,4]");
  EXPECT_EQ(to_string(out.second.type()), "f32[3]");
  EXPECT_THROWS(out.first.to_vector<float>(), Error, "");
}

TEST(TreeFunctions, ListsOfSeveralTypesAndVectorsBecomeArrays) {
  EXPECT_TEXT(array({1.5, 2, 3}), "f32[3] [1.5, 2, 3]");
  EXPECT_TEXT(array({{1, 2.5}, {3, 4}}), "f32[2,2] [[1, 2.5], [3, 4]]");
  EXPECT_TEXT(array({1, int64_t{2}}), "i32[2] [1, 2]");
  EXPECT_TEXT(array({1, int64_t{1} << 40}), "i64[2] [1, 1099511627776]");
  EXPECT_TEXT(array({1., double(INFINITY), -1}), "f32[3] [1, inf, -1]");
  EXPECT_TEXT(array({1.5, 2}, f64), "f64[2] [1.5, 2]");
  EXPECT_TEXT(array(std::vector<double>{1, 2}), "f32[2] [1, 2]");
  EXPECT_TEXT(array(std::vector<bool>{true, false}), "bool[2] [true, false]");
  EXPECT_THROWS(array({{1, 2.5}, {3}}), Error, "array: ragged lists");
}

TEST(TreeFunctions, FunctionsAreObjectsForTransforms) {
  EXPECT_ELEMENTS(vmap(fn::log1p)(array({0., 1.})), {0, 0.6931472}, 1e-6);
  EXPECT_ELEMENTS(grad(fn::cos)(0.5f), {-0.4794255}, 1e-6);
  EXPECT_TEXT(tree_map(fn::square, std::vector<Array>{array({3})})[0], "i32[1] [9]");
  EXPECT_TEXT(jit(fn::maximum)(array({1, 5}), 3), "i32[2] [3, 5]");
}

}  // namespace
}  // namespace lockstep
