#include "structure/include_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <regex>
#include <sstream>

#include "base/check.h"

namespace lockstep::structure {
namespace {

// "src/comm/tcp/links.h" -> "comm"; "" where a file belongs to no folder.
std::string folder_of(const Walls& walls, const std::string& path) {
  const std::string source = "src/", header = "include/lockstep/";
  if (path.starts_with(source)) return path.substr(source.size(), path.find('/', source.size()) - source.size());
  if (!path.starts_with(header)) return "";
  const auto owner = walls.owners.find(path.substr(header.size()));
  return owner == walls.owners.end() ? "" : owner->second;
}

// The folder that an include names: of "comm/links.h" or "lockstep/jit.h"; "" for anything else.
std::string included_folder(const Walls& walls, const std::string& name) {
  const std::string first = name.substr(0, name.find('/'));
  if (walls.sees.contains(first)) return first;
  return folder_of(walls, "include/" + name);
}

}  // namespace

Walls read_walls(const std::string& text) {
  Walls out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':'), bar = line.find('|');
    if (colon == std::string::npos || bar == std::string::npos)
      throw_error("walls: \"{}\" is not \"folder: folders | headers\"", line);
    const std::string folder = line.substr(0, colon);
    std::istringstream seen(line.substr(colon + 1, bar - colon - 1)), headers(line.substr(bar + 1));
    for (std::string each; seen >> each;) {
      if (each != folder && !out.sees.contains(each))
        throw_error("walls: {} may include {}, which does not come before it", folder, each);
      out.sees[folder].insert(each);
    }
    for (std::string each; headers >> each;) out.owners[each] = folder;
    out.order.push_back(folder);
  }
  return out;
}

IncludeGraph make_include_graph(const Walls& walls, const std::vector<SourceFile>& files) {
  static const std::regex include("^\\s*#\\s*include\\s+\"([^\"]+/[^\"]+)\".*");
  IncludeGraph out;
  for (const SourceFile& file : files) {
    const std::string folder = folder_of(walls, file.path);
    if (folder.empty() || !walls.sees.contains(folder)) {
      out.violations.push_back(fmt::format("{}: belongs to no folder of the build", file.path));
      continue;
    }
    std::istringstream lines(file.text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      const std::string to = included_folder(walls, match[1]);
      if (to.empty()) continue;  // generated, or of another project
      if (to != folder) ++out.edges[folder][to];
      if (!walls.sees.at(folder).contains(to))
        out.violations.push_back(fmt::format("{}:{}: includes {} of {}; {} may include {}", file.path, number,
                                             match[1].str(), to, folder, fmt::join(walls.sees.at(folder), ", ")));
    }
  }
  return out;
}

std::string to_string(const Walls& walls, const IncludeGraph& graph) {
  std::string out;
  for (const std::string& folder : walls.order) {
    out += folder + " ->";
    const auto found = graph.edges.find(folder);
    for (const std::string& to : walls.order)
      if (found != graph.edges.end() && found->second.contains(to))
        out += fmt::format(" {} {}", to, found->second.at(to));
    out += "\n";
  }
  return out;
}

}  // namespace lockstep::structure
