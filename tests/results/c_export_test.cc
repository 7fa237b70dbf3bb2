// Exported C++ headers compile without warnings and compute the same.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "base/file.h"
#include "base/os/process.h"
#include "base/os/run_program.h"
#include "lockstep/reduce.h"
#include "results/exported_models.h"
#include "train/predictor.h"

namespace lockstep {
namespace {

class CExport : public testing::Test {
 protected:
  void SetUp() override {
    if (find_program("g++").empty()) GTEST_SKIP() << "g++ is not on the PATH";
  }

  void write(const std::string& name, const std::string& text) {
    FileSystem::real().write(dir_.path() + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }

  // Compiles the header in two files, runs it on three examples, and compares the results with ours.
  void expect_same(const ExportedModel& model, const Array& inputs, const COptions& options = {}) {
    const CFiles files = c_files(model, options);
    const Array ours = Predictor(model.task, model.params)
                           .outputs({{model.info.kind == ModelInfo::Kind::table ? "features" : "images", inputs}});
    const std::vector<float> wanted = (model.info.classes > 0 ? softmax(ours) : ours).to_vector<float>();
    const int64_t n = inputs.shape(0), width = std::ssize(wanted) / n;
    write("model.h", files.header);
    write("other.cc", "#include \"model.h\"\n");
    write("model.bin", files.weights);
    const std::span<const float> values = inputs.data<float>();
    write("inputs", {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
    std::string main = "#include <cstdio>\n#include <vector>\n#include \"model.h\"\n";
    main += "std::vector<float> read(const char* path, long n) {\n  std::vector<float> out(n);\n";
    main += "  std::FILE* file = std::fopen(path, \"rb\");\n";
    main += "  if (!file || std::fread(out.data(), 4, n, file) != static_cast<unsigned long>(n)) out.clear();\n";
    main += "  if (file) std::fclose(file);\n  return out;\n}\nint main() {\n";
    main += fmt::format("  const std::vector<float> inputs = read(\"inputs\", {});\n", inputs.size());
    if (options.separate)
      main += fmt::format("  const std::vector<float> weights = read(\"model.bin\", {}::kWeights);\n", options.name);
    main += fmt::format("  for (int i = 0; i < {}; ++i) {{\n    float outputs[{}];\n", n, width);
    main += fmt::format("    {}::predict({}inputs.data() + i * {}, outputs);\n", options.name,
                        options.separate ? "weights.data(), " : "", inputs.size() / n);
    main += "    for (const float each : outputs) std::printf(\"%.9g\\n\", static_cast<double>(each));\n  }\n}\n";
    write("main.cc", main);
    run({"g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.cc", "other.cc", "-o", "main"});
    std::istringstream output(run({"./main"}));
    for (size_t i = 0; i < wanted.size(); ++i) {
      float value = NAN;
      output >> value;
      ASSERT_NEAR(value, wanted[i], 1e-5f * std::max(1.0f, std::abs(wanted[i]))) << model.name << " " << i;
    }
  }

 private:
  std::string run(std::vector<std::string> command) {
    std::string text = "cd " + dir_.path() + " &&";
    for (const std::string& word : command) text += " " + word;
    const ProgramResult result =
        run_program({"sh", "-c", text}, {.deadline = std::chrono::minutes(5), .merge_streams = true});
    EXPECT_EQ(result.code, 0) << result.out;
    return result.out;
  }

  const TempDir dir_;
};

TEST_F(CExport, MlpComputesTheSame) {
  expect_same(image_export("mlp", {8, 8, 10, 1}), random_numbers(1, {3, 8, 8, 1}, 0, 255));
}

TEST_F(CExport, CnnComputesTheSameWithSeparateWeights) {
  expect_same(image_export("cnn", {13, 9, 4, 3}), random_numbers(1, {3, 13, 9, 3}, 0, 255),
              {.name = "net", .separate = true});
}

TEST_F(CExport, ResnetComputesTheSameWithSeparateWeights) {
  expect_same(image_export("resnet18", {8, 8, 10, 1}), random_numbers(1, {3, 8, 8, 1}, 0, 255), {.separate = true});
}

TEST_F(CExport, VitComputesTheSame) {
  expect_same(image_export("vit", {8, 8, 10, 1}, {.layers = 1, .heads = 2, .width = 16}),
              random_numbers(1, {3, 8, 8, 1}, 0, 255));
}

TEST_F(CExport, TablesComputeTheSame) {
  expect_same(table_export(0), random_numbers(1, {3, 3}, -100, 100));
  expect_same(table_export(3), random_numbers(2, {3, 3}, -100, 100));
}

TEST_F(CExport, NamesOfClassesAreInTheHeader) {
  ExportedModel model = image_export("mlp", {4, 4, 3, 1});
  model.info.class_names = {"T-shirt/top", "a \"quoted\" name", "back\\slash"};
  const std::string header = c_files(model).header;
  EXPECT_NE(header.find("kClassNames[kClasses] = {\"T-shirt/top\", \"a \\\"quoted\\\" name\", \"back\\\\slash\"};"),
            header.npos);
  expect_same(model, random_numbers(1, {3, 4, 4, 1}, 0, 255));
}

}  // namespace
}  // namespace lockstep
