// Settings of a user's program: their rows, texts, YAML, and checks.
#include "train/user_program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/throws.h"
#include "train/config.h"

namespace lockstep {
namespace {

struct WaveSettings {
  Setting<int64_t> hidden{64, "units of the hidden layer", at_least(1)};
  Setting<double> noise{0.1, "standard deviation of the noise", at_least(0)};
  Setting<std::string> file{"points.csv", "CSV file with the points", metavar("FILE"), may_change};
  Setting<std::string> shape_of{"sine", "curve to learn", one_of({"sine", "square"})};
  Setting<bool> shuffled{false, "shuffle the points"};
  Setting<std::vector<std::string>> columns{{"x", "y"}, "columns of the file"};
  Setting<int> folds{3, "number of folds"};
  Setting<uint64_t> stream_id{7, "which random numbers"};
};

UserProgram waves() { return {"waves", detail::setting_rows<WaveSettings>()}; }
WaveSettings settings_of(const TrainConfig& config) { return detail::make_settings<WaveSettings>(config.user); }

TEST(UserProgram, FieldsOfTheSettingsAreKeys) {
  const UserProgram program = waves();
  EXPECT_EQ(config_keys()[0].name, "hidden");
  EXPECT_EQ(config_keys()[0].group, "waves");
  EXPECT_EQ(config_keys()[0].metavar, "N");
  EXPECT_EQ(find_config_key("file")->metavar, "FILE");
  EXPECT_EQ(find_config_key("shape_of")->metavar, "sine|square");
  EXPECT_EQ(find_config_key("shape-of"), find_config_key("shape_of"));
  EXPECT_EQ(find_config_key("shape_of")->flag(), "--shape-of");
  EXPECT_TRUE(find_config_key("shuffled")->is_switch());
  EXPECT_EQ(find_config_key("columns")->separator(), ',');
  EXPECT_EQ(program_name(), "waves");
}

TEST(UserProgram, ValuesReachTheStruct) {
  const UserProgram program = waves();
  EXPECT_EQ(settings_of({}).hidden, 64);
  const TrainConfig config = parse_yaml(
      "hidden: 5\nnoise: 0.5\nfile: a b.csv\nshape-of: square\nshuffled: yes\ncolumns: [u, v]\nfolds: 2\n"
      "stream_id: 18446744073709551615\nlearning_rate: 0.5\n",
      "run.yaml");
  const WaveSettings settings = settings_of(config);
  EXPECT_EQ(settings.hidden, 5);
  EXPECT_EQ(settings.noise, 0.5);
  EXPECT_EQ(*settings.file, "a b.csv");
  EXPECT_EQ(*settings.shape_of, "square");
  EXPECT_TRUE(settings.shuffled);
  EXPECT_EQ(*settings.columns, (std::vector<std::string>{"u", "v"}));
  EXPECT_EQ(settings.folds, 2);
  EXPECT_EQ(settings.stream_id, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(config.learning_rate, 0.5);
}

TEST(UserProgram, YamlAndMapsReadBackTheSame) {
  const UserProgram program = waves();
  TrainConfig config;
  ASSERT_EQ(assign(config, *find_config_key("file"), " \"x\": #"), "");
  ASSERT_EQ(assign(config, *find_config_key("columns"), ""), "");
  ASSERT_EQ(assign(config, *find_config_key("noise"), "0.30000000000000004"), "");
  EXPECT_EQ(parse_yaml(to_yaml(config), "run.yaml"), config);
  EXPECT_EQ(from_map(to_map(config)), config);
  EXPECT_EQ(to_map(config).at("program"), "waves");
  EXPECT_EQ(to_yaml(config).substr(0, 8), "# waves\n");
  validate(config);
}

TEST(UserProgram, WrongValuesAreErrors) {
  const UserProgram program = waves();
  const auto expect_error = [](const std::string& yaml, const std::string& message) {
    EXPECT_THROWS(parse_yaml(yaml, "run.yaml"), Error, message);
  };
  expect_error("hidden: 0", "run.yaml:1: hidden: \"0\" is not a whole number of at least 1");
  expect_error("noise: loud", "noise: \"loud\" is not a number of at least 0");
  expect_error("shape_of: squre", "shape_of: \"squre\" is not one of sine, square; did you mean \"square\"?");
  expect_error("shuffled: perhaps", "shuffled: \"perhaps\" is not true or false");
  expect_error("columns: [a, \"\"]", "columns: \"\" has an empty element");
  expect_error("folds: 3000000000", "folds: \"3000000000\" is not a whole number from -2147483648 to 2147483647");
  expect_error("stream_id: -1", "stream_id: \"-1\" is not a whole number of at least 0");
  expect_error("hiden: 1", "run.yaml:1: unknown key \"hiden\"; did you mean \"hidden\"? see `waves --help`");
  expect_error("hidden: 1\nhidden: 2", "run.yaml:2: hidden is given twice, first at run.yaml:1; keep one");
}

TEST(UserProgram, KeysOfBuiltInModelsDoNotExist) {
  const UserProgram program = waves();
  for (const char* name : {"model", "dataset", "pixel_mean", "layers", "label_smoothing", "dropout"})
    EXPECT_EQ(find_config_key(name), nullptr) << name;
  EXPECT_THROWS(parse_yaml("model: mlp", "run.yaml"), Error,
                "run.yaml:1: model configures the models and data sets of `lockstep train`, and waves has its own; "
                "remove it");
  EXPECT_EQ(to_yaml({}).find("dataset"), std::string::npos);
  TrainConfig config;
  config.expect = {"test_anything<1"};  // metrics are those of the task
  validate(config);
  config.expect = {"test_anything"};
  EXPECT_THROWS(validate(config), Error, "test_anything");
}

TEST(UserProgram, ResumedRunsHaveTheSameSettings) {
  const UserProgram program = waves();
  TrainConfig config;
  const ConfigMap saved = to_map(config);
  ASSERT_EQ(assign(config, *find_config_key("file"), "moved.csv"), "");
  check_same_run(config, saved);  // may_change
  ASSERT_EQ(assign(config, *find_config_key("hidden"), "65"), "");
  EXPECT_THROWS(check_same_run(config, saved), Error,
                "resume: hidden was 64 when the checkpoint was written and is 65 now; use --hidden 64, or start a new "
                "run with --resume none or another --checkpoint-dir");
}

template <class S>
void expect_wrong_settings(const std::string& message) {
  EXPECT_THROWS(UserProgram("waves", detail::setting_rows<S>()), Error, message);
  EXPECT_FALSE(is_user_program());
}

TEST(UserProgram, NamesOfTheTrainerCannotBeReused) {
  struct Seed {
    Setting<int64_t> seed{1, "x"};
  };
  struct GpuTimeout {
    Setting<int64_t> gpu_timeout{1, "x"};
  };
  struct Config {
    Setting<std::string> config{"", "x"};
  };
  struct Width {
    Setting<int64_t> width{4, "x"}, dropout{0, "y"};
  };
  expect_wrong_settings<Seed>("settings: the trainer already has --seed; rename the field \"seed\" of the settings");
  expect_wrong_settings<GpuTimeout>("settings: the trainer already has --gpu-timeout");
  expect_wrong_settings<Config>("settings: the trainer already has --config");
  const UserProgram program("waves", detail::setting_rows<Width>());  // keys of lockstep's models are free
  EXPECT_NE(find_config_key("dropout"), nullptr);
}

TEST(UserProgram, DefaultsMustBeValid) {
  struct Low {
    Setting<int64_t> hidden{0, "x", at_least(1)};
  };
  expect_wrong_settings<Low>(
      "settings: the default of \"hidden\" is wrong: \"0\" is not a whole number of at least 1; correct it");
}

TEST(UserProgram, CheckpointsOfOtherProgramsAreNamed) {
  ConfigMap saved;
  {
    const UserProgram program = waves();
    saved = to_map({});
  }
  EXPECT_THROWS(from_map(saved, "run"), Error,
                "run: written by the program waves, with its own task; use that program instead of lockstep");
  EXPECT_EQ(config_keys()[0].name, "model");
  EXPECT_TRUE(TrainConfig().user.empty());
}

}  // namespace
}  // namespace lockstep
