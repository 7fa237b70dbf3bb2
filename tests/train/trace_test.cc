// Traces of steps: what is recorded, the files of the ranks, and the joined file.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/text_bytes.h"
#include "lane/trace.h"
#include "lockstep/engine.h"
#include "support/text.h"
#include "support/text_file.h"
#include "train/trace_file.h"

namespace lockstep {
namespace {

using nlohmann::json;
using SpanKind = TraceSpan::Kind;

std::string text_at(const std::string& path) {
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path);
  return {bytes.begin(), bytes.end()};
}
json events_at(const std::string& path) { return json::parse(text_at(path)).at("traceEvents"); }

std::vector<json> events_of(const json& all, const std::string& category) {
  std::vector<json> out;
  for (const json& each : all)
    if (each.value("cat", "") == category) out.push_back(each);
  return out;
}

TEST(Trace, RecordsSpansOnlyWhileItIsOn) {
  { const TracedScope before(SpanKind::data, "before"); }
  Trace::start();
  EXPECT_TRUE(Trace::is_on());
  { const TracedScope scope(SpanKind::data, "batch"); }
  std::thread([] {
    Trace::set_lane(3);
    const TracedScope scope(SpanKind::compute, "tanh", Trace::lane());
  }).join();
  Trace::at_stop([] { Trace::add({SpanKind::compute, "later", 1, 2, 0}); });
  const std::vector<TraceSpan> spans = Trace::stop();
  EXPECT_FALSE(Trace::is_on());
  { const TracedScope after(SpanKind::data, "after"); }
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].name, "batch");
  EXPECT_EQ(spans[0].track, TraceSpan::kHost);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_EQ(spans[1].track, 3);
  EXPECT_EQ(spans[2].name, "later");
  EXPECT_EQ(Trace::stop().size(), 0u);
}

TEST(TraceFile, HasEventsWithExactTimes) {
  const json all = json::parse(
      detail::trace_json({{SpanKind::compute, "a\"b", 1'800'000'000'123'456'789, 1'800'000'000'123'457'790, 1},
                          {SpanKind::step, "step 1", 0, 1000, TraceSpan::kHost},
                          {SpanKind::checkpoint, "write", 5, 5, TraceSpan::kWriter}},
                         7, 2));
  const json& events = all.at("traceEvents");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0], (json{{"name", "a\"b"},
                             {"cat", "compute"},
                             {"ph", "X"},
                             {"ts", 1'800'000'000'123'456.789},
                             {"dur", 1.001},
                             {"pid", 7},
                             {"tid", 1}}));
  EXPECT_EQ(events[1]["tid"], 2);
  EXPECT_EQ(events[2]["tid"], 3);
  EXPECT_EQ(json::parse(detail::trace_json({}, 0, 1)).at("traceEvents").size(), 0u);
}

TEST(TraceFile, OfAllRanksAreJoined) {
  const TempDir dir;
  FileSystem& files = FileSystem::real();
  for (const int rank : {0, 1})
    files.write(detail::rank_trace_path(dir.path(), rank),
                text_bytes(detail::trace_json({{SpanKind::step, "step 1", 0, 1000, TraceSpan::kHost}}, rank, 1)));
  files.write(detail::rank_trace_path(dir.path(), 2), text_bytes("{\"traceEvents\":["));
  files.write(detail::rank_trace_path(dir.path(), 3), text_bytes("[]"));
  const std::vector<std::string> problems = detail::join_traces(files, dir.path(), 5, 1, dir.path() + "/all.json");
  ASSERT_EQ(problems.size(), 3u);
  expect_contains(problems[0], "rank_2.json");
  EXPECT_EQ(problems[1], dir.path() + "/rank_3.json has no traceEvents; it is damaged");
  EXPECT_EQ(problems[2], dir.path() + "/rank_4.json does not exist: rank 4 wrote it on another host");
  const json all = events_at(dir.path() + "/all.json");
  EXPECT_EQ(events_of(all, "step").size(), 2u);
  EXPECT_EQ(all[0],
            (json{{"name", "process_name"}, {"ph", "M"}, {"pid", 0}, {"tid", 0}, {"args", {{"name", "rank 0"}}}}));
}

