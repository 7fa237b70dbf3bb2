// The include graph of src/ and include/lockstep, checked against the folders that each folder may use.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::structure {

// What the build allows: see lockstep_folder() in cmake/lockstep_build.cmake.
struct Walls {
  std::vector<std::string> order;  // folders, earliest first
  std::map<std::string, std::set<std::string>>
      sees;                                   // the folders whose headers a folder may include, itself among them
  std::map<std::string, std::string> owners;  // public header -> folder
};

// Reads lines "folder: folder ... | public_header ...". Throws Error for a folder that sees one that is not listed
// before it.
Walls read_walls(const std::string& text);

struct SourceFile {
  std::string path;  // relative to the root of the tree: src/comm/links.h, include/lockstep/jit.h
  std::string text;
};

struct IncludeGraph {
  std::map<std::string, std::map<std::string, int>> edges;  // folder -> folder it includes -> number of includes
  std::vector<std::string> violations;                      // "src/a/b.h:12: includes x/y.h; a may include only ..."
};

IncludeGraph make_include_graph(const Walls&, const std::vector<SourceFile>&);

// One line per folder: "comm -> base 38, lane 10".
std::string to_string(const Walls&, const IncludeGraph&);

}  // namespace lockstep::structure
