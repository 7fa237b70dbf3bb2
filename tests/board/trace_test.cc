// Traces of ranks: what is read of a file, and which rank is the slowest.
#include "board/trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text_bytes.h"
#include "base/throws.h"
#include "board/trace_store.h"
#include "support/text.h"

namespace lockstep::board {
namespace {

// An event with times in milliseconds.
std::string event(const std::string& name, const std::string& category, double begin, double duration, int lane = 0) {
  return fmt::format(R"({{"name":"{}","cat":"{}","ph":"X","ts":{},"dur":{},"pid":0,"tid":{}}})", name, category,
                     1000 * begin, 1000 * duration, lane);
}
std::string file_of(const std::vector<std::string>& events) {
  std::string out;
  for (const std::string& each : events) out += (out.empty() ? "" : ",") + each;
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + out + "]}";
}
RankTrace rank_of(int64_t rank, const std::vector<std::string>& events) {
  return parse_trace(file_of(events), rank, fmt::format("trace/rank_{}.json", rank));
}

// A step of 10 ms that waits in a collective after its work.
std::vector<std::string> step_events(int64_t step, double begin, double data, double compute) {
  return {event(fmt::format("step {}", step), "step", begin, 10), event("next batch", "data", begin, data),
          event("step program", "compute", begin + data, compute, 1),
          event("all_reduce", "collective", begin + data + compute, 10 - data - compute, 1)};
}
std::vector<std::string> steps_events(double begin, double data, double compute) {
  std::vector<std::string> out;
  for (int64_t step = 5; step < 8; ++step) {
    const auto more = step_events(step, begin + 10 * static_cast<double>(step - 5), data, compute);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

TEST(TraceFile, EventsAreOrderedAndNested) {
  const RankTrace trace =
      rank_of(3, {event("inner", "compute", 2, 1), event("lane 7", "data", 0, 1, 7), event("outer", "dispatch", 1, 4),
                  event("after", "made up", 5, 1), R"({"name":"process_name","ph":"M","pid":0,"args":{"name":"x"}})"});
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.lanes, (std::vector<int64_t>{0, 7}));
  EXPECT_TRUE(trace.problems.empty());
  ASSERT_EQ(trace.events.size(), 4u);
  const auto name = [&](size_t i) { return trace.names[trace.events[i].name]; };
  EXPECT_EQ(name(0), "outer");
  EXPECT_EQ(name(1), "inner");
  EXPECT_EQ(name(2), "after");
  EXPECT_EQ(name(3), "lane 7");
  EXPECT_EQ(trace.events[1].depth, 1u);
  EXPECT_EQ(trace.events[2].depth, 0u);
  EXPECT_EQ(trace.events[2].category, TraceCategory::other);
  EXPECT_DOUBLE_EQ(trace.events[1].begin, 0.002);
  EXPECT_DOUBLE_EQ(trace.events[1].duration, 0.001);
}

TEST(TraceFile, StepsAreNumberedByTheirNames) {
  EXPECT_EQ(step_number("step 12"), 12);
  EXPECT_EQ(step_number("12/100"), 12);
  EXPECT_EQ(step_number("step"), std::nullopt);
  EXPECT_EQ(step_number("step 99999999999999999999"), std::nullopt);
}

TEST(TraceFile, WhatIsDamagedIsNamed) {
  const auto problem = [](const std::string& text) {
    const RankTrace trace = parse_trace(text, 0, "trace/rank_0.json");
    return trace.problems.empty() ? "" : trace.problems[0];
  };
  const std::string good = file_of({event("a", "data", 0, 1), event("b", "data", 1, 1)});
  EXPECT_EQ(problem(good), "");
  EXPECT_EQ(
      problem(good.substr(0, good.size() - 20)),
      fmt::format("trace/rank_0.json is damaged at byte {0} of {0}; the events before are shown", good.size() - 20));
  EXPECT_EQ(problem("{\"traceEvents\":["), "trace/rank_0.json is damaged at byte 16 of 16; nothing of it is shown");
  EXPECT_EQ(problem(""), "trace/rank_0.json is damaged at byte 0 of 0; nothing of it is shown");
  EXPECT_EQ(problem("[1,2]"), "trace/rank_0.json has no list \"traceEvents\"");
  EXPECT_EQ(problem(R"({"traceEvents":[{"name":"a","ph":"X","ts":1},{"name":"b","ph":"X","ts":1,"dur":-1}]})"),
            "trace/rank_0.json has 2 events without a time, which are not shown");
}

TEST(TraceFile, LargeFilesAreRefused) {
  const TempDir dir;
  const std::string path = dir.path() + "/rank_0.json";
  FileSystem::real().write(path, text_bytes("{"));
  std::filesystem::resize_file(path, uint64_t{200} << 20);
  const RankTrace trace = read_trace(path, 0);
  EXPECT_TRUE(trace.events.empty());
  EXPECT_EQ(trace.problems, (std::vector<std::string>{"trace/rank_0.json has 200 MB, but the board reads at most 64 MB "
                                                      "of a rank; trace fewer steps"}));
}

TEST(Trace, TheSlowestRankWaitsTheLeast) {
  const Trace trace = make_trace(
      {rank_of(0, steps_events(100, 1, 5)), rank_of(1, steps_events(100, 4, 5)), rank_of(2, steps_events(100, 1, 5))});
  ASSERT_EQ(trace.steps.size(), 3u);
  const TracedStep& step = trace.steps[1];
  EXPECT_EQ(step.step, 6);
  EXPECT_EQ(step.slowest, 1u);
  EXPECT_FALSE(step.is_even);
  EXPECT_EQ(step.category, TraceCategory::data);
  EXPECT_NEAR(step.work, 0.009, 1e-9);
  EXPECT_NEAR(step.others, 0.006, 1e-9);
  EXPECT_NEAR(step.excess, 0.003, 1e-9);
  EXPECT_NEAR(step.begin, 0.010, 1e-9);  // times begin at 0
  EXPECT_EQ(trace.summaries[1].slowest, 3);
  EXPECT_NEAR(trace.summaries[0].times[static_cast<size_t>(TraceCategory::collective)], 3 * 0.004, 1e-9);
}

TEST(Trace, EqualRanksAreEven) {
  const Trace trace = make_trace({rank_of(0, steps_events(0, 1, 5)), rank_of(1, steps_events(0, 1.05, 5))});
  EXPECT_TRUE(trace.steps[0].is_even);
  EXPECT_EQ(trace.summaries[0].slowest + trace.summaries[1].slowest, 0);
}

TEST(Trace, CollectivesThatOverlapWithComputationAreNoWaiting) {
  const Trace trace = make_trace({rank_of(0, {event("step 1", "step", 0, 10), event("backward", "compute", 0, 10, 1),
                                              event("all_reduce", "collective", 2, 5, 2)})});
  EXPECT_NEAR(trace.summaries[0].work, 0.010, 1e-9);
}

TEST(Trace, CallsThatWaitForTheirLaneAreNoWork) {
  const Trace trace =
      make_trace({rank_of(0, {event("step 1", "step", 0, 10, 1), event("launch", "dispatch", 0, 10, 1),
                              event("matmul", "compute", 1, 4), event("all_reduce", "collective", 5, 5)})});
  EXPECT_NEAR(trace.summaries[0].work, 0.005, 1e-9);
  EXPECT_NEAR(trace.summaries[0].times[static_cast<size_t>(TraceCategory::dispatch)], 0.001, 1e-9);
}

TEST(Trace, NestedEventsCountOnce) {
  const Trace trace = make_trace({rank_of(
      0, {event("step 1", "step", 0, 10), event("dispatch", "dispatch", 0, 8), event("wait", "collective", 2, 3)})});
  const CategoryTimes& times = trace.summaries[0].times;
  EXPECT_NEAR(times[static_cast<size_t>(TraceCategory::dispatch)], 0.005, 1e-9);
  EXPECT_NEAR(times[static_cast<size_t>(TraceCategory::collective)], 0.003, 1e-9);
  EXPECT_NEAR(times[static_cast<size_t>(TraceCategory::other)], 0.002, 1e-9);
  EXPECT_NEAR(trace.summaries[0].work, 0.007, 1e-9);
}

TEST(Trace, HostsWithOtherClocksAreAligned) {
  const Trace trace = make_trace({rank_of(0, steps_events(0, 1, 5)), rank_of(1, steps_events(1e9, 1, 5))});
  EXPECT_NEAR(trace.end, 0.030, 1e-6);
  EXPECT_EQ(trace.problems, (std::vector<std::string>{"the clocks of the hosts differ: rank 1 was moved so that the "
                                                      "first step that each has in common with rank 0 ends at the same "
                                                      "time"}));
}

TEST(Trace, FoldersWithoutTracesAreNamed) {
  const TempDir dir;
  FileSystem::real().make_dirs(dir.path() + "/trace");
  FileSystem::real().write(dir.path() + "/trace/rank_x.json", text_bytes("{}"));
  EXPECT_THROWS(read_traces(dir.path()), Error, "the run has no trace/rank_0.json; `lockstep train --trace` writes it");
  FileSystem::real().write(dir.path() + "/trace/rank_10.json", text_bytes(file_of({event("a", "data", 0, 1)})));
  FileSystem::real().write(dir.path() + "/trace/rank_9.json", text_bytes(file_of({event("a", "data", 0, 1)})));
  const Trace trace = read_traces(dir.path());
  ASSERT_EQ(trace.ranks.size(), 2u);
  EXPECT_EQ(trace.ranks[0].rank, 9);
  const Trace part = read_traces(dir.path(), std::ssize(file_of({event("a", "data", 0, 1)})));
  EXPECT_EQ(part.ranks.size(), 1u);
  EXPECT_EQ(part.problems, (std::vector<std::string>{"the first 1 of 2 ranks are shown: the board reads at most 256 "
                                                     "ranks and 0 MB"}));
}

TEST(Trace, ShortEventsAreJoined) {
  std::vector<std::string> events;
  for (int i = 0; i < 1000; ++i)
    events.push_back(event(i == 500 ? "long" : "short", "compute", i, i == 500 ? 0.9 : 0.5));
  const Trace trace = make_trace({rank_of(0, events)});
  const auto slices = [&](double from, double to) {
    return nlohmann::json::parse(slices_json(trace, {.from = from, .to = to, .width = 100})).at("rows")[0].at("slices");
  };
  const nlohmann::json all = slices(0, 1);  // a pixel is 10 ms
  EXPECT_LE(all.size() / 5, 120u);
  int64_t count = 0;
  for (size_t i = 4; i < all.size(); i += 5) count += all[i].get<int64_t>();
  EXPECT_EQ(count, 1000);
  EXPECT_EQ(slices(0.5, 0.51).size() / 5, 11u);  // all that touch this part, one by one
}

TEST(TraceStore, TracesAreReadAgainWhenTheyChange) {
  const TempDir dir;
  const auto write = [&](double duration) {
    FileSystem::real().make_dirs(dir.path() + "/trace");
    FileSystem::real().write(dir.path() + "/trace/rank_0.json", text_bytes(file_of({event("a", "data", 0, duration)})));
  };
  TraceStore store;
  write(1);
  const auto first = store.get(dir.path(), "1");
  write(2);
  EXPECT_EQ(store.get(dir.path(), "1"), first);
  EXPECT_NEAR(store.get(dir.path(), "2")->end, 0.002, 1e-9);
}

}  // namespace
}  // namespace lockstep::board