struct Messages : Logger {
  std::vector<std::string> texts;
  void step(int64_t, const Scalars&) override {}
  void evaluation(int64_t, const Scalars&) override {}
  void message(int64_t, const std::string& text, bool alarm) override { texts.push_back((alarm ? "! " : "") + text); }
};

// Trains an MLP and returns the messages of the run.
std::vector<std::string> traced_run(const TraceOptions& trace, const std::string& checkpoints, int64_t steps) {
  const auto messages = std::make_shared<Messages>();
  Engine engine(find_model("mlp"), {.checkpoint_dir = checkpoints, .checkpoint_every = 3, .loggers = {messages}});
  TrainState state = engine.create_state();
  Dataset data = synthetic_digits(200, 20);
  Loader loader(std::move(data.train), {.batch_size = 20});
  engine.fit(state, loader,
             {.steps = steps, .eval_every = 3, .test = image_source(std::move(data.test)), .trace = trace});
  return messages->texts;
}

double end_of(const json& event) { return event["ts"].get<double>() + event["dur"].get<double>(); }

TEST(FitTrace, HasTheChosenSteps) {
  const TempDir dir;
  const std::string file = dir.path() + "/trace.json";
  const std::vector<std::string> texts = traced_run(
      {.file = file, .folder = dir.path() + "/ranks", .first_step = 2, .last_step = 4}, dir.path() + "/run", 8);
  ASSERT_FALSE(texts.empty());
  EXPECT_EQ(texts.back(), "the trace is in " + file + "; open it at https://ui.perfetto.dev");
  const json all = events_at(dir.path() + "/ranks/rank_0.json");
  const std::vector<json> steps = events_of(all, "step");
  ASSERT_EQ(steps.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(steps[i]["name"], "step " + std::to_string(i + 2));
  EXPECT_EQ(events_of(all, "data").size(), 3u);
  EXPECT_EQ(events_of(all, "evaluation").size(), 1u);  // after step 3
  EXPECT_GE(events_of(all, "checkpoint").size(), 1u);
  EXPECT_GE(events_of(all, "dispatch").size(), 3u);
  const std::vector<json> compute = events_of(all, "compute");
  EXPECT_GE(compute.size(), 3u);
  const double last = end_of(events_of(all, "evaluation")[0]);
  for (const json& each : compute) {
    EXPECT_GE(each["ts"].get<double>(), steps[0]["ts"].get<double>() - 1) << each;
    EXPECT_LE(end_of(each), std::max(last, end_of(steps[2])) + 1e6) << each;
  }
  const json joined = events_at(file);
  EXPECT_EQ(events_of(joined, "compute").size(), compute.size());
  EXPECT_FALSE(Trace::is_on());
}

TEST(FitTrace, ShortRunsHaveAnEmptyTrace) {
  const TempDir dir;
  const std::vector<std::string> texts = traced_run({.file = dir.path() + "/trace.json"}, "", 2);
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "! the trace is empty: no step from 10 to 20 was run",
                       "the trace is in " + dir.path() + "/trace.json; open it at https://ui.perfetto.dev"}));
  EXPECT_TRUE(FileSystem::real().exists(dir.path() + "/trace.json.ranks/rank_0.json"));
}

TEST(FitTrace, DoesNotChangeTheResult) {
  const TempDir dir;
  const auto run = [&](const TraceOptions& trace) {
    Engine engine(find_model("mlp"), {});
    TrainState state = engine.create_state();
    Dataset data = synthetic_digits(200, 20);
    Loader loader(std::move(data.train), {.batch_size = 20});
    engine.fit(state, loader, {.steps = 6, .trace = trace});
    return state.params[0].to_vector<float>();
  };
  EXPECT_EQ(run({}), run({.file = dir.path() + "/t.json", .first_step = 1, .last_step = 3}));
}

TEST(FitTrace, FilesThatCannotBeWrittenAreReported) {
  const TempDir dir;
  FileSystem::real().write(dir.path() + "/file", {});
  const std::vector<std::string> texts =
      traced_run({.file = dir.path() + "/file/t.json", .first_step = 1, .last_step = 1}, "", 1);
  ASSERT_EQ(texts.size(), 2u);
  expect_contains(texts[0], "! the trace of rank 0 is lost: ");
  expect_contains(texts[1], "! the trace cannot be written: ");
}

}  // namespace
}  // namespace lockstep
