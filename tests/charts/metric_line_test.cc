#include "charts/metric_line.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::charts {
namespace {

using Kind = MetricLine::Kind;

TEST(MetricLines, StepsHaveScalars) {
  MetricLine line;
  ASSERT_TRUE(
      parse_metric_line(R"({"kind":"step","step":12,"time":1731646000.500,"loss":2.5,"a/b":-1e-3,"c":null})", line));
  EXPECT_EQ(line.kind, Kind::step);
  EXPECT_EQ(line.step, 12);
  EXPECT_EQ(line.time, 1731646000.5);
  ASSERT_EQ(line.scalars.size(), 3u);
  EXPECT_EQ(line.scalars[0].first, "loss");
  EXPECT_EQ(line.scalars[0].second, 2.5);
  EXPECT_EQ(line.scalars[1].second, -1e-3);
  EXPECT_TRUE(std::isnan(line.scalars[2].second));
}

TEST(MetricLines, StartsHaveSettings) {
  MetricLine line;
  ASSERT_TRUE(
      parse_metric_line(R"({"kind":"start","step":7,"time":1.0,"date":"2026-01-02T03:04:05Z","title":"mlp \"x\"",)"
                        R"("total_steps":90,"steps_per_epoch":9,"config":{"model":"mlp","seed":"3"}})",
                        line));
  EXPECT_EQ(line.kind, Kind::start);
  EXPECT_EQ(line.title, "mlp \"x\"");
  EXPECT_EQ(line.date, "2026-01-02T03:04:05Z");
  EXPECT_EQ(line.total_steps, 90);
  EXPECT_EQ(line.steps_per_epoch, 9);
  EXPECT_EQ(line.config, (std::vector<std::pair<std::string, std::string>>{{"model", "mlp"}, {"seed", "3"}}));
}

TEST(MetricLines, MessagesHaveText) {
  MetricLine line;
  ASSERT_TRUE(parse_metric_line(R"({"kind":"message","step":3,"time":2,"alarm":true,"text":"a\nb"})", line));
  EXPECT_TRUE(line.alarm);
  EXPECT_EQ(line.text, "a\nb");
  ASSERT_TRUE(parse_metric_line(R"({"kind":"step","step":4,"time":2})", line));
  EXPECT_FALSE(line.alarm);
  EXPECT_EQ(line.text, "");
}

TEST(MetricLines, EscapedNamesAreRead) {
  MetricLine line;
  ASSERT_TRUE(parse_metric_line(R"({"kind":"step","step":4,"time":2,"odd \"name\"":1,"x":2})", line));
  ASSERT_EQ(line.scalars.size(), 2u);
  EXPECT_EQ(line.scalars[0].first, "odd \"name\"");
  EXPECT_EQ(line.scalars[1].first, "x");
}

TEST(MetricLines, DamagedLinesAreRejected) {
  for (const char* text : {"",
                           "{",
                           "{}",
                           "[]",
                           "7",
                           "{\"kind\":\"step\",\"step\":1,\"time\":2",
                           "\"kind\"",
                           R"({"kind":"other","step":1,"time":2})",
                           R"({"step":1,"time":2,"loss":1})",
                           R"({"kind":"step","time":2})",
                           R"({"kind":"step","step":1})",
                           R"({"kind":"step","step":-1,"time":2})",
                           R"({"kind":"step","step":1.5,"time":2})",
                           R"({"kind":"step","step":1e300,"time":2})",
                           R"({"kind":"step","step":"1","time":2})",
                           R"({"kind":"step","step":1,"time":null})",
                           R"({"kind":"step","step":1,"time":2,"loss":inf})",
                           R"({"kind":"step","step":1,"time":2,"loss":01})",
                           R"({"kind":"step","step":1,"time":2,"loss":1.})",
                           R"({"kind":"step","step":1,"time":2,"loss":0x1})",
                           R"({"kind":"step","step":1,"time":2,"loss":1e999})",
                           R"({"kind":"step","step":1,"time":2,"loss":1},)",
                           "{\"kind\":\"step\",\"step\":1,\"time\":2,\"a\xff\":1}",
                           "{\"kind\":\"step\",\"step\":1,\"time\":2,\"a\033\":1}"}) {
    MetricLine line;
    EXPECT_FALSE(parse_metric_line(text, line)) << text;
    EXPECT_FALSE(parse_metric_line_as_json(text, line)) << text;
  }
}

TEST(MetricLines, DeepNestingIsRejected) {
  std::string deep = R"({"kind":"step","step":1,"time":2,"a":)";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  MetricLine line;
  EXPECT_FALSE(parse_metric_line(deep, line));
}

TEST(MetricLines, FastAndGeneralParserAgree) {
  for (const char* text : {R"({"kind":"step","step":0,"time":0.5,"a":1,"b":-2.5e+3,"c":0,"d":1E2})",
                           R"({"kind":"evaluation","step":9007199254740992,"time":1e9,"test_loss":null})",
                           R"({"kind":"end","step":5,"time":1,"\u00e4":3})"}) {
    MetricLine fast, general;
    ASSERT_TRUE(parse_metric_line(text, fast)) << text;
    ASSERT_TRUE(parse_metric_line_as_json(text, general)) << text;
    EXPECT_EQ(fast.kind, general.kind);
    EXPECT_EQ(fast.step, general.step);
    EXPECT_EQ(fast.time, general.time);
    ASSERT_EQ(fast.scalars.size(), general.scalars.size());
    for (size_t i = 0; i < fast.scalars.size(); ++i) {
      EXPECT_EQ(fast.scalars[i].first, general.scalars[i].first);
      if (std::isnan(general.scalars[i].second))
        EXPECT_TRUE(std::isnan(fast.scalars[i].second));
      else
        EXPECT_EQ(fast.scalars[i].second, general.scalars[i].second);
    }
  }
}

}  // namespace
}  // namespace lockstep::charts
