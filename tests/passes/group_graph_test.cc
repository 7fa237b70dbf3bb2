// Merging groups of equations: never into a cycle, and with work that grows with the number of equations only.
#include "passes/group_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep {
namespace {

using Edges = std::vector<std::vector<int>>;

// Whether the groups can be executed one after the other.
bool can_be_ordered(const Edges& after, const GroupGraph& graph) {
  std::vector<std::vector<int>> edges(after.size());
  std::vector<int> waits(after.size(), 0), ready;
  for (size_t i = 0; i < after.size(); ++i)
    for (const int j : after[i]) {
      const int from = graph.group_of(i), to = graph.group_of(static_cast<size_t>(j));
      if (from == to) continue;
      edges[static_cast<size_t>(from)].push_back(to);
      ++waits[static_cast<size_t>(to)];
    }
  size_t done = 0, groups = 0;
  for (size_t g = 0; g < after.size(); ++g) {
    if (graph.members(static_cast<int>(g)).empty()) continue;
    ++groups;
    if (waits[g] == 0) ready.push_back(static_cast<int>(g));
  }
  for (; !ready.empty(); ++done) {
    const int g = ready.back();
    ready.pop_back();
    for (const int to : edges[static_cast<size_t>(g)])
      if (--waits[static_cast<size_t>(to)] == 0) ready.push_back(to);
  }
  return done == groups;
}

TEST(GroupGraph, MergesNeighbors) {
  GroupGraph graph({{1}, {2}, {}});
  EXPECT_TRUE(graph.merge({1, 0}));
  EXPECT_EQ(graph.members(1), (std::vector<int>{1, 0}));
  EXPECT_TRUE(graph.members(0).empty());
  EXPECT_EQ(graph.group_of(0), 1);
  EXPECT_TRUE(graph.merge({2, 1}));
}

TEST(GroupGraph, RefusesWhatALongerPathConnects) {
  GroupGraph graph({{1, 2}, {2}, {}});  // 0 -> 1 -> 2 and 0 -> 2
  EXPECT_FALSE(graph.merge({2, 0}));
  EXPECT_EQ(graph.group_of(0), 0);
  EXPECT_TRUE(graph.merge({2, 1, 0}));
}

TEST(GroupGraph, RandomMergesSucceedExactlyIfTheyMakeNoCycle) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
    Edges after(static_cast<size_t>(5 + below(30)));
    for (size_t i = 0; i + 1 < after.size(); ++i)
      for (int k = below(3); k >= 0; --k) after[i].push_back(static_cast<int>(i) + 1 + below(after.size() - i - 1));
    GroupGraph graph(after);
    for (int merge = 0; merge < 40; ++merge) {
      std::vector<int> groups;
      for (int k = 2 + below(2); k > 0; --k) {
        const int g = graph.group_of(static_cast<size_t>(below(after.size())));
        if (std::find(groups.begin(), groups.end(), g) == groups.end()) groups.push_back(g);
      }
      GroupGraph forced = graph;
      forced.unite(groups);
      const bool possible = can_be_ordered(after, forced);
      ASSERT_EQ(graph.merge(groups), possible);
      ASSERT_TRUE(can_be_ordered(after, graph));
    }
  }
}

// A chain and its gradient: equation i of the chain is used by the next one and by equation n - 1 - i of the chain back.
TEST(GroupGraph, WorkGrowsWithTheNumberOfEquations) {
  const auto steps_of = [](int n) {
    Edges after(static_cast<size_t>(2 * n));
    for (int i = 0; i + 1 < 2 * n; ++i) after[static_cast<size_t>(i)].push_back(i + 1);
    for (int i = 0; i < n; ++i) after[static_cast<size_t>(i)].push_back(2 * n - 1 - i);
    GroupGraph graph(after);
    for (int i = 2 * n - 1; i-- > 0;) {
      std::vector<int> groups;
      size_t members = 1;
      for (const int user : after[static_cast<size_t>(i)])
        if (const int g = graph.group_of(static_cast<size_t>(user));
            std::find(groups.begin(), groups.end(), g) == groups.end()) {
          groups.push_back(g);
          members += graph.members(g).size();
        }
      groups.push_back(i);
      if (members <= 96) graph.merge(groups);
    }
    return graph.steps();
  };
  const int64_t short_chain = steps_of(1000), long_chain = steps_of(20000);
  EXPECT_LT(long_chain, 22 * short_chain);
  EXPECT_LT(long_chain, 20000 * 400);
}

}  // namespace
}  // namespace lockstep
