// `lockstep plot`: what it draws and writes, and its messages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text_bytes.h"
#include "support/program.h"
#include "support/text.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

class Plot : public testing::Test {
 protected:
  Plot() {
    write("a", run_text(40, 0.1, 10));
    write("b", run_text(20, 0.2, 10));
  }

  static std::string run_text(int steps, double rate, int steps_per_epoch) {
    std::string text = fmt::format(
        "{{\"kind\":\"start\",\"step\":0,\"time\":100,\"title\":\"mlp\",\"total_steps\":{},\"steps_per_epoch\":{},"
        "\"config\":{{\"learning_rate\":\"{}\"}}}}\n",
        steps, steps_per_epoch, rate);
    for (int step = 1; step <= steps; ++step)
      text += fmt::format("{{\"kind\":\"step\",\"step\":{},\"time\":{},\"loss\":{},\"accuracy\":{}}}\n", step,
                          100 + step, 2.0 / step, 1 - 1.0 / step);
    return text;
  }
  void write(const std::string& run, const std::string& text) {
    FileSystem::real().make_dirs(path(run) + "/log");
    FileSystem::real().write(path(run) + "/log/metrics.jsonl", text_bytes(text));
  }
  std::string path(const std::string& run) const { return dir_.path() + "/" + run; }
  std::string output(const std::string& file) const { return dir_.path() + "/" + file; }

  static ProcessResult plot(const Words& words, const std::string& locale = "C.UTF-8") {
    return run_process(Words{"/usr/bin/env", "LC_ALL=" + locale, "COLUMNS=80", program_path(), "plot"} + words,
                       std::chrono::seconds(60));
  }
  static void expect_failure(const Words& words, int code, const std::string& message) {
    const ProcessResult result = plot(words);
    EXPECT_EQ(result.exit_code, code);
    EXPECT_EQ(result.output, "lockstep: " + message + "\n");
  }

  TempDir dir_;
};

TEST_F(Plot, DrawsLossAndAccuracyIn80Columns) {
  const ProcessResult result = plot({path("a")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  expect_contains(result.output, "loss\n");
  expect_contains(result.output, "accuracy\n");
  expect_contains(result.output, "a: step 40 of 40, 40s\n");
  expect_lacks(result.output, "\033");
  for (const std::string& line : lines_of(result.output)) {
    size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    EXPECT_LE(columns, 80u) << line;
  }
}

TEST_F(Plot, WithoutUtf8TheOutputIsAscii) {
  const ProcessResult result = plot({path("a")}, "C");
  for (const char c : result.output) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
  EXPECT_EQ(result.output, plot({path("a"), "--ascii"}).output);
}

TEST_F(Plot, OverlaysRuns) {
  const ProcessResult result =
      plot({path("a"), path("b"), "--metric", "loss", "--x", "epoch", "--log", "--height", "9"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  expect_contains(result.output, "loss (log scale)");
  expect_contains(result.output, "a a   b b");
  expect_contains(result.output, "epoch");
  EXPECT_EQ(lines_of(result.output).size(), 9u + 2u);
}

TEST_F(Plot, WritesReports) {
  const ProcessResult result = plot({path("a"), path("b"), "--html", output("r.html"), "--svg", output("r.svg")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  expect_contains(result.output, "lockstep: wrote " + output("r.html"));
  expect_contains(read_text(output("r.html")),
                  "<tr class=\"differs\"><th scope=\"row\">learning_rate</th><td>0.1</td><td>0.2</td>");
  expect_contains(read_text(output("r.svg")), "class=\"curve stroke-1\"");
  EXPECT_EQ(plot({path("a"), "-o", output("o.svg"), "--metric", "loss"}).exit_code, 0);
  EXPECT_EQ(occurrences(read_text(output("o.svg")), "class=\"title\""), 1u);
}

TEST_F(Plot, WrongArgumentsAreUsageErrors) {
  expect_failure({path("a"), "--metric", "lss"}, 2,
                 "plot: --metric: no run has logged \"lss\"; did you mean \"loss\"? logged are loss, accuracy");
  expect_failure({path("a"), "-o", "x.png"}, 2,
                 "plot: -o x.png: the kind of file is unknown; end the name with .html or .svg");
  expect_failure({path("a"), "--smooth", "1"}, 2,
                 "plot: --smooth: \"1\" is not a number from 0 to below 1; see `lockstep plot --help`");
  expect_failure({path("a"), "-f"}, 2,
                 "plot: --follow redraws in place, but standard output is not a terminal; omit --follow");
  expect_failure({path("a"), "-f", "-o", "x.svg"}, 2, "plot: --follow draws in the terminal; omit it to write a file");
  expect_failure(Words{} + Words(101, path("a")), 2, "plot: 101 runs are given; at most 100 fit in a chart");
}

TEST_F(Plot, RunsWithoutMetricsAreErrors) {
  FileSystem::real().make_dirs(path("c"));
  expect_failure(
      {path("c")}, 1,
      fmt::format("plot: {} has no log/metrics.jsonl; train without --no-save, and with jsonl if --loggers is given",
                  path("c")));
  write("d", "");
  expect_failure({path("d")}, 1, "plot: d has logged no metrics yet; wait for the first step, or use --follow");
  write("e", "{\"kind\":\"step\",\"step\":1,\"time\":1,\"loss\":null}\n");
  expect_failure({path("e"), "-o", output("e.html")}, 1,
                 "plot: the log has no finite values yet; wait for the first step");
  write("f", run_text(5, 0.1, 0));
  expect_failure({path("f"), "--x", "epoch"}, 1, "plot: f has no steps per epoch in its log; use --x step or --x time");
}

TEST_F(Plot, DamagedLinesAreReported) {
  write("a", run_text(5, 0.1, 10) + "garbage\n");
  expect_contains(plot({path("a")}).output, "lockstep: plot: skipped 1 damaged line in the metrics of a\n");
}

TEST_F(Plot, RunsOfTheSameNameAreShownByTheirPath) {
  FileSystem::real().make_dirs(output("other/a"));
  FileSystem::real().write(output("other/a/metrics.jsonl"), text_bytes(run_text(5, 0.1, 10)));
  expect_contains(plot({path("a"), output("other/a"), "--metric", "loss"}).output, output("other/a") + ": step 5 of 5");
}

}  // namespace
}  // namespace lockstep
