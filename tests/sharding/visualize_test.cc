#include "lockstep/visualize.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"
#include "sharding/grid.h"
#include "support/text.h"

namespace lockstep {
namespace {

TEST(VisualizeSharding, DrawsAVectorAsARow) {
  EXPECT_EQ("\n" + visualize_sharding({grid({4}, {"x"}), P("x")}, {16}), R"(
┌─────────┬─────────┬─────────┬─────────┐
│  CPU 0  │  CPU 1  │  CPU 2  │  CPU 3  │
└─────────┴─────────┴─────────┴─────────┘
)");
}

TEST(VisualizeSharding, DrawsRowsAndColumns) {
  const Mesh mesh = grid({3, 2}, {"x", "y"});
  EXPECT_EQ("\n" + visualize_sharding({mesh, P("x", "y")}, {6, 4}), R"(
┌─────────┬─────────┐
│  CPU 0  │  CPU 1  │
├─────────┼─────────┤
│  CPU 2  │  CPU 3  │
├─────────┼─────────┤
│  CPU 4  │  CPU 5  │
└─────────┴─────────┘
)");
  EXPECT_EQ("\n" + visualize_sharding({mesh, P("y", "x")}, {6, 6}), R"(
┌─────────┬─────────┬─────────┐
│  CPU 0  │  CPU 2  │  CPU 4  │
├─────────┼─────────┼─────────┤
│  CPU 1  │  CPU 3  │  CPU 5  │
└─────────┴─────────┴─────────┘
)");
}

TEST(VisualizeSharding, ListsTheDevicesOfReplicatedPieces) {
  const Mesh mesh = grid({2, 4}, {"x", "y"});
  EXPECT_EQ("\n" + visualize_sharding({mesh, P("x")}, {8, 8}), R"(
┌─────────────┐
│ CPU 0,1,2,3 │
├─────────────┤
│ CPU 4,5,6,7 │
└─────────────┘
)");
  EXPECT_EQ("\n" + visualize_sharding({mesh, P({}, "x")}, {8, 8}, {.width = 20}), R"(
┌────────┬────────┐
│ CPU 0, │ CPU 4, │
│ 1,2,3  │ 5,6,7  │
└────────┴────────┘
)");
  EXPECT_EQ("\n" + visualize_sharding({mesh, P()}, {}), R"(
┌─────────────────────┐
│ CPU 0,1,2,3,4,5,6,7 │
└─────────────────────┘
)");
}

TEST(VisualizeSharding, ShowsIndicesOfUnevenPieces) {
  EXPECT_EQ("\n" + visualize_sharding({grid({3}, {"data"}), P("data")}, {128, 784}), R"(
┌─────────────────┐
│      CPU 0      │
│  [0:43, 0:784]  │
├─────────────────┤
│      CPU 1      │
│ [43:86, 0:784]  │
├─────────────────┤
│      CPU 2      │
│ [86:128, 0:784] │
└─────────────────┘
)");
  EXPECT_EQ("\n" + visualize_sharding({grid({3}, {"data"}), P("data")}, {2}), R"(
┌─────────┬─────────┬─────────┐
│  CPU 0  │  CPU 1  │  CPU 2  │
│  [0:1]  │  [1:2]  │  [2:2]  │
└─────────┴─────────┴─────────┘
)");
}

TEST(VisualizeSharding, StaysWithinTheWidthWhereItCan) {
  const NamedSharding eight(grid({8}, {"x"}), P("x"));
  EXPECT_EQ("\n" + visualize_sharding(eight, {8}, {.width = 70}), R"(
┌───────┬───────┬───────┬───────┬───────┬───────┬───────┬───────┐
│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │ CPU 4 │ CPU 5 │ CPU 6 │ CPU 7 │
└───────┴───────┴───────┴───────┴───────┴───────┴───────┴───────┘
)");
  EXPECT_EQ(visualize_sharding(eight, {8}, {.width = 0}), visualize_sharding(eight, {8}, {.width = 70}));
}

TEST(VisualizeSharding, ColorsCellsOnRequest) {
  const NamedSharding two(grid({2}, {"x"}), P("x"));
  EXPECT_EQ(visualize_sharding(two, {4}, {.color = true}),
            "┌─────────┬─────────┐\n"
            "│\x1b[30;48;5;117m  CPU 0  \x1b[0m│\x1b[30;48;5;216m  CPU 1  \x1b[0m│\n"
            "└─────────┴─────────┘\n");
  EXPECT_EQ(occurrences(visualize_sharding(two, {4}), "\x1b"), 0u);
}

TEST(VisualizeSharding, NamesGpus) {
  const Mesh mesh({{.id = 0, .platform = Platform::cuda}}, {1}, {"x"});
  EXPECT_NE(visualize_sharding({mesh, P()}, {4}).find("GPU 0"), std::string::npos);
}

TEST(VisualizeSharding, RejectsMoreThanTwoDimensions) {
  const NamedSharding sharding(grid({2}, {"x"}), P({}, "x"));
  EXPECT_THROWS(visualize_sharding(sharding, {2, 3, 4}), Error,
                "visualize_sharding: [2, 3, 4] has 3 dimensions; at most 2 can be drawn");
  EXPECT_THROWS(visualize_sharding(sharding, {2}), Error, "P(None, 'x') has 2 entries, but [2] has 1 dimensions");
  EXPECT_THROWS(sharding_svg(sharding, {2, 3, 4}), Error, "[2, 3, 4] has 3 dimensions");
  EXPECT_THROWS(sharding_svg(sharding, {2, 2}, 99), Error, "sharding_svg: the width is 99 pixels; use at least 100");
}

TEST(ShardingSvg, DrawsCellsInProportion) {
  EXPECT_EQ("\n" + sharding_svg({grid({2}, {"<x>"}), P({}, "<x>")}, {2, 3}, 316), R"svg(
<svg xmlns="http://www.w3.org/2000/svg" width="316" height="236" viewBox="0 0 316 236" font-family="monospace" font-size="13">
<rect width="100%" height="100%" fill="white"/>
<text x="8" y="19">[2, 3] P(None, '&lt;x&gt;') on Mesh('&lt;x&gt;': 2)</text>
<g><title>CPU 0 [0:2, 0:2]</title><rect x="8.00" y="28.00" width="200.00" height="200.00" fill="#87d7ff" stroke="#333"/><text x="108.00" y="133.00" text-anchor="middle">CPU 0</text></g>
<g><title>CPU 1 [0:2, 2:3]</title><rect x="208.00" y="28.00" width="100.00" height="200.00" fill="#ffaf87" stroke="#333"/><text x="258.00" y="133.00" text-anchor="middle">CPU 1</text></g>
</svg>
)svg");
}

TEST(ShardingSvg, HasOneCellPerShard) {
  const std::string svg = sharding_svg({grid({4, 2}, {"x", "y"}), P("x", "y")}, {128, 784});
  EXPECT_EQ(occurrences(svg, "<g>"), 8u);
  EXPECT_EQ(occurrences(svg, ">CPU "), 16u);  // in the cell and in its title
}

TEST(ShardingSvg, OmitsTextThatDoesNotFit) {
  const std::string svg = sharding_svg({grid({64}, {"x"}), P("x")}, {64}, 200);
  EXPECT_EQ(occurrences(svg, "<title>CPU "), 64u);
  EXPECT_EQ(occurrences(svg, ">CPU "), 64u);
}

TEST(ShardingSvg, DrawsEmptyArrays) {
  const NamedSharding sharding(grid({2}, {"x"}), P("x"));
  for (const Shape& shape : {Shape{0}, Shape{0, 0}, Shape{0, 5}, Shape{5, 0}}) {
    const std::string svg = sharding_svg(sharding, shape);
    EXPECT_EQ(occurrences(svg, "<g>"), 2u);
    EXPECT_EQ(occurrences(svg, "nan") + occurrences(svg, "inf"), 0u) << svg;
  }
}

}  // namespace
}  // namespace lockstep
