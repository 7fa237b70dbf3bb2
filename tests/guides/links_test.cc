// Links between the pages, and the names of pages in sources and scripts: every target exists.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "guides/guide.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace guides;

// The anchor that GitHub gives a heading: lower case, spaces as hyphens, punctuation dropped.
std::string anchor_of(const std::string& heading) {
  const std::string text = std::regex_replace(heading, std::regex(R"(\[([^\]]*)\]\([^)]*\))"), "$1");
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ')
      out += '-';
    else if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80)
      out += static_cast<char>(std::tolower(byte));
  }
  return out;
}

// The lines of a page outside of its blocks of code.
std::vector<std::string> prose_of(const std::string& page) {
  std::istringstream in(page);
  std::vector<std::string> out;
  bool is_code = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```"))
      is_code = !is_code;
    else if (!is_code)
      out.push_back(line);
  }
  return out;
}

std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> out;
  std::map<std::string, int> seen;
  for (const std::string& line : prose_of(page)) {
    const size_t text = line.find_first_not_of('#');
    if (text == 0 || text == line.npos || line[text] != ' ') continue;
    const std::string anchor = anchor_of(line.substr(text + 1));
    const int times = seen[anchor]++;
    out.insert(times == 0 ? anchor : anchor + "-" + std::to_string(times));
  }
  return out;
}

// Targets of [text](target) and <img src="target">, outside of code.
std::vector<std::string> links_of(const std::string& page) {
  static const std::regex link(R"re(\]\(([^)\s]+)\)|src="([^"]+)")re"), code("`[^`]*`");
  std::vector<std::string> out;
  for (const std::string& line : prose_of(page)) {
    const std::string text = std::regex_replace(line, code, "");
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it)
      out.push_back((*it)[1].matched ? (*it)[1] : (*it)[2]);
  }
  return out;
}

TEST(Links, TargetsAndAnchorsExist) {
  for (const std::string& page : all_pages()) {
    const std::string text = read_text(LOCKSTEP_SOURCE_DIR "/" + page);
    for (const std::string& link : links_of(text)) {
      if (link.find("://") != link.npos) continue;
      const size_t hash = link.find('#');
      const std::string name = link.substr(0, hash);
      const fs::path file = name.empty() ? fs::path(LOCKSTEP_SOURCE_DIR) / page
                                         : (fs::path(LOCKSTEP_SOURCE_DIR) / page).parent_path() / name;
      ASSERT_TRUE(fs::exists(file)) << page << " links to " << link;
      if (hash == link.npos) continue;
      EXPECT_TRUE(anchors_of(read_text(file.string())).contains(link.substr(hash + 1))) << page << " links to " << link;
    }
  }
}

TEST(Links, EveryPageCanBeReachedFromTheIndex) {
  const fs::path docs = fs::path(LOCKSTEP_SOURCE_DIR) / "docs";
  std::set<fs::path> linked = {docs / "README.md"};
  for (const std::string& link : links_of(read_text((docs / "README.md").string())))
    if (link.find("://") == link.npos) linked.insert((docs / link.substr(0, link.find('#'))).lexically_normal());
  for (const std::string& page : all_pages()) {
    if (!page.starts_with("docs/")) continue;
    EXPECT_TRUE(linked.contains((fs::path(LOCKSTEP_SOURCE_DIR) / page).lexically_normal()))
        << page << " is missing in docs/README.md";
  }
}

TEST(Links, PagesNamedInSourcesExist) {
  static const std::regex name(R"(docs/[A-Za-z0-9_/-]+\.(md|svg))");
  for (const char* folder : {"benchmarks", "deploy", "examples", "include", "src", "tests", "tools"})
    for (const fs::directory_entry& each : fs::recursive_directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / folder)) {
      if (each.is_symlink() || !each.is_regular_file() || each.path().filename() == "links_test.cc" ||
          each.file_size() > 1 << 20)
        continue;
      const std::string text = read_text(each.path().string());
      if (text.find("docs/") == text.npos) continue;
      for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it)
        EXPECT_TRUE(fs::exists(fs::path(LOCKSTEP_SOURCE_DIR) / it->str())) << each.path() << " names " << it->str();
    }
}

TEST(Environment, EveryVariableIsDocumented) {
  static const std::regex name(R"re("(LOCKSTEP_[A-Z_]+)=?")re");
  const std::string page = read_text(LOCKSTEP_SOURCE_DIR "/docs/reference/environment.md");
  for (const fs::directory_entry& each : fs::recursive_directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / "src")) {
    if (each.path().extension() != ".cc" && each.path().extension() != ".h") continue;
    const std::string text = read_text(each.path().string());
    if (text.find("LOCKSTEP_") == text.npos) continue;
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it)
      EXPECT_NE(page.find("`" + (*it)[1].str() + "`"), page.npos) << each.path() << " reads " << (*it)[1];
  }
}

TEST(Links, AnchorsAreThoseOfGitHub) {
  EXPECT_EQ(anchor_of("`lockstep train`"), "lockstep-train");
  EXPECT_EQ(anchor_of("The engine, from C++"), "the-engine-from-c");
  EXPECT_EQ(anchors_of("# A b\n## C\n```\n# no\n```\n## C\n"), (std::set<std::string>{"a-b", "c", "c-1"}));
  EXPECT_EQ(links_of("[a](b.md#c) `[no](x)` <img src=\"d.svg\">\n"), (std::vector<std::string>{"b.md#c", "d.svg"}));
}

}  // namespace
}  // namespace lockstep
