#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/throws.h"
#include "lockstep/error.h"
#include "support/variable.h"
#include "train/logging.h"

namespace lockstep {
namespace {

class Console : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(file_, nullptr); }
  void TearDown() override { std::fclose(file_); }
  detail::LogClock clock() {
    return {.unix_seconds = [] { return 0.0; }, .steady_seconds = [this] { return time_; }};
  }
  // The output since the last call.
  std::string printed() {
    std::string out;
    std::fseek(file_, read_, SEEK_SET);
    for (int c; (c = std::fgetc(file_)) != EOF;) out += static_cast<char>(c);
    read_ = std::ftell(file_);
    return out;
  }

  std::FILE* file_ = std::tmpfile();
  long read_ = 0;
  double time_ = 100;
};

TEST_F(Console, PrintsTheFirstStepAndEveryNthStep) {
  const auto logger = detail::console_logger({.stream = file_, .every = 100}, clock());
  logger->begin({.title = "mlp on digits, 8 devices", .total_steps = 4690, .steps_per_epoch = 469});
  EXPECT_EQ(printed(), "mlp on digits, 8 devices: 4690 steps\n");
  const Scalars scalars = {
      {"loss", 0.34123}, {"accuracy", 0.90117}, {"learning_rate", 0.1}, {"examples_per_second", 84210.4}};
  logger->step(1, {{"loss", 0.34123}, {"accuracy", 0.90117}, {"examples_per_second", 0}});  // still unknown
  EXPECT_EQ(printed(), "step 1/4690  loss 0.3412  accuracy 0.9012  epoch 0.0\n");
  for (int step = 2; step < 100; ++step) logger->step(step, scalars);
  EXPECT_EQ(printed(), "");
  time_ = 100.99;
  logger->step(100, scalars);
  EXPECT_EQ(printed(), "step 100/4690  loss 0.3412  accuracy 0.9012  84210 examples/s  epoch 0.2  46 s left\n");
  logger->evaluation(469, {{"test_loss", 0.1234}, {"test_accuracy", 0.9655}});
  EXPECT_EQ(printed(), "step 469/4690  test_loss 0.1234  test_accuracy 0.9655\n");
  logger->message(469, "saved run/step_00000469", false);
  logger->message(469, "the loss does not fall", true);
  EXPECT_EQ(printed(), "saved run/step_00000469\nalarm: the loss does not fall\n");
  time_ = 230;
  logger->end(4690, {{"loss", 0.0123}, {"grad_norm", 1}, {"examples_per_second", 4e4}, {"test_accuracy", 0.9712}});
  EXPECT_EQ(printed(), "done  step 4690/4690  loss 0.0123  40000 examples/s  test_accuracy 0.9712  2 min 10 s\n");
}

TEST_F(Console, SkippedStepNumbersDoNotSuppressLines) {
  const auto logger = detail::console_logger({.stream = file_, .every = 10}, clock());
  for (const int step : {7, 14, 21, 28}) logger->step(step, {{"loss", 1}});
  EXPECT_EQ(printed(), "step 7  loss 1.0000\nstep 14  loss 1.0000\nstep 21  loss 1.0000\n");
}

TEST_F(Console, ResumedRunEstimatesFromItsOwnSteps) {
  const auto logger = detail::console_logger({.stream = file_, .every = 10}, clock());
  logger->begin({.total_steps = 120, .first_step = 99});
  logger->step(100, {});
  time_ += 20;
  logger->step(110, {});
  EXPECT_EQ(printed(), "120 steps, resumed after step 99\nstep 100/120\nstep 110/120  0.5 steps/s  20 s left\n");
}

TEST_F(Console, EveryZeroStepsIsRejected) {
  EXPECT_THROWS(console_logger({.stream = file_, .every = 0}), Error, "console_logger: every is 0; give a number");
}

// The rate of the task's unit is shown instead of that of examples.
TEST_F(Console, RateIsThatOfTheTasksUnit) {
  const auto logger = detail::console_logger({.stream = file_, .every = 1}, clock());
  logger->begin({.title = "gpt", .total_steps = 2});
  const Scalars scalars = {{"loss", 2}, {"perplexity", 7.39}, {"examples_per_second", 10}, {"tokens_per_second", 640}};
  logger->step(1, scalars);
  logger->end(2, scalars);
  const std::string text = printed();
  EXPECT_NE(text.find("step 1/2  loss 2.0000  perplexity 7.39  640 tokens/s"), std::string::npos) << text;
  EXPECT_NE(text.find("done  step 2/2  loss 2.0000  perplexity 7.39  640 tokens/s"), std::string::npos) << text;
}

