// The report of `lockstep eval`, and the contact sheet of mistakes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/images/draw.h"
#include "data/images/image_codec.h"
#include "results/picture_run.h"
#include "train/classification_report.h"

namespace lockstep {
namespace {

// Three classes, six examples: confusions 0->0, 0->0, 0->1, 1->1, 2->1, 2->2.
ClassificationReport small_report(size_t worst = 0) {
  ClassificationReport report(worst);
  report.add({.first = 0, .labels = {0, 0, 0}, .probabilities = {.9f, .1f, 0, .6f, .3f, .1f, .2f, .7f, .1f}});
  report.add({.first = 3, .labels = {1, 2, 2}, .probabilities = {.1f, .8f, .1f, 0, .95f, .05f, .3f, .3f, .4f}});
  return report;
}

TEST(ClassificationReport, CountsByClass) {
  const ClassificationReport report = small_report();
  ASSERT_EQ(report.classes().size(), 3u);
  EXPECT_EQ(report.examples(), 6);
  EXPECT_EQ(report.confusion(0, 0), 2);
  EXPECT_EQ(report.confusion(0, 1), 1);
  EXPECT_EQ(report.confusion(2, 1), 1);
  EXPECT_EQ(report.confusion(1, 0), 0);
  EXPECT_DOUBLE_EQ(report.classes()[0].precision(), 1);
  EXPECT_DOUBLE_EQ(report.classes()[0].recall(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes()[0].f1(), 0.8);
  EXPECT_DOUBLE_EQ(report.classes()[1].precision(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes()[1].recall(), 1);
  EXPECT_DOUBLE_EQ(report.classes()[1].f1(), 0.5);
}

TEST(ClassificationReport, AveragesAreOverClassesOrExamples) {
  const ClassificationReport report = small_report();
  EXPECT_DOUBLE_EQ(report.macro().recall, (2.0 / 3 + 1 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(report.weighted().recall, 4.0 / 6);  // the accuracy
  EXPECT_DOUBLE_EQ(report.weighted().precision, (3 * 1.0 + 1 * (1.0 / 3) + 2 * 1.0) / 6);
}

TEST(ClassificationReport, ClassesThatDoNotOccurDoNotLowerTheMean) {
  ClassificationReport report;
  report.add({.first = 0, .labels = {0, 1}, .probabilities = {1, 0, 0, 0, 1, 0}});
  EXPECT_DOUBLE_EQ(report.macro().f1, 1);
  EXPECT_DOUBLE_EQ(report.classes()[2].f1(), 0);
}

TEST(ClassificationReport, TopKCountsLabelsAmongTheMostProbable) {
  const ClassificationReport report = small_report();
  EXPECT_DOUBLE_EQ(report.top_k(1), 4.0 / 6);
  EXPECT_DOUBLE_EQ(report.top_k(2), 1);
}

TEST(ClassificationReport, CalibrationErrorComparesConfidenceAndAccuracy) {
  const ClassificationReport report = small_report();
  // Bins of 1/15: 0.9 right, 0.6 right, 0.7 wrong, 0.8 right, 0.95 wrong, 0.4 right, each alone.
  EXPECT_NEAR(report.calibration_error(), (0.1 + 0.4 + 0.7 + 0.2 + 0.95 + 0.6) / 6, 1e-6);
  ClassificationReport half;
  half.add({.first = 0, .labels = {0, 1}, .probabilities = {.51f, .49f, .51f, .49f}});
  EXPECT_EQ(half.bins()[7].examples, 2);
  EXPECT_EQ(half.bins()[7].correct, 1);
  EXPECT_NEAR(half.calibration_error(), 0.01, 1e-6);
}

TEST(ClassificationReport, CertainPredictionsAreInTheLastBin) {
  ClassificationReport report;
  report.add({.first = 0, .labels = {0}, .probabilities = {1, 0}});
  EXPECT_EQ(report.bins().back().examples, 1);
}

TEST(ClassificationReport, WorstMistakesComeFirst) {
  const std::vector<ClassificationReport::Mistake> all = small_report(9).worst();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].example, 4);
  EXPECT_EQ(all[0].label, 2);
  EXPECT_EQ(all[0].predicted, 1);
  EXPECT_FLOAT_EQ(all[0].probability, 0.95f);
  const std::vector<ClassificationReport::Mistake> one = small_report(1).worst();
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].example, 4);
  EXPECT_TRUE(small_report(0).worst().empty());
}

TEST(Drawing, PngFilesAreReadBack) {
  for (const int64_t channels : {1, 3}) {
    detail::DecodedImage image{.rows = 3, .cols = 5, .channels = channels, .pixels = {}};
    for (int64_t i = 0; i < 15 * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 17));
    const detail::DecodedImage read = detail::decode_image(detail::to_png(image), "test");
    EXPECT_EQ(read.rows, 3);
    EXPECT_EQ(read.cols, 5);
    EXPECT_EQ(read.channels, channels);
    EXPECT_EQ(read.pixels, image.pixels);
  }
}

std::string drawn(const std::string& text, int64_t cols) {
  detail::DecodedImage image = detail::blank_image(7, cols, {0, 0, 0});
  detail::draw_text(image, 0, 0, text, {255, 0, 0});
  std::string out;
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    out += image.pixels[i] != 0 ? '#' : '.';
    if ((static_cast<int64_t>(i) / 3 + 1) % cols == 0) out += '\n';
  }
  return out;
}

