// What training and eval keep in the folder of a run: an evaluation, a mesh, and texts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text_bytes.h"
#include "data/images/image_codec.h"
#include "support/program.h"
#include "support/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

json stored(const std::string& path) { return json::parse(read_user_file(path, 1 << 24)); }

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> out;
  const std::string text = read_user_file(path, 1 << 24);
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
    out.push_back(json::parse(text.substr(at, end - at)));
  return out;
}

// Flags of a tiny language model on a text of its own.
Words tiny_gpt_flags(const std::string& dir) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "to be, or not to be: that is the question. ";
  FileSystem::real().write(dir + "/text.txt", text_bytes(text));
  return {"train",
          "--model",
          "gpt",
          "--dataset",
          "text:" + dir + "/text.txt",
          "--layers",
          "1",
          "--heads",
          "2",
          "--width",
          "16",
          "--context",
          "16",
          "--batch-size",
          "4",
          "--steps",
          "4",
          "--eval-every",
          "2",
          "--quiet"};
}

TEST(RunReports, TrainingKeepsItsLastEvaluation) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  const ProcessResult trained =
      run_lockstep({"train", "--dataset", "synthetic", "--steps", "3", "--run-dir", run, "--quiet", "--devices", "2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  json kept = stored(run + "/evaluation/report.json");
  EXPECT_EQ(kept.at("step"), 3);
  EXPECT_EQ(kept.at("set"), "test");
  ASSERT_FALSE(kept.at("mistakes").empty());
  const detail::DecodedImage sheet =
      detail::decode_image(FileSystem::real().read_file(run + "/evaluation/worst.png"), "worst.png");
  EXPECT_GT(sheet.rows, 100);
  EXPECT_EQ(stored(run + "/mesh.json").at("devices").size(), 2u);

  // The model of the run gives the same results.
  const ProcessResult evaluated = run_lockstep({"eval", run, "-o", "json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const json printed = json::parse(evaluated.output);
  EXPECT_EQ(printed.at("confusion"), kept.at("confusion"));
  json again = stored(run + "/evaluation/report.json");
  for (json* each : {&kept, &again}) each->erase("time");
  EXPECT_EQ(again.at("metrics").at("accuracy"), kept.at("metrics").at("accuracy"));
  EXPECT_EQ(again.at("mistakes").size(), kept.at("mistakes").size());
}

TEST(RunReports, EvalKeepsTheReportOfItsCheckpointAndDataSet) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  ASSERT_EQ(run_lockstep({"train", "--dataset", "synthetic", "--steps", "4", "--checkpoint-every", "2", "--keep-last",
                          "0", "--run-dir", run, "--quiet"})
                .exit_code,
            0);
  ASSERT_EQ(run_lockstep({"eval", run + "/step_00000002"}).exit_code, 0);
  EXPECT_EQ(stored(run + "/evaluation/report.json").at("step"), 2);
  EXPECT_EQ(stored(run + "/evaluation/report.json").at("dataset"), "synthetic");
  std::filesystem::remove_all(run + "/evaluation");
  std::filesystem::remove(run + "/run.json");  // only checkpoints: nothing is kept
  ASSERT_EQ(run_lockstep({"eval", run}).exit_code, 0);
  EXPECT_FALSE(FileSystem::real().exists(run + "/evaluation"));
}

TEST(RunReports, LanguageModelsWriteTexts) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  const ProcessResult trained = run_lockstep(
      tiny_gpt_flags(dir.path()) + Words{"--run-dir", run, "--sample-tokens", "12", "--sample-prompt", "to be"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::vector<json> lines = lines_of(run + "/samples.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("step"), 2);
  EXPECT_EQ(lines[1].at("step"), 4);
  EXPECT_EQ(lines[0].at("prompt"), "to be");
  EXPECT_EQ(lines[0].at("text").get<std::string>().size(), 12u);
  EXPECT_FALSE(FileSystem::real().exists(run + "/evaluation"));  // a language model has no classes
}

TEST(RunReports, SeveralProcessesWriteTheSameTexts) {
#ifndef LOCKSTEP_WITH_GRPC
  GTEST_SKIP() << "this build has no control plane";
#endif
  const TempDir dir;
  const auto texts = [&](const std::string& run, const Words& before, const Words& flags) {
    const ProcessResult trained =
        run_lockstep(before + tiny_gpt_flags(dir.path()) + Words{"--run-dir", run, "--sample-tokens", "12"} + flags);
    EXPECT_EQ(trained.exit_code, 0) << trained.output;
    std::vector<std::string> out;
    for (const json& line : lines_of(run + "/samples.jsonl")) out.push_back(line.value("text", line.dump()));
    return out;
  };
  const std::vector<std::string> one = texts(dir.path() + "/one", {}, {"--devices", "2"});
  EXPECT_EQ(texts(dir.path() + "/two", {"launch", "-n", "2", "--", program_path()}, {"--zero", "3"}), one);
  const json mesh = stored(dir.path() + "/two/mesh.json");
  EXPECT_EQ(mesh.at("devices")[1].at("process"), 1);
}

TEST(RunReports, WrongSettingsOfTextsAreNamed) {
  expect_usage_error({"train", "--model", "mlp", "--sample-tokens", "5"},
                     "train: sample_tokens: 5 has no effect with model mlp; choose model gpt, or remove sample_tokens");
  expect_usage_error(
      {"train", "--model", "gpt", "--dataset", "sotu", "--sample-prompt", "x"},
      "train: sample_prompt: \"x\" has no effect without sample_tokens; give the number of tokens of a text");
  expect_usage_error({"train", "--model", "gpt", "--dataset", "sotu", "--sample-tokens", "5", "--no-save"},
                     "train: sample_tokens: 5, but the run has no folder for its texts; remove no_save");
  expect_usage_error({"train", "--model", "gpt", "--dataset", "sotu", "--sample-tokens", "5", "--log-dir", "x"},
                     "train: sample_tokens: 5, but the run has no folder for its texts; give run_dir instead of "
                     "checkpoint_dir and log_dir");
}

}  // namespace
}  // namespace lockstep
