#include "train/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "base/throws.h"
#include "lockstep/models.h"
#include "lockstep/precision.h"

namespace lockstep {
namespace {

TrainConfig parse(const std::string& text) { return parse_yaml(text, "run.yaml"); }

void expect_parse_error(const std::string& yaml, const std::string& message) {
  EXPECT_THROWS(parse(yaml), Error, message);
}

TrainConfig with(const ConfigMap& values) { return from_map(values); }
void expect_invalid(const ConfigMap& values, const std::string& message) {
  EXPECT_THROWS(validate(with(values)), Error, message);
}

TEST(Config, DefaultsAreValidAndTenEpochs) {
  const TrainConfig config;
  validate(config);
  EXPECT_EQ(config.epochs, 0);
  EXPECT_EQ(with_default_length(config).epochs, 10);
  EXPECT_EQ(config.steps, 0);
  EXPECT_EQ(config.batch_size, 128);
}

TEST(Config, KeysAreUniqueAndExplained) {
  std::set<std::string_view> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_EQ(find_config_key(key.name), &key);
    EXPECT_EQ(find_config_key(key.flag().substr(2)), &key);
  }
}

// The metavars list exactly the names that src/nn accepts.
TEST(Config, MetavarsListTheKnownNames) {
  const auto values = [](std::string_view name) {
    std::vector<std::string> out(1);
    for (const char c : find_config_key(name)->metavar)
      if (c == '|')
        out.emplace_back();
      else
        out.back() += c;
    return out;
  };
  const std::vector<std::string> models = values("model");
  for (const std::string& name : model_names()) EXPECT_EQ(std::ranges::count(models, name), 1) << name;
  for (const std::string& name : models)
    validate(with({{"model", name}, {"dataset", name == "gpt" ? "text:file" : "mnist"}}));
  for (const std::string& name : values("optimizer")) EXPECT_EQ(to_string(optimizer_kind(name)), name);
  for (const std::string& name : values("schedule")) EXPECT_EQ(to_string(schedule_kind(name)), name);
  for (const std::string& name : values("precision")) EXPECT_EQ(to_string(precision_of(name)), name);
  for (const std::string& name : values("loggers")) validate(with({{"loggers", name}, {"log_dir", "x"}}));
}

TEST(Config, YamlKeysMayHaveHyphensOrUnderscores) {
  const TrainConfig config = parse("learning-rate: 0.5\nbatch_size: 7\nquiet: yes\nmodel: cnn\n");
  EXPECT_EQ(config.learning_rate, 0.5);
  EXPECT_EQ(config.batch_size, 7);
  EXPECT_TRUE(config.quiet);
  EXPECT_EQ(config.model, "cnn");
}

TEST(Config, EmptyYamlIsTheDefaults) {
  for (const char* text : {"", "\n\n", "# nothing\n", "---\n", "{}"}) EXPECT_EQ(parse(text), TrainConfig()) << text;
}

TEST(Config, YamlListsBecomeLists) {
  const std::vector<std::string> wanted = {"test_accuracy>=0.9", "loss<1"};
  EXPECT_EQ(parse("expect: [test_accuracy>=0.9, loss<1]").expect, wanted);
  EXPECT_EQ(parse("expect:\n  - test_accuracy>=0.9\n  - loss<1\n").expect, wanted);
  EXPECT_EQ(parse("expect: test_accuracy>=0.9, loss<1").expect, wanted);
  EXPECT_TRUE(parse("expect: []").expect.empty());
}

TEST(Config, ListsHaveNoEmptyElements) {
  expect_parse_error("model: mlp\nexpect: \"\"",
                     "run.yaml:2: expect: \"\" has an empty element; give it a value, or remove it");
  for (const char* text : {"[\"\"]", "[loss<1, \"\"]"})
    expect_parse_error(std::string("expect: ") + text, "run.yaml:1: expect: \"\" has an empty element");
  for (const char* text : {",", " ", "loss<1,", ",loss<1", "loss<1,,accuracy>0"}) {
    const std::string message = "expect: \"" + std::string(text) + "\" has an empty element";
    expect_parse_error("expect: \"" + std::string(text) + "\"", message);
    expect_invalid({{"expect", text}}, message);
  }
  expect_parse_error("shard: \"dense/0/w=,model;\"", "shard: \"dense/0/w=,model;\" has an empty element");
  EXPECT_TRUE(with({{"expect", ""}}).expect.empty());  // as stored in checkpoints
}

TEST(Config, UnknownKeyIsReportedWithLineAndSuggestion) {
  expect_parse_error(
      "model: mlp\n\nlerning_rate: 1\n",
      "run.yaml:3: unknown key \"lerning_rate\"; did you mean \"learning_rate\"? see `lockstep train --help`");
  expect_parse_error("lr: 1", "run.yaml:1: unknown key \"lr\"; did you mean \"learning_rate\"?");
  expect_parse_error("bs: 1", "did you mean \"batch_size\"?");
  expect_parse_error("warmup: 1", "did you mean \"warmup_steps\"?");
  expect_parse_error("xyzzy: 1", "run.yaml:1: unknown key \"xyzzy\"; see `lockstep train --help`");
}

TEST(Config, WrongValueIsReportedWithLineAndExpectedKind) {
  expect_parse_error("model: mlp\nbatch_size: many",
                     "run.yaml:2: batch_size: \"many\" is not a whole number of at least 1");
  expect_parse_error("batch_size: 0", "batch_size: \"0\" is not a whole number of at least 1");
  expect_parse_error("batch_size: 12.5", "batch_size: \"12.5\" is not a whole number of at least 1");
  expect_parse_error("steps: 99999999999999999999",
                     "steps: \"99999999999999999999\" is too large; the maximum is 9223372036854775807");
  expect_parse_error("seed: -1", "seed: \"-1\" is not a whole number of at least 0");
  expect_parse_error("learning_rate: 0", "learning_rate: \"0\" is not a number above 0");
  expect_parse_error("learning_rate: fast", "learning_rate: \"fast\" is not a number above 0");
  expect_parse_error("pixel_mean: nan", "pixel_mean: \"nan\" is not a number");
  expect_parse_error("weight_decay: inf", "weight_decay: \"inf\" is not a number of at least 0");
  expect_parse_error("dropout: 1", "dropout: \"1\" is not a number of at least 0 and below 1");
  expect_parse_error("strict: maybe", "strict: \"maybe\" is not true or false");
}

TEST(Config, WrongYamlKindIsReportedWithLine) {
  expect_parse_error("batch_size: [1, 2]",
                     "run.yaml:1: batch_size is a list; expected a single value, such as `batch_size: 128`");
  expect_parse_error("optimizer:\n  name: adam", "run.yaml:1: optimizer is a map; expected a single value");
  expect_parse_error("batch_size:", "run.yaml:1: batch_size is empty; expected a single value");
  expect_parse_error("data_dir: ~", "such as `data_dir: \"\"`");
  expect_parse_error("expect: {a: 1}", "expect is a map; expected a list or a single value, such as `expect: [a, b]`");
  expect_parse_error("expect: [[a]]", "run.yaml:1: an element of expect is a list; expected single values");
  expect_parse_error("- model",
                     "run.yaml:1: the file is a list; expected a map of keys: write lines such as `batch_size: 128`");
  expect_parse_error("hello", "run.yaml:1: the file is a single value; expected a map of keys");
  expect_parse_error("? [a]\n: 1", "run.yaml:1: a key is a list; expected a name");
  expect_parse_error("model: mlp\n---\nmodel: cnn",
                     "run.yaml: contains 2 YAML documents, but only one is allowed; remove the lines `---`");
}

TEST(Config, DuplicateKeyIsRejectedInEitherSpelling) {
  expect_parse_error("batch_size: 1\nmodel: cnn\nbatch_size: 2",
                     "run.yaml:3: batch_size is given twice, first at run.yaml:1; keep one");
  expect_parse_error("batch_size: 1\nbatch-size: 2", "run.yaml:2: batch_size is given twice, first at run.yaml:1");
}

TEST(Config, InvalidYamlIsReportedWithLineAndColumn) {
  expect_parse_error("model: mlp\nbatch_size: [1,", "run.yaml:2:");
  expect_parse_error("model: \"mlp", "run.yaml:1:12: invalid YAML: ");
  expect_parse_error("model: mlp\n\tbatch_size: 1\n", "run.yaml:2:1: invalid YAML: ");
  expect_parse_error("a: b: c", "run.yaml:1:5: invalid YAML: ");
  expect_parse_error(std::string(100000, '['), "run.yaml:1: more than 16 maps or lists are nested");
}

TEST(Config, StepsAndEpochsReplaceEachOther) {
  EXPECT_EQ(parse("steps: 100").epochs, 0);
  EXPECT_EQ(with_default_length(parse("steps: 0")).epochs, 10);
  EXPECT_EQ(with_default_length(parse("model: cnn")).epochs, 4);
  EXPECT_EQ(with_default_length(parse("steps: 5")).epochs, 0);
  EXPECT_EQ(with_default_length(parse("model: cnn\nepochs: 7")).epochs, 7);
  const TrainConfig longer = overlay(parse("steps: 100"), {{"epochs", "3"}}, "command line");
  EXPECT_EQ(longer.steps, 0);
  EXPECT_EQ(longer.epochs, 3);
  const TrainConfig shorter = overlay(parse("epochs: 3"), {{"steps", "7"}}, "command line");
  EXPECT_EQ(shorter.steps, 7);
  EXPECT_EQ(shorter.epochs, 0);
  expect_parse_error("steps: 100\nepochs: 2", "run.yaml: both steps (100) and epochs (2) are given; keep only one");
  TrainConfig both;
  both.steps = 5;
  both.epochs = 10;
  EXPECT_THROWS(validate(both), Error, "both steps (5) and epochs (10) are given");
}

TEST(Config, OverlayKeepsOtherValues) {
  const TrainConfig config = overlay(parse("model: cnn\nbatch_size: 64"), {{"batch-size", "32"}}, "command line");
  EXPECT_EQ(config.model, "cnn");
  EXPECT_EQ(config.batch_size, 32);
  EXPECT_THROWS(overlay({}, {{"batch_size", "x"}}, "command line"), Error, "command line: batch_size: \"x\" is not");
  EXPECT_THROWS(from_map({{"modle", "x"}}, "step_00000001"), Error,
                "step_00000001: unknown key \"modle\"; did you mean \"model\"?");
}

// Random valid values for every key; texts contain characters that are special in YAML.
TrainConfig random_config(std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto text = [&](bool commas) {
    static const std::vector<std::string> kPieces = {
        "a", "B", "0", "null", "~", " ", ":", "#", "'", "\"", "\\", "\n",   "\t", "\r",   "-",    "{",    "}",   "[",
        "]", "&", "*", "!",    "|", ">", "%", "@", "`", "=",  "/",  "true", "é",  "\x01", "\x7f", "\xff", "...", "---"};
    std::string out;
    for (uint64_t n = below(6); n > 0; --n) out += kPieces[below(kPieces.size())];
    if (commas && below(3) == 0) out += ", x";
    return out;
  };
  const auto largest = [](const ConfigKey& key) {
    return key.limits.high < 0x1p62 ? static_cast<int64_t>(key.limits.high) : std::numeric_limits<int64_t>::max();
  };
  TrainConfig config;
  for (const ConfigKey& key : config_keys()) {
    if (const auto* m = std::get_if<config::Text TrainConfig::*>(&key.member)) config.** m = text(true);
    if (const auto* m = std::get_if<config::Integer TrainConfig::*>(&key.member))
      config.** m = std::min(static_cast<int64_t>(1 + (random() >> (2 + below(60)))), largest(key));
    if (const auto* m = std::get_if<config::Unsigned TrainConfig::*>(&key.member)) config.** m = random();
    if (const auto* m = std::get_if<config::Number TrainConfig::*>(&key.member))
      config.** m = std::ldexp(static_cast<double>(1 + (random() >> 12)), -52 - static_cast<int>(below(60)));
    if (const auto* m = std::get_if<config::Switch TrainConfig::*>(&key.member)) config.** m = below(2) == 0;
    if (const auto* m = std::get_if<config::List TrainConfig::*>(&key.member))
      for (uint64_t n = below(4); n > 0; --n) (config.**m).push_back("x" + text(false) + "y");
    if (const auto* m = std::get_if<config::Rules TrainConfig::*>(&key.member))
      for (uint64_t n = below(4); n > 0; --n) (config.**m).push_back("x" + text(true) + "y");
  }
  config.zero = static_cast<int64_t>(below(4));
  (below(2) == 0 ? config.steps : config.epochs) = 0;
  return config;
}

TEST(Config, RoundTripsThroughYamlAndMaps) {
  EXPECT_EQ(parse(to_yaml({})), TrainConfig());
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    const TrainConfig config = random_config(random);
    ASSERT_EQ(parse(to_yaml(config)), config) << to_yaml(config);
    ASSERT_EQ(from_map(to_map(config)), config) << to_yaml(config);
  }
}

