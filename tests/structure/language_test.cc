// Comments, messages, names and docs are plain English: phrases that cost readers a second look do not come back.
#include "structure/language.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "structure/files.h"

namespace lockstep::structure {
namespace {

std::vector<SourceFile> readable_files() {
  std::vector<SourceFile> out =
      read_tree({"src", "include", "tests", "examples", "benchmarks", "docs", "deploy", "cmake"},
                {".h", ".cc", ".def", ".cuh", ".proto", ".md", ".sh", ".cmake", ".txt", ".yaml", ".j2"});
  for (const char* name : {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CMakeLists.txt", "dev"})
    out.push_back({name, read_text(std::string(LOCKSTEP_SOURCE_DIR "/") + name)});
  // These files name the phrases.
  std::erase_if(out, [](const SourceFile& file) { return file.path.starts_with("tests/structure/language"); });
  return out;
}

TEST(Language, TreeHasNoneOfThePhrases) {
  std::vector<std::string> all;
  const std::vector<SourceFile> files = readable_files();
  ASSERT_GT(files.size(), 1000u);
  for (const SourceFile& file : files)
    for (std::string& each : find_phrases(file.path, file.text)) all.push_back(std::move(each));
  EXPECT_TRUE(all.empty()) << fmt::format("{}", fmt::join(all, "\n")) << "\n" << all.size() << " phrases";
}

TEST(Language, CommentsAndStringsAreRead) {
  EXPECT_EQ(find_phrases("a.cc", "int x;  // Nobody waits.\n"),
            (std::vector<std::string>{"a.cc:1: \"Nobody\": name the function, thread, process or user"}));
  EXPECT_EQ(find_phrases("a.cc", "/* one\n   for want of memory */ int x;\n").size(), 1u);
  EXPECT_EQ(find_phrases("a.cc", "throw_error(\"a: no disk; \\\"mend\\\" it\");\n").size(), 1u);
  EXPECT_EQ(find_phrases("a.cc", "auto text = R\"x(so many devices)x\";\n").size(), 1u);
  EXPECT_EQ(find_phrases("a.md", "A line.\nThe way is no more.\n"),
            (std::vector<std::string>{"a.md:2: \"is no more\": write \"is closed\", \"has ended\" or \"is gone\""}));
  EXPECT_EQ(find_phrases("a.sh", "nobody=1\nnobody # for whom\n").size(), 1u);
}

TEST(Language, NamesAreReadWordByWord) {
  EXPECT_EQ(find_phrases("a.cc", "TEST(Failure, WhoWasToldKnowsIt) {}\n").size(), 2u);
  EXPECT_EQ(find_phrases("a.cc", "void mend_labels();\n").size(), 1u);
  EXPECT_TRUE(find_phrases("a.cc", "void amend(Message recommended, int whole);\n").empty());
}

TEST(Language, OrdinarySentencesPass) {
  for (const char* text :
       {"// Users who train on one GPU read this first.\n", "// As many workers as cores; so many that none waits.\n",
        "const char c = '\"';  // a quote\n", "int64_t big = 1'000'000;\n",
        "// It is used by the thread that waits.\n"})
    EXPECT_TRUE(find_phrases("a.h", text).empty()) << text;
}

}  // namespace
}  // namespace lockstep::structure
