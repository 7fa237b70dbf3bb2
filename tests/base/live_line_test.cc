#include "base/live_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "support/variable.h"

namespace lockstep {
namespace {

// A pseudo-terminal of 20 columns.
class LiveLines : public testing::Test {
 protected:
  void SetUp() override {
    host_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (host_ < 0 || ::grantpt(host_) != 0 || ::unlockpt(host_) != 0) GTEST_SKIP() << "no pseudo terminals available";
    const int terminal = ::open(::ptsname(host_), O_RDWR | O_NOCTTY);
    ASSERT_GE(terminal, 0);
    resize(terminal, 20);
    ::fcntl(host_, F_SETFL, O_NONBLOCK);
    stream_ = ::fdopen(terminal, "w");
  }
  void TearDown() override {
    if (stream_) std::fclose(stream_);
    if (host_ >= 0) ::close(host_);
  }
  static void resize(int terminal, unsigned short columns) {
    const winsize size = {.ws_row = 20, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0);
  }
  std::string sent() {
    std::string out;
    char part[4096];
    for (ssize_t n; (n = ::read(host_, part, sizeof(part))) > 0;) out.append(part, static_cast<size_t>(n));
    return out;
  }

  int host_ = -1;
  std::FILE* stream_ = nullptr;
  ScopedVariable term_{"TERM", "xterm"};
};

TEST_F(LiveLines, TextIsPrintedAboveTheLine) {
  LiveLine line(stream_);
  EXPECT_EQ(line.print("first\n"), 0);
  EXPECT_EQ(sent(), "first\r\n");
  line.show([](const LiveLine::Moment&) { return std::string("bar"); });
  EXPECT_EQ(sent(), "\rbar\033[J\r");
  line.print("second\n");
  EXPECT_EQ(sent(), "\r\033[Jsecond\r\nbar\r");
  line.clear();
  EXPECT_EQ(sent(), "\r\033[J");
  line.print("third\n");
  EXPECT_EQ(sent(), "third\r\n");
}

TEST_F(LiveLines, RefreshDrawsOnlyChanges) {
  std::string text = "a";
  LiveLine line(stream_);
  line.show([&](const LiveLine::Moment&) { return text; });
  sent();
  line.refresh();
  EXPECT_EQ(sent(), "");
  text = "b";
  line.refresh();
  EXPECT_EQ(sent(), "\rb\033[J\r");
}

TEST_F(LiveLines, NeverReachesTheLastColumn) {
  LiveLine line(stream_);
  line.show([](const LiveLine::Moment& moment) {
    EXPECT_EQ(moment.columns, 19u);
    return std::string(100, 'x');
  });
  EXPECT_EQ(sent(), "\r" + std::string(19, 'x') + "\033[J\r");
}

TEST_F(LiveLines, FinishKeepsTheText) {
  LiveLine line(stream_);
  line.show([](const LiveLine::Moment&) { return std::string("bar"); });
  sent();
  line.finish();
  EXPECT_EQ(sent(), "\r\n");
  line.finish();
  EXPECT_EQ(sent(), "");
}

TEST(LiveLine, FilesHaveNone) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    LiveLine line(file);
    line.show([](const LiveLine::Moment&) { return std::string("bar"); });
    line.refresh();
    line.print("text\n");
  }
  EXPECT_EQ(std::ftell(file), 5);
  std::fclose(file);
}

}  // namespace
}  // namespace lockstep
