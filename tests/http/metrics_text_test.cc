// Metrics are written in the text format of Prometheus.
#include "http/metrics_text.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/prometheus.h"

namespace lockstep::http {
namespace {

TEST(MetricsText, HasTheFormatOfPrometheus) {
  MetricsText out(Labels{{"run", "a\"b\\c\nd"}});
  out.gauge("loss", "The loss, with a \\ and\na new line.", 0.1);
  out.begin("size_bytes", "gauge", "Sizes.");
  out.add(1e300, {{"part", "a"}});
  out.add(-2, {{"part", "b"}});
  out.begin("time_seconds", "histogram", "Times.");
  out.add(1, {{"le", "0.1"}}, "_bucket");
  out.add(3, {{"le", "+Inf"}}, "_bucket");
  out.add(7.5, {}, "_sum");
  out.add(3, {}, "_count");
  out.gauge("unknown", "", std::numeric_limits<double>::quiet_NaN());
  out.counter("all_total", "", std::numeric_limits<double>::infinity());
  EXPECT_EQ(out.text().substr(0, out.text().find("# HELP size")),
            "# HELP loss The loss, with a \\\\ and\\na new line.\n"
            "# TYPE loss gauge\n"
            "loss{run=\"a\\\"b\\\\c\\nd\"} 0.1\n");
  const PrometheusText read(out.text());
  EXPECT_EQ(read.value("loss"), 0.1);
  EXPECT_EQ(read.labels("loss")[0].at("run"), "a\"b\\c\nd");
  EXPECT_EQ(read.labels("size_bytes").size(), 2u);
  EXPECT_EQ(read.value("time_seconds_sum"), 7.5);
  EXPECT_TRUE(std::isnan(read.value("unknown")));
  EXPECT_TRUE(std::isinf(read.value("all_total")));
  EXPECT_EQ(read.type("all_total"), "counter");
}

TEST(MetricsText, NamesAreMadeValid) {
  EXPECT_EQ(metric_name("test_loss"), "test_loss");
  EXPECT_EQ(metric_name("memory/lane 0-\xc3\xa4"), "memory_lane_0___");
}

// The reader of the tests finds violations.
TEST(MetricsText, ViolationsAreFound) {
  for (const char* wrong :
       {"a 1", "a 1\n", "# TYPE a gauge\na 1\na 2\n", "# TYPE a gauge\n# TYPE a gauge\na 1\n", "# TYPE a gauge\nb 1\n",
        "# TYPE a gauge\na{x=1} 1\n", "# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n", "# TYPE a gauge\na{x=\"\\q\"} 1\n",
        "# TYPE a gauge\na 1x\n", "# TYPE a gauge\na inf\n", "# TYPE a gauges\n", "# TYPE 1a gauge\n",
        "# TYPE a gauge\na_sum 1\n", "# HELP a \\x\n", "# TYPE a gauge\n# TYPE b gauge\nb 1\na 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_sum 1\na_count 2\n"}) {
    testing::TestPartResultArray failures;
    {
      const testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      const PrometheusText read(wrong);
    }
    EXPECT_GT(failures.size(), 0) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::http
