// Reading metrics.jsonl: while it is written, replaced, damaged and large.
#include "charts/run_metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/faulty_files.h"
#include "base/text_bytes.h"
#include "charts/metrics_folder.h"

namespace lockstep::charts {
namespace {

std::string step_line(int64_t step, const std::string& scalars) {
  return fmt::format("{{\"kind\":\"step\",\"step\":{},\"time\":{}.5,{}}}\n", step, 1000 + step, scalars);
}

std::string loss_line(int64_t step, double loss) { return step_line(step, fmt::format("\"loss\":{}", loss)); }

class RunMetricsFile : public testing::Test {
 protected:
  void write(const std::string& text) { files_.write(path_, text_bytes(text)); }
  void append(const std::string& text) { files_.append(path_, text_bytes(text)); }
  const std::vector<Bucket>& loss() { return run_.series().at("loss").buckets(); }

  TempDir dir_;
  FileSystem& files_ = FileSystem::real();
  std::string path_ = dir_.path() + "/metrics.jsonl";
  RunMetrics run_{path_, files_};
};

TEST_F(RunMetricsFile, MissingFilesAreEmpty) {
  EXPECT_TRUE(run_.update());
  EXPECT_TRUE(run_.series().empty());
}

TEST_F(RunMetricsFile, AppendedLinesAreFollowed) {
  write(loss_line(1, 3));
  EXPECT_TRUE(run_.update());
  EXPECT_EQ(loss().size(), 1u);
  append(loss_line(2, 2) + loss_line(3, 1));
  run_.update();
  ASSERT_EQ(loss().size(), 3u);
  EXPECT_EQ(loss()[2].sum, 1);
  EXPECT_EQ(run_.last_step(), 3);
  EXPECT_EQ(run_.generation(), 0);
}

// Counts the bytes for which readers ask.
class ReadCounter final : public FaultyFiles {
 public:
  size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) override {
    asked += static_cast<int64_t>(out.size());
    return FaultyFiles::read(path, offset, out);
  }
  int64_t asked = 0;
};

TEST_F(RunMetricsFile, OnlyWhatWasWrittenIsRead) {
  ReadCounter counter;
  RunMetrics run(path_, counter);
  write(loss_line(1, 3));
  run.update();
  EXPECT_EQ(counter.asked, static_cast<int64_t>(loss_line(1, 3).size()));
  counter.asked = 0;
  run.update();
  EXPECT_LE(counter.asked, 128) << "only the last bytes are compared";
  append(loss_line(2, 2));
  counter.asked = 0;
  run.update();
  EXPECT_LE(counter.asked, 128 + static_cast<int64_t>(loss_line(2, 2).size()));
  EXPECT_EQ(run.series().at("loss").buckets().size(), 2u);
}

TEST_F(RunMetricsFile, IncompleteLastLinesAreReadWhenComplete) {
  const std::string line = loss_line(2, 2);
  write(loss_line(1, 3) + line.substr(0, 20));
  run_.update();
  EXPECT_EQ(loss().size(), 1u);
  append(line.substr(20));
  run_.update();
  EXPECT_EQ(loss().size(), 2u);
  EXPECT_EQ(run_.skipped_lines(), 0);
}

TEST_F(RunMetricsFile, DamagedLinesAreCountedAndSkipped) {
  write("garbage\n" + loss_line(1, 3) + "{\"kind\":\"st\n\n" + loss_line(2, 3));
  run_.update();
  EXPECT_EQ(loss().size(), 2u);
  EXPECT_EQ(run_.skipped_lines(), 3);
}

TEST_F(RunMetricsFile, LinesThatAreTooLongAreSkipped) {
  write(std::string(kMaxLineBytes + 5'000'000, 'x') + "\n" + loss_line(2, 3));
  run_.update();
  EXPECT_EQ(loss().size(), 1u);
  EXPECT_EQ(run_.skipped_lines(), 1);
}

TEST_F(RunMetricsFile, LinesLongerThanOneCallReadsAreRead) {
  std::string scalars = "\"loss\":1";
  for (int i = 0; i < 100'000; ++i) scalars += fmt::format(",\"tag{}\":{}", i, i);
  write(step_line(1, scalars) + loss_line(2, 1));
  while (!run_.update(1)) continue;
  EXPECT_EQ(loss().size(), 2u);
}

TEST_F(RunMetricsFile, FilesOfResumedRunsAreReadAgain) {
  write(loss_line(1, 3) + loss_line(2, 2) + loss_line(3, 1));
  run_.update();
  // As the logger does: later steps are dropped, and the file is replaced and becomes longer than before.
  write(loss_line(1, 3) + "{\"kind\":\"start\",\"step\":1,\"time\":2000.25,\"total_steps\":5}\n" +
        step_line(2, "\"loss\":9") + step_line(3, "\"loss\":8") + step_line(4, "\"loss\":7"));
  run_.update();
  EXPECT_EQ(run_.generation(), 1);
  ASSERT_EQ(loss().size(), 4u);
  EXPECT_EQ(loss()[1].sum, 9);
  ASSERT_EQ(run_.starts().size(), 1u);
  EXPECT_EQ(run_.starts()[0].step, 1);
  EXPECT_EQ(run_.total_steps(), 5);
}

TEST_F(RunMetricsFile, RemovedFilesBecomeEmpty) {
  write(loss_line(1, 3));
  run_.update();
  files_.remove(path_);
  EXPECT_TRUE(run_.update());
  EXPECT_TRUE(run_.series().empty());
  EXPECT_EQ(run_.generation(), 1);
}

TEST_F(RunMetricsFile, RepeatedStepsReplaceLaterOnes) {
  write(loss_line(1, 3) + loss_line(2, 2) + loss_line(3, 1) + loss_line(2, 7));
  run_.update();
  ASSERT_EQ(loss().size(), 2u);
  EXPECT_EQ(loss()[1].sum, 7);
}

TEST_F(RunMetricsFile, EndAndMessagesAreKept) {
  write(loss_line(1, 3) + "{\"kind\":\"message\",\"step\":1,\"time\":5,\"alarm\":true,\"text\":\"bad\"}\n" +
        "{\"kind\":\"end\",\"step\":1,\"time\":6,\"loss\":2.5}\n");
  run_.update();
  EXPECT_TRUE(run_.has_ended());
  EXPECT_EQ(run_.result(), (RunMetrics::Scalars{{"loss", 2.5}}));
  ASSERT_EQ(run_.messages().size(), 1u);
  EXPECT_EQ(run_.messages()[0].text, "bad");
  EXPECT_EQ(loss().size(), 1u);  // the end line repeats the last values
}

TEST_F(RunMetricsFile, MemoryIsBoundedAndExtremesAreKept) {
  std::string text;
  constexpr int kSteps = 200'000;
  for (int step = 1; step <= kSteps; ++step) text += loss_line(step, step == 77'777 ? 1000 : step == 5 ? -50 : 1);
  write(text);
  RunMetrics run(path_, files_, {.buckets = 1024});
  while (!run.update(1 << 20)) continue;
  const Series& series = run.series().at("loss");
  EXPECT_LE(series.buckets().size(), 1024u);
  EXPECT_EQ(series.points(), kSteps);
  const std::vector<Bucket> all = buckets_between(series.buckets(), 1, kSteps, 100);
  EXPECT_LE(all.size(), 100u);
  int64_t points = 0;
  double low = 1, high = 1;
  for (const Bucket& each : all) {
    points += each.points();
    low = std::min(low, each.min);
    high = std::max(high, each.max);
  }
  EXPECT_EQ(points, kSteps);
  EXPECT_EQ(low, -50);
  EXPECT_EQ(high, 1000);
  // A part is read from the file again, in full resolution.
  const std::vector<Bucket> part = run.query("loss", 77'770, 77'780, 500);
  ASSERT_EQ(part.size(), 11u);
  EXPECT_EQ(part[7].sum, 1000);
  // Unless that would read too much.
  EXPECT_LT(run.query("loss", 77'770, 77'780, 500, 0).size(), 11u);
}

TEST_F(RunMetricsFile, ManyTagsShareTheMemory) {
  std::string text;
  for (int step = 1; step <= 300; ++step) {
    std::string scalars;
    for (int tag = 0; tag < 200; ++tag) scalars += fmt::format("{}\"t{}\":{}", tag > 0 ? "," : "", tag, step);
    text += step_line(step, scalars);
  }
  write(text);
  RunMetrics run(path_, files_, {.buckets = 1000, .tags = 150});
  run.update();
  EXPECT_EQ(run.series().size(), 150u);
  EXPECT_EQ(run.ignored_tags(), 50);
  for (const auto& [tag, series] : run.series()) {
    EXPECT_LE(series.buckets().size(), kMinBuckets);
    EXPECT_EQ(series.points(), 300);
  }
}

TEST_F(RunMetricsFile, ValuesThatAreNotFiniteAreCounted) {
  write(loss_line(1, 3) + step_line(2, "\"loss\":null") + loss_line(3, 4));
  run_.update();
  const std::vector<Bucket> all = run_.query("loss", 1, 3, 1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].bad, 1);
  EXPECT_EQ(all[0].count, 2);
  EXPECT_EQ(all[0].max, 4);
}

TEST_F(RunMetricsFile, WrongQueriesAreEmpty) {
  write(loss_line(1, 3));
  run_.update();
  EXPECT_TRUE(run_.query("other", 0, 9, 10).empty());
  EXPECT_TRUE(run_.query("loss", 5, 2, 10).empty());
  EXPECT_TRUE(run_.query("loss", 0, 9, 0).empty());
  EXPECT_TRUE(run_.query("loss", 2, INT64_MAX, 10).empty());
  EXPECT_EQ(run_.query("loss", INT64_MIN, INT64_MAX, 10).size(), 1u);
}

TEST_F(RunMetricsFile, FilesOfRunsAreFound) {
  EXPECT_EQ(find_metrics_file(files_, dir_.path()), "");
  write("");
  EXPECT_EQ(find_metrics_file(files_, dir_.path()), path_);
  EXPECT_EQ(find_metrics_file(files_, path_), path_);
  files_.make_dirs(dir_.path() + "/log");
  files_.write(dir_.path() + "/log/metrics.jsonl", {});
  EXPECT_EQ(find_metrics_file(files_, dir_.path()), dir_.path() + "/log/metrics.jsonl");
  EXPECT_EQ(run_name("runs/a/log/metrics.jsonl"), "a");
  EXPECT_EQ(run_name("runs/a/"), "a");
  EXPECT_EQ(run_name("."), ".");
  EXPECT_EQ(run_name("metrics.jsonl"), "metrics.jsonl");
}

}  // namespace
}  // namespace lockstep::charts