TEST(Drawing, TextHasCapitalsAndIsCutOff) {
  EXPECT_EQ(drawn("l7", 11),
            "#.....#####\n#.........#\n#........#.\n#.......#..\n#.......#..\n#......#...\n#####..#...\n");
  EXPECT_EQ(drawn("L7", 8), drawn("l7", 8));
  EXPECT_EQ(drawn("\xc3\xa4", 6), drawn("?", 6));
}

TEST(EvalReport, TextHasAllParts) {
  const ProcessResult result = run_lockstep({"eval", picture_run()});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(result.output.starts_with("test_loss ")) << result.output;
  for (const char* line :
       {"\nclass          examples  predicted  correct  precision  recall      f1\n",
        "\ndark                 10         10       10     1.0000  1.0000  1.0000\n",
        "\nmean                                            1.0000  1.0000  1.0000\n",
        "\nweighted mean                                   1.0000  1.0000  1.0000\n",
        "\nconfusion matrix (rows: labels, columns: predictions)\n            0  1  2\n 0 dark    10  .  .\n"
        " 1 light    . 10  .\n 2 striped  .  . 10\n",
        "\ncalibration: expected error 0."})
    EXPECT_NE(result.output.find(line), std::string::npos) << line << "\n" << result.output;
}

TEST(EvalReport, JsonHasTheSameNumbers) {
  const RunningProgram::Result result = RunningProgram({program_path(), "eval", picture_run(), "-o", "json"}).wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json all = nlohmann::json::parse(result.out);
  EXPECT_EQ(all["set"], "test");
  EXPECT_EQ(all["examples"], 30);
  EXPECT_EQ(all["metrics"]["accuracy"], 1);
  EXPECT_EQ(all["classes"][2]["name"], "striped");
  EXPECT_EQ(all["classes"][2]["f1"], 1);
  EXPECT_EQ(all["confusion"], nlohmann::json({{10, 0, 0}, {0, 10, 0}, {0, 0, 10}}));
  EXPECT_EQ(all["top_k"]["3"], 1);
  EXPECT_EQ(all["calibration"]["bins"].size(), 15u);
  EXPECT_EQ(all["weighted_mean"]["precision"], 1);
}

TEST(EvalReport, WorstMistakesAreDrawn) {
  const TempDir dir;
  // Pictures in folders with wrong names.
  for (const auto& [folder, kind] : {std::pair{"dark", "dark"}, {"light", "dark"}, {"striped", "light"}})
    for (int i = 0; i < 3; ++i)
      for (const char* part : {"/train/", "/test/"})
        write_picture(dir.path() + "/set" + part + folder + "/" + std::to_string(i) + ".png", picture(kind, i));
  const std::string sheet = dir.path() + "/worst.png";
  const RunningProgram::Result result = RunningProgram({program_path(), "eval", picture_run(), "--dataset",
                                                        "images:" + dir.path() + "/set", "--worst", "4", sheet})
                                            .wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "lockstep: 4 mistakes are in " + sheet + "\n");
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(sheet);
  const detail::DecodedImage image = detail::decode_image(bytes, sheet);
  // Two rows and columns of pictures of 8 x 8, each 11 times as large, with three lines below.
  EXPECT_EQ(image.cols, 2 * (88 + 6) + 6);
  EXPECT_EQ(image.rows, 2 * (88 + 2 + 27 + 6) + 6);
  EXPECT_EQ(image.channels, 3);
  const RunningProgram::Result none =
      RunningProgram({program_path(), "eval", picture_run(), "--worst", "4", dir.path() + "/none.png"}).wait();
  EXPECT_EQ(none.err, "lockstep: eval: every example is correct, so " + dir.path() + "/none.png was not written\n");
}

TEST(EvalReport, WrongFlagsAreUsageErrors) {
  const std::string run = picture_run();
  expect_usage_error({"eval", run, "--worst", "0", "x.png"},
                     "eval: --worst 0: \"0\" is not a whole number from 1 to 400; give --worst N FILE.png");
  expect_usage_error(
      {"eval", run, "--worst", "5", "x.jpg"},
      "eval: --worst: the contact sheet is a PNG image, but x.jpg does not end with .png; give --worst N "
      "FILE.png");
}

}  // namespace
}  // namespace lockstep
