#include "lockstep/loggers.h"

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "train/logging.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
constexpr double kLoggedNan = std::numeric_limits<double>::quiet_NaN(),
                 kLoggedInf = std::numeric_limits<double>::infinity();

class FileLoggers : public testing::Test {
 protected:
  detail::LogClock clock() {
    return {.unix_seconds = [this] { return 1731646000.5 + time_; }, .steady_seconds = [this] { return time_; }};
  }
  std::shared_ptr<Logger> json_lines() { return detail::json_lines_logger(run(), files_, clock()); }
  std::shared_ptr<Logger> csv() { return detail::csv_logger(run(), files_, clock()); }
  std::string run() const { return dir_.path() + "/run"; }
  std::string read(const std::string& name) {
    const std::vector<uint8_t> bytes = files_.read_file(run() + "/" + name);
    return {bytes.begin(), bytes.end()};
  }
  void write(const std::string& name, const std::string& text) {
    files_.make_dirs(run());
    files_.write(run() + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  std::vector<Json> lines() {
    std::istringstream in(read("metrics.jsonl"));
    std::vector<Json> out;
    for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
    return out;
  }

  TempDir dir_;
  FaultyFiles files_;
  double time_ = 0;
};

using JsonLines = FileLoggers;
using Csv = FileLoggers;

TEST_F(JsonLines, EveryEventIsAnObject) {
  const auto logger = json_lines();
  logger->begin({.config = {{"model", "m\"l\np"}}, .title = "mlp", .total_steps = 9, .steps_per_epoch = 3});
  logger->step(1, {{"loss", 2.5}, {"odd \"name\"", 1e-20}, {"accuracy", kLoggedNan}, {"x", -kLoggedInf}, {"step", 7}});
  logger->evaluation(1, {{"test_accuracy", 0.1}});
  logger->message(1, "saved \"x\"\n", true);
  logger->end(9, {{"loss", 0.1}});
  const std::vector<Json> got = lines();
  ASSERT_EQ(got.size(), 5u);
  const double time = 1731646000.5;
  EXPECT_EQ(got[0], (Json{{"kind", "start"},
                          {"step", 0},
                          {"time", time},
                          {"date", "2024-11-15T04:46:40Z"},
                          {"title", "mlp"},
                          {"total_steps", 9},
                          {"steps_per_epoch", 3},
                          {"config", {{"model", "m\"l\np"}}}}));
  EXPECT_EQ(got[1], (Json{{"kind", "step"},
                          {"step", 1},
                          {"time", time},
                          {"loss", 2.5},
                          {"odd \"name\"", 1e-20},
                          {"accuracy", nullptr},
                          {"x", nullptr},
                          {"scalar_step", 7}}));
  EXPECT_EQ(got[2], (Json{{"kind", "evaluation"}, {"step", 1}, {"time", time}, {"test_accuracy", 0.1}}));
  EXPECT_EQ(got[3],
            (Json{{"kind", "message"}, {"step", 1}, {"time", time}, {"alarm", true}, {"text", "saved \"x\"\n"}}));
  EXPECT_EQ(got[4], (Json{{"kind", "end"}, {"step", 9}, {"time", time}, {"loss", 0.1}}));
}

TEST_F(JsonLines, StepsAreWrittenOnceASecondAndAtEvaluations) {
  const auto logger = json_lines();
  logger->begin({});
  const int before = files_.count("append");
  for (int step = 1; step <= 100; ++step) logger->step(step, {{"loss", 1}});
  EXPECT_EQ(files_.count("append"), before);
  EXPECT_EQ(lines().size(), 1u);
  time_ = 1.01;
  logger->step(101, {{"loss", 1}});
  EXPECT_EQ(files_.count("append"), before + 1);
  EXPECT_EQ(lines().size(), 102u);
  logger->step(102, {{"loss", 1}});
  EXPECT_EQ(lines().size(), 102u);
  logger->evaluation(102, {{"test_loss", 1}});
  EXPECT_EQ(lines().size(), 104u);
}

TEST_F(JsonLines, DestructorFlushes) {
  auto logger = json_lines();
  logger->begin({});
  logger->step(1, {{"loss", 1}});
  logger.reset();
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(JsonLines, ResumedRunDropsLaterAndTruncatedLinesAndAppends) {
  {
    const auto logger = json_lines();
    logger->begin({.total_steps = 9});
    for (int step = 1; step <= 5; ++step) logger->step(step, {{"loss", step}});
    logger->evaluation(3, {{"test_loss", 3}});
    logger->message(5, "saved", false);
  }
  write("metrics.jsonl", read("metrics.jsonl") + "{\"kind\":\"step\",\"step\":2,\"ti");
  const auto logger = json_lines();
  logger->message(3, "before the run begins", false);
  logger->begin({.total_steps = 9, .first_step = 3});
  logger->step(4, {{"loss", 40}});
  logger->end(4, {});
  std::vector<std::string> got;
  for (const Json& line : lines()) got.push_back(line["kind"].get<std::string>() + line["step"].dump());
  EXPECT_EQ(got, (std::vector<std::string>{"start0", "step1", "step2", "step3", "evaluation3", "message3", "start3",
                                           "step4", "end4"}));
  EXPECT_EQ(files_.list(run()), std::vector<std::string>{"metrics.jsonl"});
}

TEST_F(JsonLines, NewRunRenamesTheFileOfAnEarlierRun) {
  write("metrics.jsonl", "old\n");
  json_lines()->begin({});
  EXPECT_EQ(lines().size(), 1u);
  EXPECT_EQ(read("metrics.jsonl.previous"), "old\n");
}

TEST_F(JsonLines, FullDiskIsReportedOnceAndTrainingContinues) {
  const auto logger = json_lines();
  logger->begin({});
  files_.fail("append", ENOSPC);
  testing::internal::CaptureStderr();
  for (int step = 1; step <= 3; ++step) {
    logger->step(step, {{"loss", 1}});
    logger->evaluation(step, {{"test_loss", 1}});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: append to " + run() +
                "/metrics.jsonl: No space left on device; the disk is full: free some space or choose another folder; "
                "training continues without writing " +
                run() + "/metrics.jsonl\n");
}

TEST_F(JsonLines, FailureOnResumeIsReportedAndKeepsTheFile) {
  write("metrics.jsonl", "{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"step\",\"step\":9}\n");
  const auto logger = json_lines();
  files_.fail("rename", EIO);
  testing::internal::CaptureStderr();
  logger->begin({.first_step = 5});
  logger->step(6, {{"loss", 1}});
  logger->end(6, {});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("training continues"), std::string::npos);
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(FileLoggers, UnwritableFolderThrowsImmediately) {
  write("file", "");
  const std::string inside = run() + "/file/logs";
  EXPECT_THROWS(json_lines_logger(inside), IoError, "create folder " + inside);
  EXPECT_THROWS(csv_logger(inside), IoError, "a component of the path is a file; check the path");
  EXPECT_THROWS(tensorboard_logger(inside), IoError, "create folder " + inside);
  files_.fail("append", EACCES);
  EXPECT_THROWS(json_lines(), IoError,
                "append to " + run() + "/metrics.jsonl: Permission denied; check the permissions");
  EXPECT_THROWS(csv(), IoError, "metrics.csv: Permission denied");
}

TEST_F(Csv, HeaderHasTheColumnsOfEvaluationsFromTheStart) {
  const auto logger = csv();
  logger->begin({});
  logger->step(1, {{"loss", 2.5}, {"accuracy", 0.125}});
  logger->step(2, {{"loss", kLoggedNan}, {"accuracy", 1e-7}});
  logger->evaluation(2, {{"test_loss", 2}, {"test_accuracy", 0.5}});
  logger->end(2, {{"loss", 1}});
  EXPECT_EQ(read("metrics.csv"),
            "step,time,loss,accuracy,test_loss,test_accuracy\n"
            "1,1731646000.500,2.5,0.125,,\n"
            "2,1731646000.500,nan,1e-07,,\n"
            "2,1731646000.500,,,2,0.5\n");
  EXPECT_EQ(files_.count("rename"), 0);
}

TEST_F(Csv, NewColumnIsAddedToExistingRows) {
  const auto logger = csv();
  logger->begin({});
  logger->step(1, {{"loss", 1}});
  logger->step(2, {{"loss", 2}, {"a \"b\", c", 3}});
  logger->step(3, {{"new", 4}, {"loss", 5}});
  logger->end(3, {});
  EXPECT_EQ(read("metrics.csv"),
            "step,time,loss,test_loss,\"a \"\"b\"\", c\",new\n"
            "1,1731646000.500,1,,,\n"
            "2,1731646000.500,2,,3,\n"
            "3,1731646000.500,5,,,4\n");
}

// The columns of evaluations follow from the metrics of the task and the sets that are evaluated.
TEST_F(Csv, ColumnsOfEvaluationsAreThereFromTheStart) {
  const auto logger = csv();
  logger->begin({.sets = {"validation", "test"}});
  logger->step(1, {{"loss", 1}, {"perplexity", 3}, {"learning_rate", 0.5}});
  logger->evaluation(1, {{"validation_loss", 2}, {"validation_perplexity", 7}});
  logger->evaluation(1, {{"test_loss", 4}, {"test_perplexity", 9}});
  EXPECT_EQ(read("metrics.csv"),
            "step,time,loss,perplexity,learning_rate,validation_loss,validation_perplexity,test_loss,test_perplexity\n"
            "1,1731646000.500,1,3,0.5,,,,\n"
            "1,1731646000.500,,,,2,7,,\n"
            "1,1731646000.500,,,,,,4,9\n");
}

TEST_F(Csv, ResumedRunDropsLaterAndTruncatedRowsAndKeepsColumns) {
  const std::string head = "step,time,loss,test_loss,\"a \"\"b\"\", c\"\n", row1 = "1,5.000,2.5,,1\n",
                    row2 = "2,6.000,2,,1\n";
  write("metrics.csv", head + row1 + row2 + "3,7.000,2,,1\n" + "2,7.0");
  const auto logger = csv();
  logger->begin({.first_step = 2});
  logger->step(3, {{"loss", 1}, {"a \"b\", c", 9}});
  logger->evaluation(3, {{"test_loss", 4}, {"test_accuracy", 1}});
  EXPECT_EQ(read("metrics.csv"),
            "step,time,loss,test_loss,\"a \"\"b\"\", c\",test_accuracy\n1,5.000,2.5,,1,\n2,6.000,2,,1,\n"
            "3,1731646000.500,1,,9,\n3,1731646000.500,,4,,1\n");
}

TEST_F(Csv, ResumingWithoutAValidFileStartsANewOne) {
  for (const char* old : {"", "a,b\n1,2\n", "step,ti"}) {
    write("metrics.csv", old);
    const auto logger = csv();
    logger->begin({.first_step = 2});
    logger->step(3, {{"loss", 1}});
    logger->end(3, {});
    EXPECT_EQ(read("metrics.csv"), "step,time,loss,test_loss\n3,1731646000.500,1,\n") << old;
  }
}

TEST_F(FileLoggers, LoggerServesSeveralRuns) {
  const Loggers loggers = {csv(), json_lines()};
  for (const int64_t first : {0, 2, 0}) {
    for (const auto& logger : loggers) {
      logger->begin({.first_step = first});
      logger->step(first + 1, {{"loss", 1}});
      logger->step(first + 2, {{"loss", 1}});
    }
    if (first == 2) {
      for (const auto& logger : loggers) logger->end(4, {});
      const std::string rest = ",1731646000.500,1,\n";
      EXPECT_EQ(read("metrics.csv"),
                "step,time,loss,test_loss\n1" + rest + "2" + rest + "3" + rest + "4" + rest);
      EXPECT_EQ(lines().size(), 7u);  // two starts, four steps, one end
    }
  }
  for (const auto& logger : loggers) logger->end(2, {});
  EXPECT_EQ(read("metrics.csv"),
            "step,time,loss,test_loss\n1,1731646000.500,1,\n2,1731646000.500,1,\n");
  EXPECT_EQ(lines().size(), 4u);
}

TEST_F(Csv, FullDiskIsReportedOnce) {
  const auto logger = csv();
  logger->begin({});
  logger->evaluation(1, {{"test_loss", 1}});
  files_.fail("write", ENOSPC);
  testing::internal::CaptureStderr();
  logger->step(2, {{"new", 1}});  // requires a rewrite of the file
  for (int step = 3; step < 6; ++step) logger->evaluation(step, {{"newer", 1}});
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_NE(output.find("the disk is full"), std::string::npos);
  EXPECT_EQ(output.find("lockstep: "), output.rfind("lockstep: "));
  EXPECT_EQ(read("metrics.csv"), "step,time,test_loss\n1,1731646000.500,1\n");
}

TEST(MakeLoggers, MakesLoggersByName) {
  const TempDir dir;
  EXPECT_EQ(make_loggers(" console, csv ,jsonl,tensorboard,compact,batches", dir.path()).size(), 6u);
  EXPECT_EQ(FileSystem::real().list(dir.path()).size(), 3u);
  EXPECT_EQ(make_loggers("csv,csv", dir.path()).size(), 1u);
  EXPECT_TRUE(make_loggers("", "").empty());
  EXPECT_TRUE(make_loggers("none", "").empty());
  EXPECT_TRUE(make_loggers(" , ", "").empty());
}

TEST(MakeLoggers, UnknownNameIsRejectedBeforeCreatingFiles) {
  const TempDir dir;
  EXPECT_THROWS(make_loggers("csv,tensorbord", dir.path()), Error, "unknown value \"tensorbord\"");
  EXPECT_THROWS(make_loggers("csv,tensorbord", dir.path()), Error,
                "console, compact, batches, jsonl, csv, tensorboard or none");
  EXPECT_THROWS(make_loggers("tensorbord", dir.path()), Error, "did you mean \"tensorboard\"?");
  EXPECT_TRUE(FileSystem::real().list(dir.path()).empty());
}

TEST(MakeLoggers, FileLoggersNeedAFolder) {
  EXPECT_THROWS(make_loggers("console,csv", ""), Error,
                "logger: csv writes files, but no folder is given; give the folder for the metrics files");
}

}  // namespace
}  // namespace lockstep
