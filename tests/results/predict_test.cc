// `lockstep predict`: inputs, conversions, formats and messages.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/images/draw.h"
#include "results/picture_run.h"

namespace lockstep {
namespace {

class PredictCommand : public testing::Test {
 protected:
  RunningProgram::Result predict(const Words& words, const std::string& run = picture_run()) const {
    return RunningProgram(Words{program_path(), "predict", run} + words).wait();
  }
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  std::string written(const std::string& kind, const std::string& name) const {
    write_picture(path(name), picture(kind, 3));
    return path(name);
  }

  const TempDir dir_;
};

// The words of a line.
std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

TEST_F(PredictCommand, PrintsNamesOfClassesAndProbabilities) {
  const RunningProgram::Result result = predict({written("striped", "s.png"), written("dark", "d.png")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  std::istringstream lines(result.out);
  std::string first, second;
  std::getline(lines, first), std::getline(lines, second);
  EXPECT_TRUE(first.starts_with(path("s.png") + "  striped  0.")) << result.out;
  EXPECT_TRUE(second.starts_with(path("d.png") + "  dark     0.")) << result.out;
  EXPECT_EQ(words_of(first).size(), 3u);
}

TEST_F(PredictCommand, TopClassesAreInOrderAndAddUpToOne) {
  const RunningProgram::Result result = predict({written("light", "l.png"), "--top", "9", "-o", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json all = nlohmann::json::parse(result.out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["input"], path("l.png"));
  EXPECT_EQ(all[0]["class"], "light");
  ASSERT_EQ(all[0]["top"].size(), 3u);
  double sum = 0, last = 1;
  for (const auto& each : all[0]["top"]) {
    EXPECT_LE(each["probability"].get<double>(), last);
    last = each["probability"];
    sum += last;
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_EQ(all[0]["top"][0]["index"], 1);
}

TEST_F(PredictCommand, BrokenImageIsAnErrorAndTheOthersAreAnswered) {
  const std::string good = written("dark", "a.png"), bad = path("b.png"), missing = path("c.png");
  write_text(bad, "not an image");
  const RunningProgram::Result result = predict({good, bad, missing, written("light", "d.png")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find(good), std::string::npos);
  EXPECT_NE(result.out.find(path("d.png")), std::string::npos);
  EXPECT_EQ(result.err,
            "lockstep: predict: read " + bad +
                ": it is neither a PNG nor a JPEG file; convert or remove it\nlockstep: predict: open " + missing +
                ": No such file or directory; check the path\nlockstep: predict: 2 of 4 inputs could not be used\n");
  const nlohmann::json all = nlohmann::json::parse(predict({good, bad, "-o", "json"}).out);
  EXPECT_EQ(all[0]["class"], "dark");
  EXPECT_EQ(all[1]["error"], "read " + bad + ": it is neither a PNG nor a JPEG file; convert or remove it");
}

TEST_F(PredictCommand, ImagesAreConvertedAndTheConversionsAreReported) {
  write_picture(path("large.png"), picture("striped", 1, 40, 40));
  write_picture(path("wide.png"), picture("dark", 1, 16, 32));
  detail::DecodedImage color = detail::blank_image(8, 8, {230, 220, 210});
  write_picture(path("color.png"), color);
  const RunningProgram::Result result = predict({path("large.png"), path("wide.png"), path("color.png")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err,
            "lockstep: predict: converted from color to gray: 1 input\n"
            "lockstep: predict: scaled to 8 x 8 pixels: 1 input\n"
            "lockstep: predict: scaled to 8 x 8 pixels, cropped at the center: 1 input\n");
  for (const char* line : {"large.png  striped", "wide.png   dark", "color.png  light"})
    EXPECT_NE(result.out.find(line), std::string::npos) << result.out;
  EXPECT_EQ(predict({path("large.png"), "--quiet"}).err, "");
}

TEST_F(PredictCommand, InvertExchangesDarkAndLight) {
  const RunningProgram::Result result = predict({written("dark", "d.png"), "--invert"});
  EXPECT_NE(result.out.find("d.png  light"), std::string::npos) << result.out;
  EXPECT_EQ(result.err, "lockstep: predict: inverted: 1 input\n");
}

TEST_F(PredictCommand, FoldersAndListsOnStandardInputAreRead) {
  written("dark", "in/one/a.png");
  written("light", "in/b.png");
  write_text(path("in/notes.txt"), "no image");
  const RunningProgram::Result folder = predict({path("in")});
  EXPECT_EQ(folder.exit_code, 0) << folder.err;
  EXPECT_EQ(std::ranges::count(folder.out, '\n'), 2);
  EXPECT_NE(folder.out.find("in/one/a.png  dark"), std::string::npos) << folder.out;
  const ProcessResult list = run_process(
      {"sh", "-c",
       fmt::format("find {}/in -name '*.png' | {} predict {} -", dir_.path(), program_path(), picture_run())},
      std::chrono::seconds(60));
  EXPECT_EQ(list.exit_code, 0) << list.output;
  EXPECT_EQ(std::ranges::count(list.output, '\n'), 2) << list.output;
}

TEST_F(PredictCommand, ImageOnStandardInputIsRead) {
  const auto piped = [&](const std::string& command) {
    return run_process({"sh", "-c", fmt::format("{} | {} predict {} -", command, program_path(), picture_run())},
                       std::chrono::seconds(60));
  };
  const ProcessResult image = piped("cat " + written("dark", "piped.png"));
  EXPECT_EQ(image.exit_code, 0) << image.output;
  EXPECT_TRUE(image.output.starts_with("standard input  dark")) << image.output;
  const ProcessResult cut = piped("head -c 40 " + path("piped.png"));
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_NE(cut.output.find("standard input"), std::string::npos) << cut.output;
  const ProcessResult empty = piped("true");
  EXPECT_NE(empty.output.find("standard input is empty; give an image, or one path per line"), std::string::npos)
      << empty.output;
}

TEST_F(PredictCommand, RowsOfADataSetShowTheirLabels) {
  const RunningProgram::Result result =
      predict({"--dataset", "images:" + picture_data(), "--range", "9:11", "-o", "csv"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string header, first, second;
  std::getline(lines, header), std::getline(lines, first), std::getline(lines, second);
  EXPECT_EQ(header, "input,class,probability,label");
  EXPECT_TRUE(first.starts_with("images:" + picture_data() + "[9],dark,0.")) << first;
  EXPECT_TRUE(first.ends_with(",dark")) << first;
  EXPECT_TRUE(second.ends_with(",light")) << second;
}

TEST_F(PredictCommand, NumpyImagesAreInputs) {
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 8, 8), }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY" + std::string("\x01\x00", 2) + static_cast<char>(header.size()) + '\0' + header;
  for (const char* kind : {"light", "dark"})
    for (const uint8_t value : picture(kind, 2).pixels) bytes += static_cast<char>(value);
  write_text(path("x.npy"), bytes);
  const RunningProgram::Result result = predict({path("x.npy")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("x.npy[0]  light"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("x.npy[1]  dark"), std::string::npos) << result.out;
}

TEST_F(PredictCommand, WrongCommandLinesAreUsageErrors) {
  const std::string run = picture_run();
  expect_usage_error({"predict", run},
                     "predict: no inputs; give images, folders, .npy or .csv files, or --dataset NAME");
  expect_usage_error({"predict", run, "a.png", "--dataset", "mnist"},
                     "predict: files and --dataset were both given; give one of them");
  expect_usage_error({"predict", run, "a.png", "--range", "0:3"},
                     "predict: --range and --data-dir are for --dataset, which was not given");
}

TEST_F(PredictCommand, InputsThatCannotBeReadAreErrors) {
  const auto expect_error = [&](const Words& words, const std::string& message) {
    const RunningProgram::Result result = predict(words);
    EXPECT_EQ(result.exit_code, 1) << message;
    EXPECT_EQ(result.err, "lockstep: predict: " + message + "\n");
  };
  FileSystem::real().make_dirs(path("empty"));
  expect_error({path("empty")},
               path("empty") + " has no PNG or JPEG images (.png, .jpg, .jpeg); give a folder with images");
  const std::string data = "images:" + picture_data();
  for (const std::string range : {"3", "x:4", "1:2:3", "-1:4"})
    expect_error({"--dataset", data, "--range=" + range},
                 "the range is \"" + range + "\"; give BEGIN:END, such as 0:10");
  expect_error(
      {"--dataset", data, "--range", "5:31"},
      "the range 5:31 is not within the 30 examples of the data set; give BEGIN:END with 0 <= BEGIN < END <= 30");
}

TEST_F(PredictCommand, MovedRunNeedsNoDataSet) {
  const std::string copy = path("copy");
  std::filesystem::copy(picture_run(), copy, std::filesystem::copy_options::recursive);
  const RunningProgram::Result result = predict({written("dark", "d.png")}, copy);
  EXPECT_NE(result.out.find("d.png  dark"), std::string::npos) << result.out << result.err;
  write_text(copy + "/model.json", "{\"kind\": \"sound\"}");
  const RunningProgram::Result damaged = predict({path("d.png")}, copy);
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_EQ(damaged.err,
            "lockstep: read " + copy +
                "/model.json: it does not describe a model: unknown kind \"sound\" of a model; this version "
                "knows images and table; use the file that the run wrote\n");
}

// Tables: the class is whether the sum of a and b is above 10.
class PredictTable : public PredictCommand {
 protected:
  std::string train(const std::string& target) {
    std::string text = "a,b,big,sum\n";
    for (int i = 0; i < 200; ++i) {
      const int a = i * 7 % 11, b = i * 5 % 13;
      text += fmt::format("{},{},{},{}\n", a, b, a + b > 10 ? "yes" : "no", a + b);
    }
    // One of the last two columns is the target; the other is left out.
    std::string csv;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t last = line.rfind(','), third = line.rfind(',', last - 1);
      csv += target == "sum" ? line.substr(0, third) + line.substr(last) : line.substr(0, last);
      csv += "\n";
    }
    write_text(path("table.csv"), csv);
    const ProcessResult result =
        run_lockstep({"train", "--dataset", "csv:" + path("table.csv"), "--model", "mlp", "--steps", "150",
                      "--batch-size", "60", "--checkpoint-dir", path("run"), "--quiet"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return path("run");
  }
};

TEST_F(PredictTable, RowsAreFoundByTheNamesOfColumns) {
  const std::string run = train("big");
  write_text(path("rows.csv"), "id,b,a,big\n1,1,1,no\n2,12,10,yes\n3,x,2,no\n4,1,2\n");
  const RunningProgram::Result result = predict({path("rows.csv"), "-o", "csv"}, run);
  EXPECT_EQ(result.exit_code, 1);
  std::istringstream lines(result.out);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 3u) << result.out;
  EXPECT_TRUE(all[1].starts_with(path("rows.csv") + ":2,no,")) << all[1];
  EXPECT_TRUE(all[2].starts_with(path("rows.csv") + ":3,yes,")) << all[2];
  EXPECT_EQ(result.err,
            fmt::format("lockstep: predict: read {0}: line 4, column 2: \"x\" is not a number in the range of "
                        "f32; fix the cell\n"
                        "lockstep: predict: read {0}: line 5 has 3 cells, but there are 4 columns; fix the "
                        "line\n"
                        "lockstep: predict: column id of {0} is not used by the model: 1 input\n"
                        "lockstep: predict: 2 of 4 inputs could not be used\n",
                        path("rows.csv")));
  write_text(path("short.csv"), "a,c\n1,2\n");
  EXPECT_EQ(predict({path("short.csv")}, run).err,
            "lockstep: predict: " + path("short.csv") +
                " has no column b; the model needs the 2 columns of its training table\n");
}

TEST_F(PredictTable, NumbersAreInTheUnitOfTheTarget) {
  const std::string run = train("sum");
  write_text(path("rows.csv"), "3,4\n10,2\n");
  const RunningProgram::Result result = predict({path("rows.csv"), "-o", "json"}, run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json all = nlohmann::json::parse(result.out);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NEAR(all[0]["value"].get<double>(), 7, 1.5);
  EXPECT_NEAR(all[1]["value"].get<double>(), 12, 1.5);
}

}  // namespace
}  // namespace lockstep