TEST(Config, DataMustFitTheModel) {
  expect_invalid({{"model", "gpt"}},
                 "dataset: mnist is not text, which model gpt needs; choose moby-dick, sotu, text:PATH or tokens:FILE");
  expect_invalid({{"dataset", "moby-dick"}},
                 "dataset: moby-dick is text, and model mlp does not train on text; choose model gpt");
  expect_invalid({{"dataset", "tokens:a.bin"}, {"model", "cnn"}},
                 "dataset: tokens:a.bin is text, and model cnn does not train on text; choose model gpt");
  expect_invalid({{"dataset", "csv:a.csv"}, {"model", "cnn"}},
                 "dataset: csv:a.csv is a table, and model cnn needs images; choose model mlp");
  expect_invalid({{"dataset", "text:"}, {"model", "gpt"}},
                 "dataset: \"text:\" has no path; give one, such as text:PATH");
  expect_invalid({{"dataset", "images:a"}, {"data_dir", "d"}}, "data_dir: \"d\" has no effect with dataset images:a");
  validate(with({{"dataset", "images:a,b"}, {"model", "resnet18"}}));  // a comma is part of the path
  validate(with({{"dataset", "sotu"}, {"model", "gpt"}, {"data_dir", "d"}}));
}

TEST(Config, ValidationIsAShareOrAPath) {
  for (const char* text : {"0", "1", "1.5", "-0.1", "1e999", "nan"})
    expect_invalid({{"validation", text}}, "validation: " + std::string(text) +
                                               " is not a share above 0 and below 1; give one such as 0.1, or a path");
  for (const char* text : {"0.1", "1e-3", "held_out", "0.1.csv"}) validate(with({{"validation", text}}));
  expect_invalid({{"patience", "3"}}, "patience: 3 has no effect without a validation set; set validation");
  validate(with({{"patience", "3"}, {"validation", "0.1"}}));
  validate(with({{"validation", "0.1"}, {"expect", "validation_loss<1"}}));
  expect_invalid({{"expect", "validation_loss<1"}}, "validation_loss");
}

