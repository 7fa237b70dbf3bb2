// The files of the source tree, for tests of its structure.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "structure/include_graph.h"

namespace lockstep::structure {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// All files under these folders with one of these extensions (".cc"), sorted by path.
inline std::vector<SourceFile> read_tree(std::initializer_list<const char*> folders,
                                         std::initializer_list<const char*> extensions) {
  const std::filesystem::path root = LOCKSTEP_SOURCE_DIR;
  std::vector<SourceFile> out;
  for (const char* folder : folders)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() &&
          std::find(extensions.begin(), extensions.end(), entry.path().extension().string()) != extensions.end())
        out.push_back({std::filesystem::relative(entry.path(), root).string(), read_text(entry.path())});
  std::sort(out.begin(), out.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return out;
}

}  // namespace lockstep::structure
