// `lockstep generate`: output, prompts and messages.
#include "cli/language_models.h"
#include "lockstep/create.h"
#include "support/program.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

class GenerateCommand : public testing::Test {
 protected:
  GenerateCommand() { write_language_run(run_); }

  RunningProgram::Result generate(const Words& flags) const {
    return RunningProgram(Words{program_path(), "generate", run_} + flags).wait();
  }
  std::string text(const std::string& prompt, const GenerateOptions& options) const {
    Generator generator(small_language_config(), small_language_params(), byte_tokenizer());
    return generator.generate(prompt, options)[0].text;
  }
  // Expects a failure with this message and nothing on standard output.
  void expect_failure(const Words& command, const std::string& message) const {
    const RunningProgram::Result result = RunningProgram(Words{program_path()} + command).wait();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "lockstep: " + message + "\n");
  }

  const TempDir dir_;
  const std::string run_ = dir_.path() + "/run";
};

TEST_F(GenerateCommand, PrintsTheTextAndItsRate) {
  const RunningProgram::Result result = generate({"--prompt", "Call me", "--tokens", "40", "--seed", "5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, text("Call me", {.tokens = 40, .seed = 5}) + "\n");
  EXPECT_TRUE(result.err.starts_with("lockstep: 40 tokens, the first after ")) << result.err;
  EXPECT_TRUE(result.err.ends_with(" tokens/s\n")) << result.err;
  const RunningProgram::Result quiet = RunningProgram({program_path(), "generate", run_ + "/step_00000007", "--prompt",
                                                       "Call me", "--tokens", "40", "--seed", "5", "--quiet"})
                                           .wait();
  EXPECT_EQ(quiet.out, result.out);
  EXPECT_EQ(quiet.err, "");
}

TEST_F(GenerateCommand, FlagsReachTheGenerator) {
  const RunningProgram::Result result = generate({"--prompt", "x", "--tokens", "30", "--temperature", "0.7", "--top-k",
                                                  "9", "--top-p", "0.8", "--seed", "11", "--quiet"});
  EXPECT_EQ(result.out, text("x", {.tokens = 30, .temperature = 0.7, .top_k = 9, .top_p = 0.8, .seed = 11}) + "\n");
}

TEST_F(GenerateCommand, SamplesHaveTitles) {
  const RunningProgram::Result result = generate({"--prompt", "x", "--tokens", "5", "--samples", "2", "--quiet"});
  Generator generator(small_language_config(), small_language_params(), byte_tokenizer());
  const std::vector<GeneratedText> texts = generator.generate("x", {.tokens = 5, .samples = 2});
  EXPECT_EQ(result.out, "--- sample 1 ---\n" + texts[0].text + "\n--- sample 2 ---\n" + texts[1].text + "\n");
}

TEST_F(GenerateCommand, PromptsComeFromFilesAndStandardInput) {
  store_text(dir_.path() + "/prompt", "a longer\nprompt");
  const std::string wanted = text("a longer\nprompt", {.tokens = 20}) + "\n";
  EXPECT_EQ(generate({"--prompt-file", dir_.path() + "/prompt", "--tokens", "20", "--quiet"}).out, wanted);
  const std::string command =
      program_path() + " generate " + run_ + " --prompt-file - --tokens 20 --quiet < " + dir_.path() + "/prompt";
  EXPECT_EQ(RunningProgram({"/bin/sh", "-c", command}).wait().out, wanted);
}

TEST_F(GenerateCommand, StopStringsEndATextAndRepeat) {
  const std::string whole = text("x", {.tokens = 60, .seed = 3});
  size_t begin = whole.size() / 2;
  while ((static_cast<unsigned char>(whole[begin]) & 0x80) != 0) ++begin;
  const std::string stop = whole.substr(begin, 1);
  EXPECT_EQ(
      generate({"--prompt", "x", "--tokens", "60", "--seed", "3", "--stop", "never in it", "--stop", stop, "--quiet"})
          .out,
      whole.substr(0, whole.find(stop)) + "\n");
}

TEST_F(GenerateCommand, WrongFlagsAreUsageErrors) {
  const std::string help = "; see `lockstep generate --help`";
  expect_usage_error({"generate"}, "generate: RUN is required" + help);
  expect_usage_error({"generate", run_, "--temperature", "-1"},
                     "generate: --temperature: \"-1\" is not a number of at least 0" + help);
  expect_usage_error({"generate", run_, "--top-p", "0"},
                     "generate: --top-p: \"0\" is not a number above 0 and up to 1" + help);
  expect_usage_error({"generate", run_, "--tokens", "0"},
                     "generate: --tokens: \"0\" is not a whole number from 1 to 1073741824" + help);
  expect_usage_error({"generate", run_, "--samples", "5000"},
                     "generate: --samples: \"5000\" is not a whole number from 1 to 4096" + help);
  expect_usage_error({"generate", run_, "--stop", ""}, "generate: the stop string \"\" is empty; give text");
  const ProcessResult both = run_lockstep({"generate", run_, "--prompt", "x", "--prompt-file", "y"});
  EXPECT_EQ(both.exit_code, 2) << both.output;
  const ProcessResult missing = run_lockstep({"generate", run_, "--prompt-file", dir_.path() + "/missing"});
  EXPECT_EQ(missing.exit_code, 2) << missing.output;
  EXPECT_NE(missing.output.find(dir_.path() + "/missing"), std::string::npos) << missing.output;
}

TEST_F(GenerateCommand, WrongRunsAreReported) {
  const std::string dir = dir_.path();
  expect_failure(
      {"generate", dir + "/none"},
      "generate: " + dir + "/none does not exist, and runs/ has no run of that name; `lockstep runs` lists them");
  FileSystem::real().make_dirs(dir + "/empty");
  expect_failure({"generate", dir + "/empty"},
                 "generate: " + dir +
                     "/empty is neither a complete checkpoint (it has no manifest.json) nor a folder of checkpoints; "
                     "check the path");
  save_checkpoint(dir + "/mlp", {.arrays = {{"params/w", zeros({2})}}, .config = {{"model", "mlp"}}});
  expect_failure({"generate", dir + "/mlp"}, "generate: " + dir +
                                                 "/mlp holds a model mlp, not a language model; choose a checkpoint of "
                                                 "model gpt");
  write_language_run(dir + "/plain", false);
  expect_failure({"generate", dir + "/plain"},
                 "generate: " + dir + "/plain has no tokenizer.json; give the tokenizer of the model with --tokenizer");
  EXPECT_EQ(
      RunningProgram({program_path(), "generate", dir + "/plain", "--tokenizer", "bytes", "--tokens", "9", "--quiet"})
          .wait()
          .out,
      text("", {.tokens = 9}) + "\n");
}

TEST_F(GenerateCommand, AverageWeightsAreUsed) {
  Checkpoint checkpoint{.step = 9, .config = gpt_settings_of(small_language_config())};
  for (const auto& [path, array] : tree_flatten(small_language_params())) {
    checkpoint.arrays.emplace_back("params/" + path, zeros(array.shape()));
    checkpoint.arrays.emplace_back("average/" + path, array);
    checkpoint.arrays.emplace_back("optimizer/first/" + path, zeros(array.shape()));
  }
  save_checkpoint(run_, checkpoint);
  EXPECT_EQ(generate({"--tokens", "9", "--quiet"}).out, text("", {.tokens = 9}) + "\n");
}

}  // namespace
}  // namespace lockstep
