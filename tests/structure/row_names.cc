#include "structure/row_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

namespace lockstep::structure {
namespace {

void add_names(const char* pattern, std::string_view text, std::set<std::string>& out) {
  const std::regex line(pattern);
  for (std::cregex_iterator at(text.data(), text.data() + text.size(), line), end; at != end; ++at)
    out.insert((*at)[1].str());
}

}  // namespace

std::set<std::string> row_names(std::string_view ops_def, std::string_view elementwise_def) {
  std::set<std::string> out;
  add_names(R"((?:^|\n)OP\((\w+)\))", ops_def, out);
  add_names(R"((?:^|\n)(?:UNARY|PREDICATE|BINARY|COMPARE)\((\w+),)", elementwise_def, out);
  return out;
}

std::vector<std::string> find_row_names(const std::set<std::string>& rows, const std::string& path,
                                        std::string_view text) {
  static const std::regex kRow(R"(\b(\w+)_op\b)");
  static const std::regex kComparison(R"(\bop(?:->|\.)name\s*(?:==|!=|\.))");
  std::vector<std::string> out;
  int number = 0;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view whole = text.substr(begin, end - begin);
    const std::string line(whole.substr(0, whole.find("//")));
    begin = end + 1;
    for (std::sregex_iterator at(line.begin(), line.end(), kRow), none; at != none; ++at)
      if (rows.contains((*at)[1].str()))
        out.push_back(fmt::format("{}:{}: names the row {}; read a column of the row", path, number + 1, at->str()));
    if (std::regex_search(line, kComparison))
      out.push_back(fmt::format("{}:{}: compares the name of an op; read a column of its row", path, number + 1));
  }
  return out;
}

}  // namespace lockstep::structure