TEST(Config, ModelSizesAreChecked) {
  const auto gpt = [](ConfigMap values) {
    values.insert({{"model", "gpt"}, {"dataset", "sotu"}});
    return values;
  };
  validate(with(gpt({{"size", "124m"}, {"heads", "12"}, {"kv_heads", "4"}, {"width", "768"}, {"context", "64"}})));
  validate(with({{"model", "vit"}, {"layers", "4"}, {"heads", "3"}}));
  expect_invalid(gpt({{"size", "huge"}}), "size: unknown value \"huge\"; choose char, char-small or 124m");
  expect_invalid(gpt({{"layers", "1001"}}), "layers: \"1001\" is not a whole number from 0 to 1000");
  expect_invalid(gpt({{"heads", "5"}, {"width", "64"}}), "width: 64 is not a multiple of heads (5)");
  expect_invalid(gpt({{"heads", "6"}, {"kv_heads", "4"}}), "kv_heads: 4 does not divide heads (6); choose a divisor");
  expect_invalid({{"layers", "2"}},
                 "layers: 2 has no effect with model mlp; choose model gpt or vit, or remove layers");
  expect_invalid({{"model", "vit"}, {"context", "8"}}, "context: 8 has no effect with model vit; choose model gpt");
  validate(with({{"model", "gpt"}, {"dataset", "tokens:a.bin"}, {"tokenizer", "bytes"}}));  // to print the text
  validate(with(gpt({{"expect", "validation_bits_per_byte<2"}})));
  expect_invalid(gpt({{"expect", "test_loss<2"}}), "unknown metric \"test_loss\"");
  expect_invalid(gpt({{"expect", "test_accuracy>0"}}), "test_accuracy");
}

