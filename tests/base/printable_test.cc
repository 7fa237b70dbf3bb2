#include "base/printable.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::string_literals;

TEST(Printable, TextOfAnyScriptIsUnchanged) {
  for (const char* text : {"", "step 7", "Größe", "層", "\U0001f680", "a\\b"}) EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("\033[31mred\033[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(printable("a\0b\nc\rd\te\x7f"s), "a\\x00b\\x0ac\\x0dd\\x09e\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "CSI in one character";
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xaeb")
      << "right-to-left override";
}

TEST(Printable, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, LongTextIsTruncatedBetweenCharacters) {
  EXPECT_EQ(printable("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(printable("abcdefghi", 8), "abcde...");
  EXPECT_EQ(printable("ab\033\033\033", 8), "ab...");
  EXPECT_EQ(printable(std::string(1 << 20, 'x')).size(), kPrintableBytes);
}

TEST(Printable, LinesKeepNewlinesAndTabs) {
  EXPECT_EQ(printable_lines("a\n\tb\033c\r\n"), "a\n\tb\\x1bc\\x0d\n");
  EXPECT_EQ(printable_lines(std::string(1 << 16, 'x')).size(), size_t{1} << 16);
}

TEST(Printable, PlainFileNamesAreRecognized) {
  for (const char* name : {"shard-0.safetensors", "a b", ".hidden", "Größe"}) EXPECT_TRUE(is_plain_file_name(name));
  for (const std::string& name :
       {""s, "."s, ".."s, "a/b"s, "/a"s, "a\0b"s, "a\nb"s, "\033"s, "\xff"s, std::string(256, 'a')})
    EXPECT_FALSE(is_plain_file_name(name)) << printable(name);
}

}  // namespace
}  // namespace lockstep
