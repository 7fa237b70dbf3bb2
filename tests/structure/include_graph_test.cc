// Folders of src/ use only the folders before them.
#include "structure/include_graph.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "lockstep/error.h"
#include "structure/files.h"

namespace lockstep::structure {
namespace {

TEST(IncludeGraph, TreeKeepsItsOrder) {
  const Walls walls = read_walls(read_text(LOCKSTEP_BINARY_DIR "/walls/folders.txt"));
  const std::vector<SourceFile> files = read_tree({"src", "include/lockstep"}, {".h", ".cc", ".def"});
  ASSERT_GT(files.size(), 500u);
  const IncludeGraph graph = make_include_graph(walls, files);
  std::printf("%s", to_string(walls, graph).c_str());
  EXPECT_EQ(fmt::format("{}", fmt::join(graph.violations, "\n")), "");
}

const char* const kWalls =
    "base: base | error.h\n"
    "lane: lane base | lane.h\n"
    "comm: comm lane base | \n";

TEST(IncludeGraph, EdgeAgainstTheOrderIsAViolation) {
  const IncludeGraph graph = make_include_graph(
      read_walls(kWalls),
      {{"src/lane/pool.h", "#pragma once\n#include <vector>\n#include \"comm/comm.h\"\n"},
       {"src/comm/comm.cc", "#include \"comm/comm.h\"\n#include \"lane/pool.h\"\n#include \"lockstep/error.h\"\n"}});
  ASSERT_EQ(graph.violations.size(), 1u);
  EXPECT_EQ(graph.violations[0], "src/lane/pool.h:3: includes comm/comm.h of comm; lane may include base, lane");
  EXPECT_EQ(to_string(read_walls(kWalls), graph), "base ->\nlane -> comm 1\ncomm -> base 1 lane 1\n");
}

TEST(IncludeGraph, PublicHeadersBelongToFolders) {
  const IncludeGraph graph =
      make_include_graph(read_walls(kWalls), {{"src/base/check.h", "#include \"lockstep/lane.h\"\n"},
                                              {"include/lockstep/error.h", "#include \"lane/pool.h\"\n"},
                                              {"include/lockstep/stray.h", ""}});
  ASSERT_EQ(graph.violations.size(), 3u);
  EXPECT_EQ(graph.violations[0], "src/base/check.h:1: includes lockstep/lane.h of lane; base may include base");
  EXPECT_EQ(graph.violations[1], "include/lockstep/error.h:1: includes lane/pool.h of lane; base may include base");
  EXPECT_EQ(graph.violations[2], "include/lockstep/stray.h: belongs to no folder of the build");
}

TEST(IncludeGraph, FoldersCannotUseLaterOnes) {
  EXPECT_THROW(read_walls("base: base lane | \nlane: lane | \n"), Error);
}

}  // namespace
}  // namespace lockstep::structure
