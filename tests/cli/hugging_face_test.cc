// `lockstep import` and `lockstep export`.
#include <nlohmann/json.hpp>

#include "cli/language_models.h"
#include "lockstep/hf.h"
#include "support/program.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

class HuggingFaceCommands : public testing::Test {
 protected:
  RunningProgram::Result run(const Words& command) const {
    return RunningProgram(Words{program_path()} + command).wait();
  }
  void expect_failure(const Words& command, const std::string& message) const {
    const RunningProgram::Result result = run(command);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "lockstep: " + message + "\n");
  }
  std::string at(const std::string& name) const { return dir_.path() + "/" + name; }

  const TempDir dir_;
};

TEST_F(HuggingFaceCommands, RoundTripKeepsEveryBit) {
  write_language_run(at("run"));
  const RunningProgram::Result out = run({"export", at("run"), "--format", "hf", "-o", at("folder")});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  EXPECT_EQ(out.out, at("folder") + ": config.json, model.safetensors (f32), tokenizer.json\n");
  EXPECT_EQ(FileSystem::real().list(at("folder")),
            (std::vector<std::string>{"config.json", "generation_config.json", "lockstep_tokenizer.json",
                                      "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  const RunningProgram::Result in = run({"import", at("folder"), "-o", at("again")});
  EXPECT_EQ(in.exit_code, 0) << in.err;
  EXPECT_EQ(in.err, "");
  EXPECT_EQ(in.out, at("again") + "/step_00000000: 11200 parameters, 2 layers, width 16, context 32, vocabulary 256\n");
  EXPECT_EQ(run({"export", at("again/step_00000000"), "-o", at("second")}).exit_code, 0);
  EXPECT_EQ(read_text(at("second/model.safetensors")), read_text(at("folder/model.safetensors")));
  EXPECT_EQ(read_text(at("second/config.json")), read_text(at("folder/config.json")));
  EXPECT_EQ(read_text(at("again/tokenizer.json")), read_text(at("run/tokenizer.json")));
  EXPECT_EQ(run({"generate", at("again"), "--tokens", "20", "--quiet"}).out,
            run({"generate", at("run"), "--tokens", "20", "--quiet"}).out);
}

TEST_F(HuggingFaceCommands, ElementTypesAreChosen) {
  write_language_run(at("run"), false);
  const RunningProgram::Result out = run({"export", at("run"), "-o", at("folder"), "--dtype", "bf16"});
  EXPECT_EQ(out.out, at("folder") + ": config.json, model.safetensors (bf16)\n");
  EXPECT_EQ(out.err,
            "lockstep: export: " + at("run") + " has no tokenizer.json, so " + at("folder") + " has none either\n");
  EXPECT_NE(read_text(at("folder/model.safetensors")).find("\"BF16\""), std::string::npos);
  const RunningProgram::Result in = run({"import", at("folder"), "-o", at("again")});
  EXPECT_EQ(in.exit_code, 0) << in.err;
  EXPECT_EQ(in.err, "lockstep: import: " + at("folder") +
                        " has neither tokenizer.json nor merges.txt: the model has no tokenizer\n");
}

TEST_F(HuggingFaceCommands, FoldersAreNotOverwritten) {
  write_language_run(at("run"));
  EXPECT_EQ(run({"export", at("run"), "-o", at("folder")}).exit_code, 0);
  expect_failure({"export", at("run"), "-o", at("folder")},
                 "export: the folder " + at("folder") + " is not empty; choose another one, or remove it");
  expect_failure({"import", at("folder"), "-o", at("run")},
                 "import: the folder " + at("run") + " is not empty; choose another one, or remove it");
  expect_failure({"import", at("folder"), "-o", at("folder/config.json")},
                 "import: " + at("folder/config.json") + " is a file; choose the name of a new folder");
}

TEST_F(HuggingFaceCommands, NothingIsWrittenForAWrongFolder) {
  write_language_run(at("run"));
  EXPECT_EQ(run({"export", at("run"), "-o", at("folder")}).exit_code, 0);
  nlohmann::json config = nlohmann::json::parse(read_text(at("folder/config.json")));
  config["n_layer"] = 3;
  store_text(at("folder/config.json"), config.dump());
  expect_failure({"import", at("folder"), "-o", at("again")},
                 "import: the tensor \"transformer.h.2.ln_1.weight\" is missing in " + at("folder/model.safetensors") +
                     "; the folder is incomplete, or config.json belongs to another model");
  EXPECT_FALSE(FileSystem::real().exists(at("again")));
}

TEST_F(HuggingFaceCommands, WrongFlagsAreUsageErrors) {
  expect_usage_error({"import", "x"}, "import: --output is required; see `lockstep import --help`");
  expect_usage_error(
      {"export", "x", "-o", "y", "--format", "onx"},
      "export: --format: \"onx\" is not one of onnx, safetensors, c, hf; did you mean \"onnx\"? see `lockstep export "
      "--help`");
  expect_usage_error({"export", "x", "-o", "y", "--dtype", "f64"},
                     "export: --dtype: \"f64\" is not one of f32, bf16, f16; see `lockstep export --help`");
}

}  // namespace
}  // namespace lockstep
