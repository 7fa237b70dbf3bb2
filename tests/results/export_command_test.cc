// `lockstep export`: formats, names of files and messages.
#include <fmt/format.h>

#include "results/picture_run.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

class ExportCommand : public testing::Test {
 protected:
  RunningProgram::Result run(const Words& words) const {
    return RunningProgram(Words{program_path(), "export", picture_run()} + words).wait();
  }
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  const TempDir dir_;
};

TEST_F(ExportCommand, FormatFollowsFromTheName) {
  const RunningProgram::Result onnx = run({"-o", path("a.onnx")});
  EXPECT_EQ(onnx.exit_code, 0) << onnx.err;
  EXPECT_TRUE(onnx.out.starts_with(path("a.onnx") + ": image f32[batch, 8, 8, 1] -> logits f32[batch, 3], "
                                                    "probabilities f32[batch, 3], "))
      << onnx.out;
  const RunningProgram::Result safetensors = run({"-o", path("a.safetensors")});
  EXPECT_TRUE(safetensors.out.starts_with(path("a.safetensors") + ": 6 tensors, "))
      << safetensors.out << safetensors.err;
  const RunningProgram::Result c = run({"-o", path("2 nets.h")});
  EXPECT_TRUE(c.out.starts_with(path("2 nets.h") + ": model_2_nets::predict(), ")) << c.out << c.err;
  EXPECT_NE(read_text(path("2 nets.h")).find("namespace model_2_nets {"), std::string::npos);
  const RunningProgram::Result separate = run({"-o", path("b.h"), "--separate-weights"});
  EXPECT_TRUE(separate.out.starts_with(path("b.h") + " and " + path("b.bin") + ": b::predict(), ")) << separate.err;
  EXPECT_EQ(FileSystem::real().size(path("b.bin")), 4 * (64 * 256 + 256 + 256 * 128 + 128 + 128 * 3 + 3));
}

TEST_F(ExportCommand, ExistingFilesAreReplacedOnlyByForce) {
  write_text(path("a.onnx"), "mine");
  const RunningProgram::Result refused = run({"-o", path("a.onnx")});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.err, "lockstep: export: " + path("a.onnx") +
                             " exists; choose another name with -o, or replace it with --force\n");
  EXPECT_EQ(read_text(path("a.onnx")), "mine");
  EXPECT_EQ(run({"-o", path("a.onnx"), "--force"}).exit_code, 0);
  EXPECT_GT(FileSystem::real().size(path("a.onnx")), 1000);
}

TEST_F(ExportCommand, WrongFlagsAreUsageErrors) {
  const auto expect_usage = [&](const Words& words, const std::string& message) {
    expect_usage_error(Words{"export", picture_run()} + words, message);
  };
  expect_usage({"--format", "onx"},
               "export: --format: \"onx\" is not one of onnx, safetensors, c, hf; did you mean \"onnx\"? see "
               "`lockstep export --help`");
  expect_usage({"-o", path("model.onxx")}, "export: the name " + path("model.onxx") +
                                               " selects no format; end it with .onnx, .safetensors or .h, or give "
                                               "--format");
  expect_usage({"--format", "hf"}, "export: a Hugging Face folder needs a name; give -o DIR");
  expect_usage({"--format", "onnx", "--dtype", "bf16"},
               "export: --dtype has no effect on --format onnx; it is for --format hf");
  expect_usage({"--format", "onnx", "--separate-weights"},
               "export: --separate-weights has no effect on --format onnx; it is for --format c");
  expect_usage({"--format", "hf", "-o", "x", "--force"},
               "export: --force has no effect on --format hf; choose a new folder");
  expect_usage({"--format", "hf", "-o", "x", "--weights", "last"},
               "export: --weights has no effect on --format hf, which has the average if there is one");
}

TEST_F(ExportCommand, OutputThatCannotBeWrittenIsAnError) {
  const RunningProgram::Result result = run({"-o", path("missing/a.onnx")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find(path("missing")), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("No such file or directory"), std::string::npos) << result.err;
  const RunningProgram::Result average = run({"-o", path("a.onnx"), "--weights", "average"});
  EXPECT_EQ(average.err, "lockstep: export: " + picture_run() +
                             " has no average of the weights; train with --ema-decay, or leave out --weights\n");
}

TEST_F(ExportCommand, AverageAndLastWeightsDiffer) {
  const ProcessResult trained =
      run_lockstep({"train", "--dataset", "images:" + picture_data(), "--model", "mlp", "--steps", "5", "--batch-size",
                    "20", "--ema-decay", "0.9", "--checkpoint-dir", path("run"), "--quiet"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  for (const char* weights : {"auto", "average", "last"})
    EXPECT_EQ(
        run_lockstep({"export", path("run"), "--weights", weights, "-o", path(weights) + ".safetensors"}).exit_code, 0);
  EXPECT_EQ(read_text(path("auto.safetensors")), read_text(path("average.safetensors")));
  EXPECT_NE(read_text(path("auto.safetensors")), read_text(path("last.safetensors")));
}

}  // namespace
}  // namespace lockstep
