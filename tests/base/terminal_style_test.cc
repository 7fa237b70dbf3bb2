#include "base/terminal_style.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "support/variable.h"

namespace lockstep {
namespace {

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("loss 0.5"), 8u);
  EXPECT_EQ(display_width("▕██▍ ▏"), 6u);
  EXPECT_EQ(display_width("損失"), 4u);       // wide characters
  EXPECT_EQ(display_width("e\xcc\x81"), 1u);  // a combining accent
  EXPECT_EQ(display_width("\033[1;31mred\033[0m"), 3u);
  EXPECT_EQ(display_width("\xff?"), 2u);  // not UTF-8
}

TEST(FitColumns, CutsBetweenCharactersAndKeepsColorsClosed) {
  EXPECT_EQ(fit_columns("loss", 4), "loss");
  EXPECT_EQ(fit_columns("loss", 3), "los");
  EXPECT_EQ(fit_columns("損失", 3), "損");
  EXPECT_EQ(fit_columns("\033[31mred\033[0m", 2), "\033[31mre\033[0m");
  EXPECT_EQ(fit_columns("▕█▏", 0), "");
}

TEST(Painted, AddsNothingWithoutColorOrText) {
  EXPECT_EQ(painted("bad", Paint::bold_red, true), "\033[1;31mbad\033[0m");
  EXPECT_EQ(painted("bad", Paint::bold_red, false), "bad");
  EXPECT_EQ(painted("", Paint::bold_red, true), "");
}

class TerminalStyles : public testing::Test {
 protected:
  void SetUp() override {
    host_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (host_ < 0 || ::grantpt(host_) != 0 || ::unlockpt(host_) != 0) GTEST_SKIP() << "no pseudo terminals available";
    terminal_ = ::open(::ptsname(host_), O_RDWR | O_NOCTTY);
    file_ = ::open("/dev/null", O_WRONLY);
    ASSERT_GE(terminal_, 0);
  }
  void TearDown() override {
    for (const int each : {host_, terminal_, file_})
      if (each >= 0) ::close(each);
  }

  int host_ = -1, terminal_ = -1, file_ = -1;
  ScopedVariable term_{"TERM", "xterm"}, no_color_{"NO_COLOR", std::nullopt}, color_{"CLICOLOR", std::nullopt},
      forced_{"CLICOLOR_FORCE", std::nullopt}, all_{"LC_ALL", "C.UTF-8"};
};

TEST_F(TerminalStyles, FilesHaveNoneAndTerminalsAll) {
  EXPECT_EQ(terminal_style(file_), TerminalStyle{});
  EXPECT_EQ(terminal_style(-1), TerminalStyle{});
  EXPECT_EQ(terminal_style(terminal_), (TerminalStyle{.redraws = true, .color = true, .unicode = true}));
}

TEST_F(TerminalStyles, VariablesDecideAboutColor) {
  {
    const ScopedVariable force("CLICOLOR_FORCE", "1");
    EXPECT_EQ(terminal_style(file_), TerminalStyle{.color = true});
    const ScopedVariable none("NO_COLOR", "1");
    EXPECT_EQ(terminal_style(file_), TerminalStyle{});
    EXPECT_FALSE(terminal_style(terminal_).color);
    EXPECT_TRUE(terminal_style(terminal_).redraws);
  }
  const ScopedVariable zero("CLICOLOR_FORCE", "0"), off("CLICOLOR", "0");
  EXPECT_FALSE(terminal_style(file_).color);
  EXPECT_FALSE(terminal_style(terminal_).color);
}

TEST_F(TerminalStyles, DumbTerminalIsLikeAFile) {
  const ScopedVariable dumb("TERM", "dumb");
  EXPECT_EQ(terminal_style(terminal_), TerminalStyle{});
}

TEST_F(TerminalStyles, UnicodeNeedsAnUtf8Locale) {
  const ScopedVariable lang("LANG", "de_DE.utf8"), type("LC_CTYPE", std::nullopt), all("LC_ALL", std::nullopt);
  EXPECT_TRUE(terminal_style(terminal_).unicode);
  const ScopedVariable before_lang("LC_CTYPE", "POSIX");
  EXPECT_FALSE(terminal_style(terminal_).unicode);
  const ScopedVariable before_type("LC_ALL", "en_US.UTF-8");
  EXPECT_TRUE(terminal_style(terminal_).unicode);
  const ScopedVariable console("TERM", "linux");
  EXPECT_FALSE(terminal_style(terminal_).unicode);
}

TEST_F(TerminalStyles, WidthIsThatOfTheTerminalElseOfTheVariable) {
  const winsize size = {.ws_row = 20, .ws_col = 93, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  const ScopedVariable columns("COLUMNS", "70");
  EXPECT_EQ(terminal_columns(terminal_), 93u);
  EXPECT_EQ(terminal_columns(file_), 70u);
  const ScopedVariable wrong("COLUMNS", "many");
  EXPECT_EQ(terminal_columns(file_), 80u);
}

}  // namespace
}  // namespace lockstep
