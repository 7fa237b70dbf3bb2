// What a run keeps for pictures of it: its mesh, its last evaluation and texts.
#include "train/run_reports.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/throws.h"
#include "lockstep/create.h"
#include "lockstep/data.h"
#include "lockstep/image_data.h"
#include "train/contact_sheet.h"
#include "train/eight_devices.h"
#include "train/evaluation_folder.h"
#include "train/mesh_file.h"

namespace lockstep {
namespace {

using nlohmann::json;

TEST(MeshFile, HasTheShardingOfEveryParameter) {
  ASSERT_TRUE(kEightDevices);
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const ShardingPlan plan{.rules = {parse_sharding_rule("dense/0/w=,model")}, .zero = 1};
  const json file = json::parse(mesh_json(image_task(find_model("mlp")), {.mesh = mesh, .plan = plan}));
  EXPECT_EQ(file.at("axes"), (json{{{"name", "data"}, {"size", 4}}, {{"name", "model"}, {"size", 2}}}));
  EXPECT_EQ(file.at("zero"), 1);
  ASSERT_EQ(file.at("devices").size(), 8u);
  EXPECT_EQ(file.at("devices")[5], (json{{"id", 5}, {"process", 0}}));
  const json& weight = file.at("parameters")[0];
  EXPECT_EQ(weight.at("path"), "dense/0/w");
  EXPECT_EQ(weight.at("shape"), (json{784, 256}));
  EXPECT_EQ(weight.at("type"), "f32");
  EXPECT_EQ(weight.at("sharding"), json::parse(R"([[],["model"]])"));
  EXPECT_EQ(weight.at("state"), json::parse(R"([["data"],["model"]])"));
  EXPECT_EQ(file.at("parameters")[1].at("sharding"), json::parse("[[]]"));
}

// The batches whose predictions fit() passes on: the number of the first example of each.
std::vector<int64_t> predicted_batches(const FitOptions& given, int64_t patience_steps = 4) {
  Engine engine(find_model("mlp"), {});
  TrainState state = engine.create_state();
  Dataset data = synthetic_digits(200, 20);
  Loader loader(std::move(data.train), {.batch_size = 50});
  FitOptions options = given;
  options.steps = patience_steps;
  options.eval_every = 1;
  options.eval_batch = 15;
  const SourcePtr set = image_source(std::move(data.test));
  (options.patience > 0 ? options.validation : options.test) = set;
  std::vector<int64_t> out;
  options.predictions = [&](const BatchPredictions& batch) { out.push_back(batch.first); };
  engine.fit(state, loader, options);
  return out;
}

TEST(Predictions, OnlyThoseOfTheLastEvaluationAreCollected) {
  EXPECT_EQ(predicted_batches({}), (std::vector<int64_t>{0, 15}));
}

TEST(Predictions, EvaluationsThatMayEndTheRunCount) {
  const std::vector<int64_t> batches = predicted_batches({.patience = 1}, 3);
  ASSERT_GE(batches.size(), 2u);
  for (size_t i = 0; i < batches.size(); ++i) EXPECT_EQ(batches[i], i % 2 == 0 ? 0 : 15);
}

TEST(ContactSheet, OnlyImagesAreDrawn) {
  const auto drawn = [](const Type& example, const std::string& field) {
    Shape shape = example.shape;
    shape.insert(shape.begin(), 2);
    return has_images(*array_source({{field, zeros(shape, example.dtype)}}));
  };
  EXPECT_TRUE(drawn({u8, {4, 4}}, "images"));
  EXPECT_TRUE(drawn({u8, {4, 4, 3}}, "images"));
  EXPECT_FALSE(drawn({u8, {4, 4, 2}}, "images"));
  EXPECT_FALSE(drawn({f32, {4, 4}}, "images"));
  EXPECT_FALSE(drawn({u8, {4, 4}}, "features"));
}

// A report of two classes and two examples, of which one is wrong.
ClassificationReport half_right() {
  ClassificationReport report(kStoredMistakes);
  report.add({.first = 0, .labels = {0, 1}, .probabilities = {.9f, .1f, .8f, .2f}});
  return report;
}

TEST(EvaluationFolder, KeepsTheReportAndThePicture) {
  const TempDir dir;
  const ClassificationReport report = half_right();
  EvalResult result;
  result.examples = 2;
  result.metrics = {{"accuracy", 0.5}};
  const SourcePtr images = array_source({{"images", zeros({2, 4, 4}, u8)}, {"labels", zeros({2}, i32)}});
  const EvaluationReport evaluation{result, "test", report, {"cat", "dog"}};
  store_evaluation(dir.path(), evaluation, {7, "pets", images});
  const auto stored = [&] { return json::parse(read_user_file(dir.path() + "/evaluation/report.json", 1 << 20)); };
  EXPECT_EQ(stored().at("step"), 7);
  EXPECT_EQ(stored().at("dataset"), "pets");
  EXPECT_EQ(stored().at("confusion"), json::parse("[[1,0],[1,0]]"));
  EXPECT_EQ(stored().at("confusions"), json::parse(R"([{"label":1,"predicted":0,"examples":1}])"));
  EXPECT_EQ(stored().at("mistakes")[0].at("example"), 1);
  EXPECT_EQ(stored().at("picture"), true);
  EXPECT_TRUE(FileSystem::real().exists(dir.path() + "/evaluation/worst.png"));
  // The picture of an earlier evaluation does not stay.
  store_evaluation(dir.path(), evaluation, {8, "pets", array_source({{"features", zeros({2, 4}, f32)}})});
  EXPECT_EQ(stored().at("picture"), false);
  EXPECT_FALSE(FileSystem::real().exists(dir.path() + "/evaluation/worst.png"));
}

TEST(EvaluationFolder, MatricesOfManyClassesAreLeftOut) {
  const TempDir dir;
  ClassificationReport report(1);
  std::vector<float> row(200);
  row[3] = 1;
  report.add({.first = 0, .labels = {5}, .probabilities = row});
  store_evaluation(dir.path(), {EvalResult{}, "test", report}, {1, "", array_source({{"x", zeros({1, 4}, f32)}})});
  const json stored = json::parse(read_user_file(dir.path() + "/evaluation/report.json", 1 << 20));
  EXPECT_FALSE(stored.contains("confusion"));
  EXPECT_EQ(stored.at("confusions")[0], (json{{"label", 5}, {"predicted", 3}, {"examples", 1}}));
}

TEST(EvaluationFolder, FailuresAreWarnings) {
  const TempDir dir;
  const std::string file = dir.path() + "/file";
  FileSystem::real().write(file, {});
  const ClassificationReport report = half_right();
  testing::internal::CaptureStderr();
  store_evaluation(file, {EvalResult{}, "test", report}, {1, "", array_source({{"x", zeros({2, 4}, f32)}})});
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_NE(printed.find("; the results of the evaluation are not in " + file + "/evaluation\n"), std::string::npos)
      << printed;
}

TEST(RunReports, TextsNeedATokenizerAndAnEvaluation) {
  TrainConfig config;
  config.dataset = "tokens:a.bin";
  config.sample_tokens = 5;
  Problem problem;
  EXPECT_THROWS(
      check_reports(config, problem), SettingsError,
      "train: sample_tokens: tokens:a.bin has no tokenizer, so there is no text to write; give --tokenizer, or remove "
      "sample_tokens");
  problem.files["tokenizer.json"] = "{}";
  EXPECT_THROWS(
      check_reports(config, problem), SettingsError,
      "train: sample_tokens: texts are written at evaluations, and the run has none; give --validation, such as 0.1, "
      "or remove sample_tokens");
  config.sample_tokens = 0;
  check_reports(config, {});
}

TEST(RunReports, AFreshRunRemovesWhatAnEarlierOneLeft) {
  const TempDir dir;
  FileSystem& files = FileSystem::real();
  files.make_dirs(dir.path() + "/evaluation");
  files.write(dir.path() + "/samples.jsonl", {});
  TrainConfig config;
  config.run_dir = dir.path();
  const Problem problem;
  RunReports(config, problem, 10);  // resumed
  EXPECT_TRUE(files.exists(dir.path() + "/samples.jsonl"));
  RunReports(config, problem, 0);
  EXPECT_FALSE(files.exists(dir.path() + "/samples.jsonl"));
  EXPECT_FALSE(files.exists(dir.path() + "/evaluation"));
}

}  // namespace
}  // namespace lockstep
