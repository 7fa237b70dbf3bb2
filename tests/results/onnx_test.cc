// Exported ONNX models compute the same in ONNX Runtime.
#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/os/process.h"
#include "base/os/run_program.h"
#include "lockstep/indexing.h"
#include "lockstep/reduce.h"
#include "results/exported_models.h"
#include "train/predictor.h"

namespace lockstep {
namespace {

// The npm package onnxruntime-node, which brings its library for the CPU. Installed once into the build folder.
class OnnxRuntime {
 public:
  // Returns why it cannot be used; empty: it can.
  static std::string install() {
    if (find_program("npm").empty() || find_program("node").empty()) return "npm or node is not on the PATH";
    FileSystem::real().make_dirs(folder());
    const Descriptor lock = open_lock_file(folder() + "/lock", 0600);
    ::flock(lock.get(), LOCK_EX);
    if (FileSystem::real().exists(folder() + "/installed")) return "";
    const ProgramResult result =
        run_program({"npm", "install", "--prefix", folder(), "--ignore-scripts", "--no-save", "--no-package-lock",
                     "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "onnxruntime-node@1.30.0"},
                    {.deadline = std::chrono::minutes(5), .merge_streams = true});
    if (result.code != 0) return "npm cannot install onnxruntime-node: " + result.out;
    FileSystem::real().write(folder() + "/installed", {});
    return "";
  }
  static void run(const std::string& cases) {
    const ProgramResult result =
        run_program({"node", std::string(LOCKSTEP_SOURCE_DIR) + "/tests/results/onnx_reference.cjs", folder(), cases},
                    {.deadline = std::chrono::minutes(5), .merge_streams = true});
    ASSERT_EQ(result.code, 0) << result.out;
  }

 private:
  static std::string folder() { return std::string(LOCKSTEP_BINARY_DIR) + "/npm/onnxruntime"; }
};

class OnnxExport : public testing::Test {
 protected:
  static void SetUpTestSuite() { reason_ = OnnxRuntime::install(); }
  void SetUp() override {
    if (!reason_.empty()) GTEST_SKIP() << reason_;
  }

  template <class T>
  void write(const std::string& name, std::span<const T> values) {
    FileSystem::real().write(path(name), {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
  }
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  // Expects the model to compute the same as ours for each of these inputs.
  void expect_same(const ExportedModel& model, const std::vector<Array>& inputs) {
    const std::string file = onnx_file(model);
    write<char>("model.onnx", file);
    const bool is_text = model.info.kind == ModelInfo::Kind::text, is_table = model.info.kind == ModelInfo::Kind::table;
    const bool classifies = model.info.classes > 0;
    const Predictor predictor(model.task, model.params);
    nlohmann::json cases;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string input = "input" + std::to_string(i), outputs = "outputs" + std::to_string(i);
      if (is_text)
        write(input, inputs[i].data<int64_t>());
      else
        write(input, inputs[i].data<float>());
      const std::string first = is_text || classifies ? "logits" : "value";
      nlohmann::json results{{first, path(outputs)}};
      if (classifies) results["probabilities"] = path(outputs + ".probabilities");
      cases.push_back({{"model", path("model.onnx")},
                       {"input", is_text    ? "tokens"
                                 : is_table ? "features"
                                            : "image"},
                       {"type", is_text ? "int64" : "float32"},
                       {"shape", inputs[i].shape()},
                       {"file", path(input)},
                       {"outputs", results}});
    }
    const std::string text = cases.dump();
    write<char>("cases.json", text);
    OnnxRuntime::run(path("cases.json"));
    const char* field = is_text ? "inputs" : is_table ? "features" : "images";
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Array ours = predictor.outputs({{field, inputs[i]}});
      const std::string outputs = "outputs" + std::to_string(i);
      expect_close(outputs, ours);
      if (classifies) expect_close(outputs + ".probabilities", softmax(ours));
    }
  }