TEST(Config, InvalidValuesAreRejected) {
  expect_invalid({{"model", "mpl"}}, "model: unknown value \"mpl\"; choose ");
  expect_invalid({{"optimizer", "admw"}}, "did you mean \"adamw\"?");
  expect_invalid({{"schedule", "cosin"}}, "did you mean \"cosine\"?");
  expect_invalid({{"precision", "float64"}}, "choose float32, bfloat16, float16 or float8");
  expect_invalid(
      {{"dataset", "mnits"}},
      "dataset: unknown data set \"mnits\"; did you mean \"mnist\"? choose mnist, fashion-mnist, cifar10, "
      "moby-dick, sotu, synthetic, give text:PATH, tokens:FILE, images:DIR, npy:X,Y or csv:FILE, or give two or four "
      "IDX files separated by commas");
  for (const char* paths : {"a,b,c", "a,", ",b", "a,,b,c", "a,b,c,d,e"})
    expect_invalid({{"dataset", paths}}, "is not IMAGES,LABELS or IMAGES,LABELS,TEST_IMAGES,TEST_LABELS");
  expect_invalid({{"accumulate", "200"}}, "accumulate: a batch of 128 examples cannot be split into 200 micro-batches");
  for (const char* devices : {"", "0", "-1", "two", "8x", "9999999999"})
    expect_invalid({{"devices", devices}},
                   "devices: \"" + std::string(devices) + "\" is not auto, all or a number from 1 to 131072");
  expect_invalid({{"platform", "gpu"}}, "platform: unknown value \"gpu\"; use cuda for NVIDIA GPUs, or auto or cpu");
  expect_invalid({{"warmup_steps", "5"}},
                 "warmup_steps: 5 has no effect with schedule cosine; choose schedule warmup_cosine");
  expect_invalid({{"schedule", "warmup_cosine"}, {"warmup_steps", "50"}, {"steps", "50"}},
                 "warmup_steps: a warm-up of 50 steps does not end within 50 steps");
  expect_invalid({{"schedule", "constant"}, {"end_learning_rate", "1e-5"}},
                 "end_learning_rate: 1e-05 has no effect with schedule constant");
  expect_invalid({{"end_learning_rate", "1"}}, "end_learning_rate: 1 is above the learning_rate of 0.001");
  expect_invalid({{"resume", ""}}, "resume: the value is empty; give auto, none, a step or a path");
  expect_invalid({{"resume", "100"}}, "resume: step 100 needs a folder; set run_dir or checkpoint_dir");
  expect_invalid({{"checkpoint_every", "5"}, {"log_dir", "l"}},
                 "checkpoint_every: 5 has no effect, because log_dir is given; set checkpoint_dir");
  expect_invalid({{"checkpoint_every", "5"}, {"no_save", "true"}},
                 "checkpoint_every: 5 has no effect, because no_save is given; remove one of the two");
  expect_invalid({{"no_save", "true"}, {"run_dir", "r"}},
                 "no_save: run_dir (r) is given as well; remove one of the two");
  expect_invalid({{"no_save", "true"}, {"log_dir", "l"}},
                 "no_save: log_dir (l) is given as well; remove one of the two");
  expect_invalid(
      {{"run_dir", "r"}, {"checkpoint_dir", "c"}},
      "run_dir: both run_dir (r) and checkpoint_dir (c) are given; keep one: a run folder has checkpoints and "
      "logs");
  expect_invalid({{"loggers", "consle"}}, "did you mean \"console\"?");
  expect_invalid({{"loggers", "console,csv"}, {"checkpoint_dir", "c"}}, "loggers: csv writes a file; set log_dir");
  expect_invalid({{"loggers", "console,csv"}, {"no_save", "true"}}, "loggers: csv writes a file; remove no_save");
  expect_invalid({{"expect", "test_accuracy"}}, "expect: \"test_accuracy\" has no comparison");
  expect_invalid({{"shard", "dense*/w"}}, "shard: \"dense*/w\" has no =; write PATTERN=AXES");
  expect_invalid(
      {{"shard", "dense*/w=,model"}},
      "shard: \"dense*/w=,model\" uses axis \"model\", but the axes of the mesh are data; add the axis with --mesh");
  expect_invalid({{"shard", "a=,model;b=modle"}, {"mesh", "data=4,model=2"}},
                 "shard: \"b=modle\" uses axis \"modle\", but the axes of the mesh are data, model; did you mean "
                 "\"model\"? add the axis with --mesh");
  TrainConfig negative;
  negative.batch_size = -3;
  EXPECT_THROWS(validate(negative), Error, "batch_size: \"-3\" is not a whole number of at least 1");
}

