#include "train/run_record.h"

#include <cerrno>
#include <limits>

#include "base/faulty_files.h"
#include "base/json.h"
#include "base/throws.h"
#include "support/text_file.h"
#include "train/run_recorder.h"

namespace lockstep {
namespace {

RunRecord full_record() {
  return {.state = RunState::failed,
          .error = "no \"space\"\n",
          .task = "mlp",
          .dataset = "mnist",
          .settings = {{"seed", "3"}, {"shard", "a;b"}},
          .program = "lockstep",
          .version = "0.1.0",
          .command = {"lockstep", "train", "--expect", "a>=1"},
          .folder = "/home/me",
          .host = "n7",
          .pid = 4711,
          .created = 1731646000.125,
          .started = 1731646100,
          .updated = 1731646200.5,
          .ended = 1731646200.999,
          .step = 40,
          .total_steps = 100,
          .metrics = {{"loss", {.last = 0.25}}, {"test_accuracy", {.last = 0.5, .best = 0.75, .best_step = 20}}},
          .git_commit = "0123456789abcdef",
          .git_modified = true,
          .platform = "cuda",
          .hardware = "NVIDIA H200",
          .devices = 8,
          .processes = 2,
          .environment = {{"SLURM_JOB_ID", "1"}},
          .jobs = {{"launch-a", "1"}}};
}

TEST(RunRecord, ReadsBackAsWritten) {
  const RunRecord full = full_record();
  EXPECT_EQ(parse_run_record(to_json(full), "run.json"), full);
  RunRecord small;
  small.created = small.started = small.updated = 1e9;
  EXPECT_EQ(parse_run_record(to_json(small), "run.json"), small);
}

TEST(RunRecord, KeepsInfinitiesAndNotANumber) {
  RunRecord record = full_record();
  record.metrics["loss"].last = std::numeric_limits<double>::infinity();
  record.metrics["x"].last = std::numeric_limits<double>::quiet_NaN();
  const RunRecord back = parse_run_record(to_json(record), "run.json");
  EXPECT_EQ(back.metrics.at("loss").last, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(back.metrics.at("x").last));
}

TEST(RunRecord, ThatIsDamagedIsAnErrorWithItsFile) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = to_json(full_record());
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_THROWS(parse_run_record("[]", "a/run.json"), Error, "a/run.json: ");
  EXPECT_THROWS(parse_run_record("{", "a/run.json"), JsonSyntaxError, "a/run.json");
  EXPECT_THROWS(parse_run_record(with("\"failed\"", "\"asleep\""), "run.json"), Error,
                "run.json: unknown state \"asleep\"");
  EXPECT_THROWS(parse_run_record(with("\"format\": 1", "\"format\": 2"), "run.json"), Error,
                "run.json: format 2 is not supported, only 1");
  EXPECT_THROWS(parse_run_record(with("2024-11-15T04:46:40.125Z", "yesterday"), "run.json"), Error,
                "run.json: created is yesterday; expected a time such as 2026-01-31T12:00:00Z");
  EXPECT_THROWS(parse_run_record(with("0.25", "\"much\""), "run.json"), Error, "\"much\" is not a number");
  EXPECT_THROWS(parse_run_record(with("\"pid\"", "\"pit\""), "run.json"), Error, "this is not the record of a run");
}

TEST(RunRecord, TheBestValueDependsOnTheMetric) {
  RunRecord record;
  set_evaluated_metrics(record, 10, {{"test_accuracy", 0.5}, {"test_loss", 2}});
  set_evaluated_metrics(record, 20, {{"test_accuracy", 0.7}, {"test_loss", 1}});
  set_evaluated_metrics(record, 30, {{"test_accuracy", 0.6}, {"test_loss", std::nan("")}});
  EXPECT_EQ(record.metrics.at("test_accuracy"), (RecordedMetric{.last = 0.6, .best = 0.7, .best_step = 20}));
  EXPECT_EQ(record.metrics.at("test_loss").best, 1);
  EXPECT_EQ(value_of(record, "test_accuracy"), 0.7);
  EXPECT_EQ(value_of(record, "f1"), std::nullopt);
}

TEST(RunRecord, TheMainMetricIsOfTheValidationSetIfThereIsOne) {
  RunRecord record;
  EXPECT_EQ(main_metric(record), "");
  set_metrics(record, {{"loss", 1}});
  EXPECT_EQ(main_metric(record), "loss");
  set_evaluated_metrics(record, 1, {{"test_loss", 1}});
  EXPECT_EQ(main_metric(record), "test_loss");
  set_evaluated_metrics(record, 1, {{"validation_loss", 1}});
  EXPECT_EQ(main_metric(record), "validation_loss");
  set_evaluated_metrics(record, 1, {{"validation_accuracy", 1}});
  EXPECT_EQ(main_metric(record), "validation_accuracy");
  RunRecord other;
  set_metrics(other, {{"a_rate", 1}});
  set_evaluated_metrics(other, 1, {{"test_f1", 1}});
  EXPECT_EQ(main_metric(other), "test_f1");
}

class Recorder : public testing::Test {
 protected:
  std::unique_ptr<RunRecorder> recorder() {
    return std::make_unique<RunRecorder>(
        dir_.path(), RunRecord{.task = "mlp"}, files_,
        detail::LogClock{.unix_seconds = [this] { return 1e9 + time_; }, .steady_seconds = [this] { return time_; }});
  }
  RunRecord read() { return read_run_record(FileSystem::real(), dir_.path()).value(); }

