// Settings of optimizers, schedules and parameter groups.
#include "base/throws.h"
#include "train/config.h"

namespace lockstep {
namespace {

void expect_refused(const ConfigMap& values, const std::string& part) {
  EXPECT_THROWS(validate(from_map(values)), Error, part);
}

TEST(ParameterGroups, TextBecomesAGroup) {
  EXPECT_EQ(parse_parameter_group("*embed*=rate:0.1,decay:0"),
            (ParameterGroup{.pattern = "*embed*", .rate = 0.1, .weight_decay = 0}));
  EXPECT_EQ(parse_parameter_group(" head/* = optimizer:lion "),
            (ParameterGroup{.pattern = "head/*", .kind = Optimizer::Kind::lion}));
  EXPECT_EQ(parse_parameter_group("a=b=frozen"), (ParameterGroup{.pattern = "a=b", .frozen = true}));
  EXPECT_EQ(parse_parameter_group("w=decay:1e-2").weight_decay, 0.01);
}

TEST(ParameterGroups, InvalidTextIsRejected) {
  const auto refuse = [](const char* text, const std::string& part) {
    EXPECT_THROWS(parse_parameter_group(text), Error, part);
  };
  refuse("head/*", "group: \"head/*\" has no =; write PATTERN=SETTINGS with rate:FACTOR, decay:X, optimizer:NAME");
  refuse("=frozen", "group: \"=frozen\" has no pattern");
  refuse("w=", "group: \"w=\" has an empty setting");
  refuse("w=rate:1,", "has an empty setting");
  refuse("w=rate", "group: \"w=rate\" has the rate \"\", which is not a number of at least 0");
  refuse("w=rate:x", "has the rate \"x\", which is not a number of at least 0");
  refuse("w=rate:-1", "has the rate \"-1\"");
  refuse("w=decay:inf", "has the decay \"inf\"");
  refuse("w=decay:nan", "has the decay \"nan\"");
  refuse("w=decay:1e999", "has the decay \"1e999\"");
  refuse("w=rat:1", "has the unknown setting \"rat:1\"; did you mean \"rate\"?");
  refuse("w=frozen:1", "has the unknown setting \"frozen:1\"");
  refuse("w=rate:1,rate:2", "has rate twice");
  refuse("w=frozen,rate:2", "freezes the parameters, so its other settings have no effect");
  refuse("w=optimizer:lino", "optimizer: unknown value \"lino\"; choose sgd");
}

TEST(ParameterGroups, ComeFromFlagsAndYaml) {
  const TrainConfig config = parse_yaml("group:\n  - '*=rate:0.5'\n  - 'head/*=decay:0,rate:2'\n", "run.yaml");
  validate(config);
  EXPECT_EQ(parse_yaml(to_yaml(config), "again.yaml"), config);
  const Optimizer o = make_optimizer(config, 100);
  ASSERT_EQ(o.groups.size(), 2u);
  EXPECT_EQ(o.groups[1], (ParameterGroup{.pattern = "head/*", .rate = 2, .weight_decay = 0}));
  EXPECT_EQ(from_map({{"group", "*=rate:0.5;head/*=decay:0,rate:2"}}).group, config.group);
  expect_refused({{"group", "head"}}, "group: \"head\" has no =");
}

TEST(OptimizerSettings, AllReachTheOptimizer) {
  const Optimizer lion =
      make_optimizer(from_map({{"optimizer", "lion"}, {"beta1", "0.5"}, {"lion_beta2", "0.25"}}), 100);
  EXPECT_EQ(lion.kind, Optimizer::Kind::lion);
  EXPECT_EQ(lion.beta1, 0.5);
  EXPECT_EQ(lion.lion_beta2, 0.25);
  const Optimizer muon =
      make_optimizer(from_map({{"optimizer", "muon"}, {"muon_momentum", "0.5"}, {"adam_rate", "0.25"}}), 100);
  EXPECT_EQ(muon.muon_momentum, 0.5);
  EXPECT_EQ(muon.adam_rate, 0.25);
  const Schedule wsd =
      make_optimizer(from_map({{"schedule", "wsd"}, {"warmup_steps", "5"}, {"decay_steps", "20"}}), 100).schedule;
  EXPECT_EQ(wsd.kind, Schedule::Kind::wsd);
  EXPECT_EQ(wsd.decay_steps, 20);
  EXPECT_EQ(wsd.warmup_steps, 5);
  EXPECT_EQ(wsd.total_steps, 100);
}

TEST(OptimizerSettings, DefaultsAreThoseOfTheOptimizer) {
  const Optimizer from_settings = make_optimizer({}, 100), plain;
  EXPECT_EQ(from_settings.lion_beta2, plain.lion_beta2);
  EXPECT_EQ(from_settings.muon_momentum, plain.muon_momentum);
  EXPECT_EQ(from_settings.adam_rate, plain.adam_rate);
  EXPECT_TRUE(from_settings.groups.empty());
  EXPECT_EQ(TrainConfig().ema_decay, 0);
}

TEST(OptimizerSettings, ValidCombinationsPass) {
  for (const ConfigMap& values : std::vector<ConfigMap>{
           {{"optimizer", "lion"}, {"beta1", "0.5"}, {"lion_beta2", "0.9"}},
           {{"optimizer", "adafactor"}, {"weight_decay", "0.1"}},
           {{"optimizer", "muon"}, {"beta1", "0.5"}, {"beta2", "0.5"}, {"epsilon", "0.5"}, {"adam_rate", "0.1"}},
           {{"optimizer", "sgd"}, {"group", "head/*=optimizer:momentum"}, {"momentum", "0.5"}},
           {{"group", "head/*=optimizer:lion"}, {"lion_beta2", "0.5"}},
           {{"schedule", "linear"}, {"warmup_steps", "10"}, {"end_learning_rate", "1e-5"}, {"steps", "100"}},
           {{"schedule", "inverse_sqrt"}, {"warmup_steps", "10"}},
           {{"schedule", "wsd"}, {"warmup_steps", "10"}, {"decay_steps", "90"}, {"steps", "100"}},
           {{"ema_decay", "0.999"}}})
    validate(from_map(values));
}

TEST(OptimizerSettings, SettingsWithoutEffectAreRejected) {
  expect_refused({{"lion_beta2", "0.5"}}, "lion_beta2: 0.5 has no effect with optimizer adamw; choose optimizer lion");
  expect_refused({{"optimizer", "lion"}, {"beta2", "0.5"}},
                 "beta2: 0.5 has no effect with optimizer lion; choose optimizer adam or adamw or muon");
  expect_refused({{"muon_momentum", "0.5"}}, "muon_momentum: 0.5 has no effect with optimizer adamw");
  expect_refused({{"optimizer", "lion"}, {"adam_rate", "0.5"}}, "adam_rate: 0.5 has no effect with optimizer lion");
  expect_refused({{"optimizer", "adafactor"}, {"beta1", "0.5"}}, "beta1: 0.5 has no effect with optimizer adafactor");
  expect_refused({{"decay_steps", "5"}}, "decay_steps: 5 has no effect with schedule cosine; choose schedule wsd");
  expect_refused({{"schedule", "inverse_sqrt"}, {"end_learning_rate", "1e-5"}},
                 "end_learning_rate: 1e-05 has no effect with schedule inverse_sqrt; choose schedule cosine");
  expect_refused(
      {{"schedule", "step"}, {"warmup_steps", "5"}},
      "warmup_steps: 5 has no effect with schedule step; choose schedule warmup_cosine, linear, inverse_sqrt");
  expect_refused({{"schedule", "wsd"}, {"warmup_steps", "20"}, {"decay_steps", "90"}, {"steps", "100"}},
                 "decay_steps: 90 and a warm-up of 20 steps are more than 100 steps; lower decay_steps or raise steps");
  expect_refused({{"schedule", "wsd"}, {"warmup_steps", "100"}, {"steps", "100"}},
                 "warmup_steps: a warm-up of 100 steps does not end within 100 steps");
  EXPECT_THROWS(from_map({{"ema_decay", "1"}}), Error, "ema_decay: \"1\" is not a number of at least 0 and below 1");
  EXPECT_THROWS(from_map({{"adam_rate", "0"}}), Error, "adam_rate: \"0\" is not a number above 0");
}

}  // namespace
}  // namespace lockstep