TEST_F(Console, CompactPrintsEvaluationsAlarmsAndTheEnd) {
  const auto logger = detail::compact_logger(file_, clock());
  logger->begin({.title = "mlp", .total_steps = 20});
  logger->step(1, {{"loss", 1}});
  logger->evaluation(10, {{"test_loss", 0.5}, {"test_accuracy", 0.75}, {"test_examples", 100}});
  logger->message(10, "saved", false);
  logger->message(10, "bad", true);
  time_ += 3;
  logger->end(20, {{"loss", 0.25}, {"accuracy", 1}, {"examples_per_second", 5}});
  EXPECT_EQ(printed(),
            "step 10/20  test_loss 0.5000  test_accuracy 0.7500\nalarm: bad\n"
            "done  step 20/20  loss 0.2500  accuracy 1.0000  3 s\n");
}

TEST_F(Console, WriteErrorIsReportedOnce) {
  std::FILE* full = std::fopen("/dev/full", "w");
  if (full == nullptr) GTEST_SKIP() << "this system has no /dev/full";
  testing::internal::CaptureStderr();
  {
    const auto console = console_logger({.stream = full});
    const auto compact = compact_logger(full);
    for (int step = 1; step < 4; ++step) {
      console->evaluation(step, {});
      compact->evaluation(step, {});
    }
  }
  const std::string line =
      "lockstep: write progress: No space left on device; training continues without progress output\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), line + line);
  std::fclose(full);
}

TEST(LogText, FormatsNumbers) {
  EXPECT_EQ(detail::scalar_text("loss", 0.34126), "loss 0.3413");
  EXPECT_EQ(detail::scalar_text("test_loss", 0), "test_loss 0.0000");
  EXPECT_EQ(detail::scalar_text("loss", 0.00012345), "loss 0.0001234");
  EXPECT_EQ(detail::scalar_text("loss", 1.5e9), "loss 1.5e+09");
  EXPECT_EQ(detail::scalar_text("loss", std::numeric_limits<double>::infinity()), "loss inf");
  EXPECT_EQ(detail::scalar_text("learning_rate", 0.001), "learning_rate 0.001");
  EXPECT_EQ(detail::scalar_text("examples_per_second", 84210.4), "84210 examples/s");
  EXPECT_EQ(detail::scalar_text("tokens_per_second", 84210.4), "84210 tokens/s");
}

TEST(LogText, FormatsDurations) {
  for (const auto& [seconds, text] : std::vector<std::pair<double, std::string>>{{0.4, "0 s"},
                                                                                 {59.4, "59 s"},
                                                                                 {59.6, "1 min 00 s"},
                                                                                 {200, "3 min 20 s"},
                                                                                 {7500, "2 h 05 min"},
                                                                                 {273600, "3 d 04 h"},
                                                                                 {-5, "0 s"}})
    EXPECT_EQ(detail::duration_text(seconds), text);
}