  TempDir dir_;
  FaultyFiles files_;
  double time_ = 0;
};

TEST_F(Recorder, RecordsProgressEveryFewSecondsAndTheEnd) {
  const auto it = recorder();
  EXPECT_EQ(read().state, RunState::running);
  const auto logger = it->logger();
  logger->begin({.total_steps = 100});
  logger->step(1, {{"loss", 3}});
  EXPECT_EQ(read().step, 0);
  time_ = 5;
  logger->step(2, {{"loss", 2}});
  EXPECT_EQ(read().step, 2);
  EXPECT_EQ(read().updated, 1e9 + 5);
  logger->evaluation(3, {{"test_loss", 1}});
  logger->end(3, {{"loss", 1.5}});
  time_ = 7;
  it->end(RunState::complete);
  const RunRecord last = read();
  EXPECT_EQ(last.state, RunState::complete);
  EXPECT_EQ(last.step, 3);
  EXPECT_EQ(last.total_steps, 100);
  EXPECT_EQ(last.ended, 1e9 + 7);
  EXPECT_EQ(last.metrics.at("test_loss"), (RecordedMetric{.last = 1, .best = 1, .best_step = 3}));
  EXPECT_EQ(last.metrics.at("loss").last, 1.5);
}

TEST_F(Recorder, AResumedRunKeepsItsCreationTimeAndItsMetricsSoFar) {
  {
    const auto it = recorder();
    it->logger()->begin({.total_steps = 100});
    it->logger()->evaluation(10, {{"test_loss", 3}, {"test_accuracy", 0.5}});
    it->logger()->evaluation(20, {{"test_loss", 4}, {"test_accuracy", 0.6}});
    it->end(RunState::failed, "the network");
  }
  time_ = 60;
  const auto it = recorder();
  it->logger()->begin({.total_steps = 100, .first_step = 10});
  const RunRecord record = read();
  EXPECT_EQ(record.state, RunState::running);
  EXPECT_EQ(record.error, "");
  EXPECT_EQ(record.ended, 0);
  EXPECT_EQ(record.created, 1e9);
  EXPECT_EQ(record.started, 1e9 + 60);
  EXPECT_EQ(record.step, 10);
  EXPECT_EQ(record.metrics.at("test_loss").best, 3);
  EXPECT_EQ(record.metrics.at("test_accuracy").best, std::nullopt) << "it was measured after the checkpoint";
}

TEST_F(Recorder, ARunThatStartsAgainForgetsItsMetrics) {
  recorder()->logger()->evaluation(10, {{"test_loss", 3}});
  const auto it = recorder();
  it->logger()->begin({.total_steps = 100});
  EXPECT_TRUE(read().metrics.empty());
}

TEST_F(Recorder, WarnsOnceWhenTheFileCannotBeWrittenAndTriesAgain) {
  const auto it = recorder();
  files_.fail("rename", ENOSPC);
  testing::internal::CaptureStderr();
  it->logger()->begin({.total_steps = 100});
  it->logger()->end(3, {});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("training continues, and " + dir_.path() + "/run.json is updated when that succeeds again\n"),
            text.npos)
      << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  EXPECT_EQ(read().total_steps, 0);
  EXPECT_EQ(files_.list(dir_.path()), std::vector<std::string>{"run.json"}) << "no partial file is left";
  files_.fail("rename", 0);
  it->end(RunState::complete);
  EXPECT_EQ(read().total_steps, 100);
  EXPECT_EQ(read().state, RunState::complete);
}

TEST_F(Recorder, FactsOfThisProcessNameItsProgramAndCommand) {
  const RunRecord facts = facts_of_this_process();
  EXPECT_EQ(facts.program, "lockstep");
  EXPECT_EQ(facts.pid, ::getpid());
  ASSERT_FALSE(facts.command.empty());
  EXPECT_NE(facts.command[0].find("test_train"), std::string::npos);
  EXPECT_GE(facts.devices, 1);
}

}  // namespace
}  // namespace lockstep