TEST(Config, SettingsWithoutEffectAreRejected) {
  for (const char* schedule : {"constant", "cosine", "warmup_cosine"}) {
    const std::string with_it = " has no effect with schedule " + std::string(schedule);
    expect_invalid({{"schedule", schedule}, {"decay", "0.5"}},
                   "decay: 0.5" + with_it + "; choose schedule exponential or step, or remove decay");
    expect_invalid({{"schedule", schedule}, {"decay_every", "10"}}, "decay_every: 10" + with_it);
  }
  for (const char* optimizer : {"sgd", "adam", "adamw"})
    expect_invalid({{"optimizer", optimizer}, {"momentum", "0.5"}},
                   "momentum: 0.5 has no effect with optimizer " + std::string(optimizer) +
                       "; choose optimizer momentum or nesterov, or remove momentum");
  for (const char* optimizer : {"sgd", "momentum", "nesterov"})
    for (const std::string name : {"beta1", "beta2", "epsilon"})
      expect_invalid({{"optimizer", optimizer}, {name, "0.5"}},
                     name + ": 0.5 has no effect with optimizer " + optimizer + "; choose optimizer adam or adamw");
  // Files written by the program contain all settings, so unused ones must be accepted at their defaults.
  for (const char* optimizer : {"sgd", "momentum", "nesterov", "adam", "adamw"})
    for (const char* schedule : {"constant", "cosine", "warmup_cosine", "exponential", "step"})
      validate(parse(to_yaml(with({{"optimizer", optimizer}, {"schedule", schedule}}))));
}

