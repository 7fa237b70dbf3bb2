// Only src/base/os reads the environment, starts processes, closes descriptors and uses libcurl.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cctype>
#include <sstream>
#include <string_view>

#include "structure/files.h"

namespace lockstep::structure {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether the function that is called at `at` is one of the C library: neither a method nor of another namespace.
// With `global`, only `::name(` counts, since methods have this name too.
bool is_library_call(std::string_view line, size_t at, bool global) {
  const std::string_view before = line.substr(0, at);
  if (before.ends_with("std::")) return true;
  if (before.ends_with("::")) return before.size() == 2 || !is_word(before[before.size() - 3]);
  return !global && (before.empty() || (!is_word(before.back()) && !before.ends_with('.') && !before.ends_with("->")));
}

bool in_string_or_comment(std::string_view line, size_t at) {
  bool quoted = false;
  for (size_t i = 0; i < at; ++i) {
    if (line[i] == '\\') ++i;
    if (line[i] == '"') quoted = !quoted;
    if (!quoted && line.substr(i).starts_with("//")) return true;
  }
  return quoted;
}

// "src/a.cc:12: getenv" for each use of an interface that only src/base/os uses.
std::vector<std::string> find_os_calls(const SourceFile& file) {
  constexpr std::string_view kFunctions[] = {"getenv(",       "secure_getenv(", "fork(",   "vfork(",  "posix_spawn(",
                                             "posix_spawnp(", "popen(",         "system(", "execv(",  "execve(",
                                             "execvp(",       "execvpe(",       "execl(",  "execle(", "execlp("};
  std::vector<std::string> out;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto find = [&](std::string_view text, const auto& counts) {
      for (size_t at = line.find(text); at != line.npos; at = line.find(text, at + 1))
        if (!in_string_or_comment(line, at) && counts(at))
          out.push_back(fmt::format("{}:{}: {}", file.path, number, text));
    };
    for (const std::string_view name : kFunctions)
      find(name, [&](size_t at) { return is_library_call(line, at, false); });
    find("close(", [&](size_t at) { return is_library_call(line, at, true); });
    for (const std::string_view text : {"char** environ", "<curl/curl.h>"}) find(text, [](size_t) { return true; });
  }
  return out;
}

TEST(OsCalls, OnlyBaseOsMakesThem) {
  std::vector<std::string> all;
  size_t in_base_os = 0;
  for (const SourceFile& file : read_tree({"src", "include/lockstep"}, {".h", ".cc", ".def"}))
    for (std::string& each : find_os_calls(file))
      if (file.path.starts_with("src/base/os/"))
        ++in_base_os;
      else
        all.push_back(std::move(each));
  EXPECT_GE(in_base_os, 5u);
  EXPECT_TRUE(all.empty()) << fmt::format("{}", fmt::join(all, "\n")) << "\nuse src/base/os";
}

TEST(OsCalls, AreFound) {
  for (const char* call :
       {"x = std::getenv(name);", "if (::fork() == 0)", "posix_spawnp(&pid, a, b)", "::close(fd);",
        "extern char** environ;", "#include <curl/curl.h>", "std::system(line);", "::execve(a, b, c);"})
    EXPECT_EQ(find_os_calls({"a.cc", call}).size(), 1u) << call;
  for (const char* other :
       {"file.close();", "void close() override {", "links_->close();", "// fork() and exec()", "print(\"system(x)\")",
        "FileSystem(x)", "void Coordinator::close(reason) {", "fork_child(arguments)"})
    EXPECT_EQ(find_os_calls({"a.cc", other}).size(), 0u) << other;
}

}  // namespace
}  // namespace lockstep::structure
