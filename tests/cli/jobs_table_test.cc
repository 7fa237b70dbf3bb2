// Tables, ages and durations are formatted as by kubectl.
#include <gtest/gtest.h>

#include "jobs/table.h"

namespace lockstep {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(JobTable, StatesHaveColorsThatDoNotMoveColumns) {
  const std::vector<TableRow> rows = {{"NAME", "STATE", "AGE"}, {"a", "Running", "5s"}, {"b", "Failed", "6s"}};
  EXPECT_EQ(TableLayout(true).format(rows),
            "NAME   STATE     AGE\n"
            "a      \033[32mRunning\033[0m   5s\n"
            "b      \033[31mFailed\033[0m    6s\n");
  EXPECT_EQ(TableLayout().format(rows),
            "NAME   STATE     AGE\n"
            "a      Running   5s\n"
            "b      Failed    6s\n");
}

TEST(JobTable, ColumnsAreSeparatedByThreeSpaces) {
  EXPECT_EQ(TableLayout().format({{"NAME", "READY", "STATUS", "RESTARTS", "AGE"},
                                  {"jaxjob-mnist-worker-0", "0/1", "Completed", "0", "108m"},
                                  {"jaxjob-mnist-worker-1", "0/1", "Completed", "0", "108m"}}),
            "NAME                    READY   STATUS      RESTARTS   AGE\n"
            "jaxjob-mnist-worker-0   0/1     Completed   0          108m\n"
            "jaxjob-mnist-worker-1   0/1     Completed   0          108m\n");
}

TEST(JobTable, ColumnsAreAtLeastSixWide) {
  EXPECT_EQ(TableLayout().format({{"A", "B", "C"}}), "A     B     C\n");
  EXPECT_EQ(TableLayout().format({{"ABCD", "B"}}), "ABCD   B\n");
}

TEST(JobTable, LaterRowsKeepTheColumnsOfEarlierOnes) {
  TableLayout columns;
  EXPECT_EQ(columns.format({{"a-long-name", "1"}}), "a-long-name   1\n");
  EXPECT_EQ(columns.format({{"b", "2"}}), "b             2\n");
  EXPECT_EQ(columns.format({{"an-even-longer-name", "3"}}), "an-even-longer-name   3\n");
  EXPECT_EQ(columns.format({{"b", "4"}}), "b                     4\n");
}

TEST(JobTable, AgesGetCoarserAsTheyGrow) {
  EXPECT_EQ(age_text(seconds(-2)), "<invalid>");
  EXPECT_EQ(age_text(seconds(-1)), "0s");
  EXPECT_EQ(age_text(seconds(0)), "0s");
  EXPECT_EQ(age_text(seconds(45)), "45s");
  EXPECT_EQ(age_text(seconds(119)), "119s");
  EXPECT_EQ(age_text(seconds(120)), "2m");
  EXPECT_EQ(age_text(seconds(312)), "5m12s");
  EXPECT_EQ(age_text(minutes(10) - seconds(1)), "9m59s");
  EXPECT_EQ(age_text(minutes(10) + seconds(59)), "10m");
  EXPECT_EQ(age_text(minutes(108)), "108m");
  EXPECT_EQ(age_text(minutes(179)), "179m");
  EXPECT_EQ(age_text(hours(3)), "3h");
  EXPECT_EQ(age_text(hours(3) + minutes(5)), "3h5m");
  EXPECT_EQ(age_text(hours(8) - minutes(1)), "7h59m");
  EXPECT_EQ(age_text(hours(8) + minutes(59)), "8h");
  EXPECT_EQ(age_text(hours(47)), "47h");
  EXPECT_EQ(age_text(hours(48)), "2d");
  EXPECT_EQ(age_text(hours(51)), "2d3h");
  EXPECT_EQ(age_text(days(8) - hours(1)), "7d23h");
  EXPECT_EQ(age_text(days(8) + hours(23)), "8d");
  EXPECT_EQ(age_text(days(729)), "729d");
  EXPECT_EQ(age_text(days(730)), "2y");
  EXPECT_EQ(age_text(days(733)), "2y3d");
  EXPECT_EQ(age_text(days(8 * 365 + 7)), "8y");
}

TEST(JobTable, UnstartedObjectsHaveNoAge) {
  const JobTime now{seconds(1'000'000)};
  EXPECT_EQ(age_text(std::nullopt, now), "<unknown>");
  EXPECT_EQ(age_text(JobTime{}, now), "<unknown>");
  EXPECT_EQ(age_text(now - seconds(7), now), "7s");
}

TEST(JobTable, TimesAreUtc) {
  EXPECT_EQ(time_text(JobTime{seconds(1734540448)}), "2024-12-18T16:47:28Z");
  EXPECT_EQ(time_text(JobTime{seconds(951782400)}), "2000-02-29T00:00:00Z");
  EXPECT_EQ(time_text(std::nullopt), "<none>");
}

TEST(JobTable, DurationsAreParsedWithUnits) {
  EXPECT_EQ(parse_duration("60s"), milliseconds(60'000));
  EXPECT_EQ(parse_duration("60"), milliseconds(60'000));
  EXPECT_EQ(parse_duration("0"), milliseconds(0));
  EXPECT_EQ(parse_duration("1m30s"), milliseconds(90'000));
  EXPECT_EQ(parse_duration("1.5h"), milliseconds(5'400'000));
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("2d"), milliseconds(172'800'000));
  for (const char* wrong :
       {"", "s", "-1s", "1x", "1 s", " 1", "0x10", "inf", "nan", "1e3s", "1m30", "1.2.3s", "99999999999d"})
    EXPECT_EQ(parse_duration(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace lockstep