TEST(Config, ValidCombinationsPass) {
  for (const ConfigMap& values :
       std::vector<ConfigMap>{{{"devices", "8"}, {"mesh", "data=-1"}},
                              {{"devices", "all"}, {"mesh", "data=4,model=2"}},
                              {{"dataset", "a,b"}},
                              {{"dataset", "a,b,c,d"}},
                              {{"schedule", "warmup_cosine"}, {"warmup_steps", "10"}, {"steps", "100"}},
                              {{"schedule", "exponential"}, {"decay", "0.5"}, {"decay_every", "10"}},
                              {{"schedule", "step"}, {"decay", "0.5"}, {"decay_every", "10"}},
                              {{"optimizer", "momentum"}, {"momentum", "0.5"}},
                              {{"optimizer", "nesterov"}, {"momentum", "0.5"}},
                              {{"optimizer", "adam"}, {"beta1", "0.5"}, {"beta2", "0.5"}, {"epsilon", "0.5"}},
                              {{"beta1", "0.5"}, {"beta2", "0.5"}, {"epsilon", "0.5"}},
                              {{"resume", "/some/run"}},
                              {{"resume", "100"}, {"checkpoint_dir", "run"}, {"checkpoint_every", "10"}},
                              {{"precision", "bf16"}},
                              {{"expect", "test_accuracy>=0.97,loss<0.5"}}})
    validate(with(values));
}

TEST(Config, ShardsAndZeroMakeThePlan) {
  EXPECT_EQ(make_sharding_plan({}), ShardingPlan());
  const TrainConfig yaml = parse("mesh: data=4,model=2\nshard:\n  - dense/0/w=,model\n  - dense/1/w=model\nzero: 3\n");
  validate(yaml);
  EXPECT_EQ(yaml.shard, (config::Rules{"dense/0/w=,model", "dense/1/w=model"}));
  EXPECT_EQ(make_sharding_plan(yaml),
            (ShardingPlan{.rules = {{"dense/0/w", P({}, "model")}, {"dense/1/w", P("model")}}, .zero = 3}));
  EXPECT_EQ(parse("shard: dense/0/w=,model\n").shard, (config::Rules{"dense/0/w=,model"}));
  EXPECT_THROWS(parse("zero: 4\n"), Error, "zero: \"4\" is not a whole number from 0 to 3");
  EXPECT_THROWS(parse("zero: -1\n"), Error, "zero: \"-1\" is not a whole number from 0 to 3");
}