 private:
  void expect_close(const std::string& name, const Array& wanted) {
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(path(name));
    const std::vector<float> values = wanted.to_vector<float>();
    ASSERT_EQ(bytes.size(), values.size() * sizeof(float)) << name;
    float largest = 1, error = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      float value = 0;
      std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
      largest = std::max(largest, std::abs(values[i]));
      error = std::max(error, std::isnan(value) ? INFINITY : std::abs(value - values[i]));
    }
    EXPECT_LE(error, 1e-5f * largest) << name;
  }

  static inline std::string reason_;
  const TempDir dir_;
};

std::vector<Array> images(const ImageShape& shape, const std::vector<int64_t>& batches) {
  std::vector<Array> out;
  for (const int64_t n : batches) out.push_back(random_numbers(n, {n, shape.rows, shape.cols, shape.channels}, 0, 255));
  return out;
}

TEST_F(OnnxExport, MlpsComputeTheSame) {
  const ImageShape shape{28, 28, 10, 1};
  expect_same(image_export("mlp", shape, {.dropout = 0.5}), images(shape, {1, 3, 64}));
  expect_same(image_export("mlp1024", shape), images(shape, {1, 3, 64}));
}

TEST_F(OnnxExport, CnnComputesTheSame) {
  for (const ImageShape& shape : {ImageShape{28, 28, 10, 1}, ImageShape{13, 9, 4, 3}})
    expect_same(image_export("cnn", shape), images(shape, {1, 3, 64}));
}

TEST_F(OnnxExport, ResnetComputesTheSame) {
  const ImageShape shape{16, 16, 10, 3};
  expect_same(image_export("resnet18", shape), images(shape, {1, 3, 64}));
}

TEST_F(OnnxExport, VitComputesTheSame) {
  const ImageShape shape{28, 28, 10, 1};
  expect_same(image_export("vit", shape, {.layers = 2, .heads = 2, .width = 32}), images(shape, {1, 3, 64}));
}

TEST_F(OnnxExport, TablesComputeTheSame) {
  for (const int64_t classes : {0, 3}) {
    std::vector<Array> inputs;
    for (const int64_t n : {1, 3, 64}) inputs.push_back(random_numbers(n, {n, 3}, -100, 100));
    expect_same(table_export(classes), inputs);
  }
}

std::vector<Array> tokens(const GptConfig& config, const std::vector<std::pair<int64_t, int64_t>>& sizes) {
  std::vector<Array> out;
  for (const auto& [n, t] : sizes)
    out.push_back(astype(random_numbers(n, {n, t}, 0, static_cast<double>(config.vocabulary)), i64));
  return out;
}

TEST_F(OnnxExport, LanguageModelsComputeTheSameForAnyNumberOfTokens) {
  GptConfig config = gpt_config("char-small");
  config.vocabulary = 65;
  expect_same(language_export(config), tokens(config, {{1, 5}, {3, 64}, {64, 17}, {2, 1}}));
}

TEST_F(OnnxExport, RotaryPositionsAndGroupedHeadsComputeTheSame) {
  const GptConfig config{.vocabulary = 31,
                         .context = 24,
                         .layers = 2,
                         .heads = 4,
                         .kv_heads = 2,
                         .width = 32,
                         .norm = GptConfig::Norm::rms,
                         .position = GptConfig::Position::rotary,
                         .feed_forward = GptConfig::FeedForward::swiglu,
                         .bias = false,
                         .tied = false};
  expect_same(language_export(config), tokens(config, {{1, 24}, {3, 7}}));
}

TEST_F(OnnxExport, ShortContextIsAFixedSize) {
  const GptConfig config{.vocabulary = 11, .context = 4, .layers = 1, .heads = 2, .width = 8};
  expect_same(language_export(config), tokens(config, {{1, 4}, {5, 4}}));
}

}  // namespace
}  // namespace lockstep
