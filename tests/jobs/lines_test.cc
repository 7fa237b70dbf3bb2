#include "jobs/lines.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

// A OutputLine with its own copy of the text.
struct LineCopy {
  std::string text;
  bool begins, ends;
  bool operator==(const LineCopy&) const = default;
};
std::ostream& operator<<(std::ostream& out, const LineCopy& got) {
  return out << '"' << got.text.substr(0, 100) << "\" " << got.begins << got.ends;
}

template <class Lines>
struct LineCollector {
  Lines lines;
  std::vector<LineCopy> got;
  void add(std::string_view bytes) {
    lines.add(bytes, [this](const OutputLine& line) {
      got.push_back({std::string(line.text), line.begins, line.ends});
    });
  }
  void finish() {
    lines.finish([this](const OutputLine& line) { got.push_back({std::string(line.text), line.begins, line.ends}); });
  }
};

using LineCopies = std::vector<LineCopy>;

TEST(Lines, SplitsTheSameForAnyChunkSize) {
  using namespace std::string_literals;
  const std::string text = "one\n\ntwo \xff\0 bytes\r\nlast"s;
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LineCollector<LineSplitter> reader;
    for (size_t i = 0; i < text.size(); i += piece) reader.add(std::string_view(text).substr(i, piece));
    EXPECT_EQ(reader.got.size(), 3u);
    reader.finish();
    EXPECT_EQ(
        reader.got,
        (LineCopies{{"one", true, true}, {"", true, true}, {"two \xff\0 bytes\r"s, true, true}, {"last", true, true}}))
        << piece;
  }
}

TEST(Lines, NoLineFollowsAFinalNewline) {
  LineCollector<LineSplitter> reader;
  reader.add("a\n");
  reader.finish();
  EXPECT_EQ(reader.got, (LineCopies{{"a", true, true}}));
}

TEST(Lines, LongLinesComeInPieces) {
  for (const size_t length :
       {kMaxLineBytes - 1, kMaxLineBytes, kMaxLineBytes + 1, 3 * kMaxLineBytes, 3 * kMaxLineBytes + 5})
    for (const size_t piece : {size_t{1000}, kMaxLineBytes, 10 * kMaxLineBytes}) {
      std::string text;
      for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + i % 26);
      const std::string bytes = text + "\nb\n";
      LineCollector<LineSplitter> reader;
      for (size_t i = 0; i < bytes.size(); i += piece) reader.add(std::string_view(bytes).substr(i, piece));
      ASSERT_GE(reader.got.size(), 2u);
      EXPECT_EQ(reader.got.back(), (LineCopy{"b", true, true}));
      reader.got.pop_back();
      std::string joined;
      for (size_t i = 0; i < reader.got.size(); ++i) {
        EXPECT_LE(reader.got[i].text.size(), kMaxLineBytes);
        EXPECT_EQ(reader.got[i].begins, i == 0);
        EXPECT_EQ(reader.got[i].ends, i + 1 == reader.got.size());
        joined += reader.got[i].text;
      }
      EXPECT_EQ(joined, text);
    }
}

TEST(Lines, FinishEndsALongLine) {
  LineCollector<LineSplitter> reader;
  reader.add(std::string(kMaxLineBytes + 1, 'x'));
  ASSERT_EQ(reader.got.size(), 1u);
  EXPECT_FALSE(reader.got[0].ends);
  reader.finish();
  EXPECT_EQ(reader.got[1], (LineCopy{"x", false, true}));
}

TEST(TerminalLines, RedrawnTextIsNotALine) {
  LineCollector<TerminalLines> reader;
  reader.add("title\n\rstep 1\033[K\rstep 2\033[K");
  EXPECT_EQ(reader.lines.unfinished(), "step 2");
  EXPECT_EQ(reader.got, (LineCopies{{"title", true, true}}));
  reader.add("\r\033[Kevaluated\nstep 2");
  EXPECT_EQ(reader.got.back(), (LineCopy{"evaluated", true, true}));
  EXPECT_EQ(reader.lines.unfinished(), "step 2");
  reader.add("\rstep 3\033[J\r");  // as drawn by LiveLine
  EXPECT_EQ(reader.lines.unfinished(), "step 3");
  reader.add("\r\033[Jsaved\nstep 2\r");
  EXPECT_EQ(reader.got.back(), (LineCopy{"saved", true, true}));
  reader.add("\r");  // the last drawing stays until the next one
  EXPECT_EQ(reader.lines.unfinished(), "step 2");
  reader.finish();
  EXPECT_EQ(reader.got.back(), (LineCopy{"step 2", true, true}));
  EXPECT_EQ(reader.lines.unfinished(), "");
}

TEST(TerminalLines, MemoryIsBounded) {
  LineCollector<TerminalLines> reader;
  for (int i = 0; i < 1000; ++i) reader.add("\r" + std::string(1000, 'x'));
  EXPECT_EQ(reader.lines.unfinished(), std::string(1000, 'x'));
  EXPECT_TRUE(reader.got.empty());
  reader.add(std::string(2 * kMaxLineBytes, 'y'));
  ASSERT_EQ(reader.got.size(), 1u);
  EXPECT_EQ(reader.got[0].text, std::string(1000, 'x') + std::string(2 * kMaxLineBytes, 'y'));
}

TEST(TerminalLines, RemovesEscapeSequences) {
  EXPECT_EQ(without_escapes("\033[1;31malarm:\033[0m loss\033[K"), "alarm: loss");
  EXPECT_EQ(without_escapes("plain \033"), "plain \033");
  EXPECT_EQ(without_escapes("cut \033[1"), "cut ");
}

}  // namespace
}  // namespace lockstep