TEST(Config, MeshTextBecomesAxes) {
  using Axes = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(parse_mesh(""), Axes());
  EXPECT_EQ(parse_mesh("data=8"), (Axes{{"data", 8}}));
  EXPECT_EQ(parse_mesh("data=2,model=-1"), (Axes{{"data", 2}, {"model", -1}}));
  for (const char* text : {"data", "data=", "=8", "data=8,", ",data=8", "data=x", "data=8x", "a b=2", "data=1.5"})
    EXPECT_THROWS(parse_mesh(text), Error, "is not AXIS=SIZE; write a mesh such as data=4 or data=2,model=-1");
  EXPECT_THROWS(parse_mesh("data=0"), Error, "mesh: the size of \"data\" is 0; give a number of at least 1, or -1");
  EXPECT_THROWS(parse_mesh("data=-2"), Error, "mesh: the size of \"data\" is -2");
  EXPECT_THROWS(parse_mesh("data=2,data=4"), Error, "mesh: \"data\" is given twice in \"data=2,data=4\"; keep one");
  EXPECT_THROWS(parse_mesh("a=-1,b=-1"), Error, "mesh: several sizes in \"a=-1,b=-1\" are -1");
  expect_invalid({{"mesh", "data"}}, "mesh: \"data\" in \"data\" is not AXIS=SIZE");
}

TEST(Config, ResumingWithOtherSettingsIsRejected) {
  const TrainConfig config;
  check_same_run(config, to_map(config));
  check_same_run(config, {});
  const TrainConfig longer = from_map({{"epochs", "20"}, {"learning_rate", "0.5"}});
  check_same_run(longer, to_map(config));  // may change
  EXPECT_THROWS(
      check_same_run(config, {{"batch_size", "64"}}), Error,
      "resume: batch_size was 64 when the checkpoint was written and is 128 now; use --batch-size 64, or start a new "
      "run with --resume none or another --checkpoint-dir");
  for (const char* key : {"model", "dataset", "pixel_mean", "pixel_sd", "seed", "optimizer"})
    EXPECT_THROWS(check_same_run(config, {{key, "77"}}), Error, std::string("resume: ") + key + " was 77 when");
}

TEST(Config, OptimizerUsesTheSettings) {
  const Optimizer o = make_optimizer(from_map({{"optimizer", "nesterov"},
                                               {"learning_rate", "0.5"},
                                               {"schedule", "warmup_cosine"},
                                               {"warmup_steps", "3"},
                                               {"end_learning_rate", "0.25"},
                                               {"momentum", "0.75"},
                                               {"weight_decay", "0.125"},
                                               {"clip_norm", "2"}}),
                                     100);
  EXPECT_EQ(o.kind, Optimizer::Kind::nesterov);
  EXPECT_EQ(o.schedule.kind, Schedule::Kind::warmup_cosine);
  EXPECT_EQ(o.schedule.peak, 0.5);
  EXPECT_EQ(o.schedule.end, 0.25);
  EXPECT_EQ(o.schedule.warmup_steps, 3);
  EXPECT_EQ(o.schedule.total_steps, 100);
  EXPECT_EQ(o.momentum, 0.75);
  EXPECT_EQ(o.weight_decay, 0.125);
  EXPECT_EQ(o.clip_norm, 2);
  check(o);
  check(make_optimizer({}, 100));
}

TEST(Config, DefaultLoggersDependOnLogDir) {
  EXPECT_EQ(logger_names({}), "console");
  EXPECT_EQ(logger_names(with({{"log_dir", "x"}})), "console,jsonl,csv,tensorboard");
  EXPECT_EQ(logger_names(with({{"log_dir", "x"}, {"quiet", "true"}})), "jsonl,csv,tensorboard");
  EXPECT_EQ(logger_names(with({{"quiet", "true"}})), "");
  EXPECT_EQ(logger_names(with({{"loggers", "compact, csv"}, {"log_dir", "x"}})), "compact,csv");
}

}  // namespace
}  // namespace lockstep