// A real pseudo terminal of 60 columns.
class Tty : public testing::Test {
 protected:
  void SetUp() override {
    host_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (host_ < 0 || ::grantpt(host_) != 0 || ::unlockpt(host_) != 0) GTEST_SKIP() << "no pseudo terminals available";
    const int fd = ::open(::ptsname(host_), O_RDWR | O_NOCTTY);
    if (fd < 0) GTEST_SKIP() << "no pseudo terminals available";
    const winsize size = {.ws_row = 20, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(::ioctl(fd, TIOCSWINSZ, &size), 0);
    ::fcntl(host_, F_SETFL, O_NONBLOCK);
    stream_ = ::fdopen(fd, "w");
    ASSERT_NE(stream_, nullptr);
  }
  void TearDown() override {
    if (stream_ != nullptr) std::fclose(stream_);
    if (host_ >= 0) ::close(host_);
  }
  detail::LogClock clock() {
    return {.unix_seconds = [] { return 0.0; }, .steady_seconds = [this] { return time_; }};
  }
  // All output of the terminal; its line discipline converts \n to \r\n.
  std::string sent() {
    std::string out;
    char part[4096];
    for (ssize_t n; (n = ::read(host_, part, sizeof(part))) > 0;) out.append(part, static_cast<size_t>(n));
    return out;
  }

  int host_ = -1;
  std::FILE* stream_ = nullptr;
  double time_ = 100;
  ScopedVariable term_{"TERM", "xterm"}, no_color_{"NO_COLOR", std::nullopt}, color_{"CLICOLOR", std::nullopt},
      locale_{"LC_ALL", "C"};
};

TEST_F(Tty, BarIsDrawnInPlaceAtMostTenTimesASecond) {
  const auto logger = detail::console_logger({.stream = stream_, .color = false}, clock());
  logger->begin({.total_steps = 1000});
  EXPECT_EQ(sent(), "1000 steps\r\n");
  const Scalars scalars = {{"loss", 0.25}};
  logger->step(1, scalars);
  // The cursor is at the beginning of the line.
  EXPECT_EQ(sent(), "\r[>" + std::string(22, ' ') + "]   0%  step    1/1000  loss 0.2500\033[J\r");
  for (int step = 2; step <= 100; ++step) {
    time_ = 100 + 0.0099 * (step - 1);
    logger->step(step, scalars);
  }
  const std::string text = sent();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2 * 9);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST_F(Tty, LinesAppearAboveTheBar) {
  const auto logger = detail::console_logger({.stream = stream_}, clock());
  logger->step(1, {{"loss", 0.25}});
  sent();
  const std::string bar = "step 1  \033[2mloss\033[0m 0.2500\r";
  logger->evaluation(1, {{"test_loss", 0.5}});
  EXPECT_EQ(sent(), "\r\033[J\033[1mstep 1  test_loss 0.5000\033[0m\r\n" + bar);
  logger->message(1, "bad", true);
  EXPECT_EQ(sent(), "\r\033[J\033[1;31malarm:\033[0m \033[33mbad\033[0m\r\n" + bar);
  logger->end(1, {{"loss", 0.25}});
  EXPECT_EQ(sent(), "\r\033[J\033[1mdone  step 1  loss 0.2500\033[0m\r\n");
}

// The remaining time falls while a step takes long, so only the beginning of the line is compared.
TEST_F(Tty, BarFollowsTheWidthOfTheTerminal) {
  const auto logger = detail::console_logger({.stream = stream_, .color = false}, clock());
  logger->begin({.total_steps = 1000, .steps_per_epoch = 100});
  const Scalars scalars = {{"loss", 0.25}, {"accuracy", 0.5}, {"examples_per_second", 1000}};
  logger->step(1, scalars);
  sent();
  time_ += 1;
  logger->step(11, scalars);
  EXPECT_EQ(sent(), "\repoch 1/10 [>         ]   1%    11/1000  loss 0.2500  1m39s\033[J\r");
  const winsize narrow = {.ws_row = 20, .ws_col = 20, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::ioctl(::fileno(stream_), TIOCSWINSZ, &narrow), 0);
  time_ += 1;
  logger->step(21, scalars);
  EXPECT_EQ(sent(), "\r  21/1000  1m38s\033[J\r");
}

TEST_F(Tty, TitleCanBeOmitted) {
  const auto logger = detail::console_logger({.stream = stream_, .title = false}, clock());
  logger->begin({.title = "mlp", .total_steps = 1000});
  EXPECT_EQ(sent(), "");
}

TEST_F(Tty, AbortedRunKeepsTheBar) {
  auto logger = detail::console_logger({.stream = stream_}, clock());
  logger->step(1, {});
  sent();
  logger.reset();
  EXPECT_EQ(sent(), "\r\n");
}

TEST_F(Tty, ColorsCanBeDisabled) {
  const ScopedVariable no_color("NO_COLOR", "1");
  const auto by_variable = detail::console_logger({.stream = stream_}, clock());
  by_variable->message(1, "bad", true);
  EXPECT_EQ(sent(), "alarm: bad\r\n");
  const ScopedVariable again("NO_COLOR", std::nullopt);
  detail::console_logger({.stream = stream_, .color = false}, clock())->message(1, "bad", true);
  EXPECT_EQ(sent(), "alarm: bad\r\n");
}

TEST_F(Tty, DumbTerminalGetsPlainLines) {
  const ScopedVariable dumb("TERM", "dumb");
  detail::console_logger({.stream = stream_}, clock())->step(1, {});
  EXPECT_EQ(sent(), "step 1\r\n");
}

TEST_F(Tty, ColumnsVariableGivesTheWidthIfUnknown) {
  const winsize none = {};
  ASSERT_EQ(::ioctl(::fileno(stream_), TIOCSWINSZ, &none), 0);
  const ScopedVariable columns("COLUMNS", "12");
  detail::console_logger({.stream = stream_}, clock())->step(1234567890, {});
  EXPECT_EQ(sent(), "\r\033[J\r");  // nothing fits
  detail::console_logger({.stream = stream_}, clock())->step(123456, {});
  EXPECT_EQ(sent(), "\rstep 123456\033[J\r\r\n");
}

}  // namespace
}  // namespace lockstep
