#include "train/progress_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::detail {
namespace {

constexpr TerminalStyle kUnicode{.redraws = true, .unicode = true}, kAscii{.redraws = true};

Progress classifier() {
  return {.step = 584,
          .total = 1407,
          .steps_per_epoch = 469,
          .metrics = {{"loss", 0.1291}, {"accuracy", 0.9609}},
          .rate = 14986,
          .rate_unit = "examples",
          .seconds_left = 8,
          .losses = {8, 7, 6, 5, 4, 3, 2, 1}};
}

Progress language_model() {
  return {.step = 1200,
          .total = 5000,
          .metrics = {{"loss", 1.5}, {"perplexity", 4.4817}, {"bits_per_byte", 2.16}},
          .rate = 65321,
          .rate_unit = "tokens",
          .seconds_left = 3725,
          .losses = {3, 2, 2.5, 1}};
}

TEST(ProgressLine, OmitsItemsByPriorityAndTheRemainingTimeLast) {
  const std::pair<size_t, std::string> wanted[] = {
      {199,
       "epoch 2/3 ▕████████████████▌                       ▏  41%  step  584/1407  loss 0.1291 █▇▆▅▄▃▂▁  accuracy "
       "0.9609  "
       "14986 examples/s  8 s left"},
      {119,
       "epoch 2/3 ▕███████▉           ▏  41%  step  584/1407  loss 0.1291 █▇▆▅▄▃▂▁  accuracy 0.9609  14986 examples/s  "
       "8 s left"},
      {79, "epoch 2/3 ▕███▎    ▏  41%   584/1407  loss 0.1291  accuracy 0.9609  15.0k/s  8s"},
      {59, "epoch 2/3 ▕███▎    ▏  41%   584/1407  loss 0.1291  8 s left"},
      {39, "▕█▋  ▏  41%   584/1407  loss 0.1291  8s"},
      {19, " 41%   584/1407  8s"},
      {14, " 584/1407  8s"},
      {9, "8s"},
      {1, ""}};
  for (const auto& [columns, line] : wanted) EXPECT_EQ(progress_line(classifier(), columns, kUnicode), line) << columns;
}

TEST(ProgressLine, MetricsAreNamedAsTheTaskNamesThem) {
  EXPECT_EQ(progress_line(language_model(), 79, kUnicode),
            "▕██▏      ▏  24%  1200/5000  loss 1.5000 █▅▆▁  perplexity 4.482  65.3k/s  1h02m");
  const std::string wide = progress_line(language_model(), 199, kUnicode);
  EXPECT_NE(wide.find("loss 1.5000 █▅▆▁  perplexity 4.482  bits_per_byte 2.160  65321 tokens/s  1 h 02 min left"),
            std::string::npos)
      << wide;
}

TEST(ProgressLine, AsciiWithoutUnicode) {
  EXPECT_EQ(progress_line(classifier(), 79, kAscii),
            "epoch 2/3 [===>    ]  41%   584/1407  loss 0.1291  accuracy 0.9609  15.0k/s  8s");
  for (size_t columns = 0; columns < 200; ++columns)
    for (const char c : progress_line(classifier(), columns, kAscii)) EXPECT_GE(c, ' ');
}

TEST(ProgressLine, NeverGrowsBeyondItsWidth) {
  Progress extreme{.step = 7,
                   .metrics = {{"loss", 1e300}, {"損失", std::nan("")}, {"inf", INFINITY}},
                   .rate = 1e15,
                   .rate_unit = "examples",
                   .seconds_left = 1e30,
                   .losses = {INFINITY, std::nan(""), 1}};
  for (const int64_t total : {int64_t{0}, int64_t{10}, std::numeric_limits<int64_t>::max()})
    for (size_t columns = 0; columns < 250; ++columns)
      for (const bool color : {false, true}) {
        extreme.total = total;
        EXPECT_LE(display_width(progress_line(extreme, columns, {true, color, true})), columns);
        EXPECT_LE(display_width(progress_line(classifier(), columns, {true, color, true})), columns);
      }
}

TEST(ProgressLine, ColorsDoNotChangeTheText) {
  const TerminalStyle colors{.redraws = true, .color = true, .unicode = true};
  for (const size_t columns : {20, 60, 80, 120, 200}) {
    std::string text = progress_line(classifier(), columns, colors);
    EXPECT_EQ(display_width(text), display_width(progress_line(classifier(), columns, kUnicode)));
    while (text.find("\033[") != text.npos) {
      const size_t at = text.find("\033[");
      text.erase(at, text.find('m', at) + 1 - at);
    }
    EXPECT_EQ(text, progress_line(classifier(), columns, kUnicode));
  }
}

TEST(ProgressLine, ActivityReplacesTheRate) {
  Progress progress = classifier();
  progress.activity = "| evaluating";
  const std::string line = progress_line(progress, 99, kAscii);
  EXPECT_NE(line.find("accuracy 0.9609  | evaluating  8"), std::string::npos) << line;
}

TEST(ProgressLine, NumbersKeepTheirWidth) {
  Progress progress = language_model();
  progress.metrics = {{"loss", 1}, {"perplexity", 4.5}};
  EXPECT_NE(progress_line(progress, 79, kAscii).find("perplexity 4.500"), std::string::npos);
  progress.metrics[1].second = 1e7;
  EXPECT_NE(progress_line(progress, 79, kAscii).find("perplexity 1e+07"), std::string::npos);
}

TEST(ProgressLine, UnknownLengthHasNoBar) {
  EXPECT_EQ(progress_line({.step = 5, .rate = 12.5, .rate_unit = "steps"}, 80, kUnicode), "step 5  12.5 steps/s");
}

TEST(BarText, GrowsByEighthsAndIsFullOnlyAtTheEnd) {
  EXPECT_EQ(bar_text(0, 6, kUnicode), "▕    ▏");
  EXPECT_EQ(bar_text(1.0 / 32, 6, kUnicode), "▕▏   ▏");
  EXPECT_EQ(bar_text(0.5 + 3.0 / 32, 6, kUnicode), "▕██▍ ▏");
  EXPECT_EQ(bar_text(0.999, 6, kUnicode), "▕███▉▏");
  EXPECT_EQ(bar_text(1, 6, kUnicode), "▕████▏");
  EXPECT_EQ(bar_text(0, 6, kAscii), "[>   ]");
  EXPECT_EQ(bar_text(0.999, 6, kAscii), "[===>]");
  EXPECT_EQ(bar_text(1, 6, kAscii), "[====]");
}

TEST(Sparkline, ShowsTheLastValuesBetweenTheirLimits) {
  EXPECT_EQ(sparkline({100, 4, 3, 2, 1}, 4, kUnicode), "█▆▃▁");
  EXPECT_EQ(sparkline({4, 3, 2, 1}, 4, kAscii), "^-._");
  EXPECT_EQ(sparkline({1, 1, 1}, 8, kUnicode), "▁▁▁");
  EXPECT_EQ(sparkline({1, std::nan(""), 2}, 8, kUnicode), "▁██");
  EXPECT_EQ(sparkline({}, 8, kUnicode), "");
}

TEST(ShortText, HasFewCharacters) {
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{{0.25, "0.2"},
                                                                               {12.34, "12.3"},
                                                                               {950, "950"},
                                                                               {999.7, "1.0k"},
                                                                               {14986, "15.0k"},
                                                                               {2.5e6, "2.5M"},
                                                                               {1e15, "1000T"}})
    EXPECT_EQ(short_number(value), text);
  for (const auto& [seconds, text] : std::vector<std::pair<double, std::string>>{
           {0.4, "0s"}, {59.4, "59s"}, {59.6, "1m00s"}, {200, "3m20s"}, {7500, "2h05m"}, {273600, "3d04h"}, {-5, "0s"}})
    EXPECT_EQ(short_duration(seconds), text);
}

TEST(LossHistory, KeepsMeansOfEqualPartsOfTheRun) {
  LossHistory history;
  for (int i = 0; i < 64; ++i) history.add(i);
  ASSERT_EQ(history.means().size(), 64u);
  EXPECT_EQ(history.means()[63], 63);
  for (int i = 64; i < 1000; ++i) history.add(i);
  const std::vector<double>& means = history.means();
  ASSERT_LE(means.size(), LossHistory::kMaxBuckets);
  ASSERT_GE(means.size(), LossHistory::kMaxBuckets / 2);
  // Parts of 16 losses: 0 to 15, 16 to 31, and so on.
  EXPECT_EQ(means[0], 7.5);
  EXPECT_EQ(means[1], 23.5);
  EXPECT_NEAR(means[61], 61 * 16 + 7.5, 1e-9);
}

}  // namespace
}  // namespace lockstep::detail
