// Settings of language models, language models of checkpoints, and the tokenizers beside them.
#include "train/gpt_settings.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/throws.h"
#include "lockstep/create.h"
#include "train/hf_folder.h"

namespace lockstep {
namespace {

TrainConfig gpt_run(const ConfigMap& values) {
  ConfigMap all = values;
  all["model"] = "gpt";
  return from_map(all);
}

TEST(GptSettings, SizesHaveNames) {
  const GptConfig plain = gpt_config_of(gpt_run({}), 65);
  EXPECT_EQ(plain.vocabulary, 65);
  EXPECT_EQ(plain.layers, gpt_config("char").layers);
  EXPECT_EQ(plain.width, gpt_config("char").width);
  EXPECT_EQ(plain.bias, gpt_config("char").bias);
  EXPECT_EQ(plain.feed_forward, gpt_config("char").feed_forward);
  const GptConfig large = gpt_config_of(gpt_run({{"size", "124m"}}), 50257);
  EXPECT_EQ(large.width, 768);
  EXPECT_EQ(large.vocabulary, 50257);
}

TEST(GptSettings, ValuesOverrideTheSize) {
  const GptConfig config = gpt_config_of(gpt_run({{"size", "char"},
                                                  {"layers", "3"},
                                                  {"heads", "4"},
                                                  {"kv_heads", "2"},
                                                  {"width", "32"},
                                                  {"context", "48"},
                                                  {"hidden", "40"},
                                                  {"head_width", "6"},
                                                  {"vocabulary", "304"},
                                                  {"norm", "rms"},
                                                  {"position", "rotary"},
                                                  {"feed_forward", "swiglu"},
                                                  {"bias", "on"},
                                                  {"tied", "off"},
                                                  {"rope_base", "500"},
                                                  {"norm_epsilon", "0.001"},
                                                  {"dropout", "0.25"}}),
                                         300);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.width, 32);
  EXPECT_EQ(config.context, 48);
  EXPECT_EQ(config.hidden, 40);
  EXPECT_EQ(config.head_width, 6);
  EXPECT_EQ(config.vocabulary, 304);
  EXPECT_EQ(config.norm, GptConfig::Norm::rms);
  EXPECT_EQ(config.position, GptConfig::Position::rotary);
  EXPECT_EQ(config.feed_forward, GptConfig::FeedForward::swiglu);
  EXPECT_TRUE(config.bias);
  EXPECT_FALSE(config.tied);
  EXPECT_EQ(config.rope_base, 500);
  EXPECT_EQ(config.norm_epsilon, 0.001);
  EXPECT_EQ(config.dropout, 0.25);
}

TEST(GptSettings, WrongValuesAreRejected) {
  EXPECT_THROWS(gpt_config_of(gpt_run({{"vocabulary", "64"}}), 65), Error,
                "vocabulary: 64 is below the 65 tokens of the tokenizer; set vocabulary to at least 65, or to 0");
  EXPECT_THROWS(gpt_config_of(gpt_run({{"norm", "rsm"}}), 65), Error, "norm: unknown value \"rsm\"");
  EXPECT_THROWS(gpt_config_of(gpt_run({{"tied", "yes"}}), 65), Error, "tied: unknown value \"yes\"");
  EXPECT_THROWS(gpt_config_of(gpt_run({{"kv_heads", "4"}}), 65), Error, "kv_heads");
}

TEST(GptSettings, ARunCanStartFromAModel) {
  const ConfigMap saved = gpt_settings_of(small_llama());
  TrainConfig config;
  config.model = "gpt";
  config.batch_size = 7;
  config.layers = 2;
  const TrainConfig joined = with_model_of(config, saved);
  EXPECT_EQ(joined.batch_size, 7);
  EXPECT_EQ(gpt_settings_of(gpt_config_of(joined, 23)), saved);
  config.layers = 3;
  EXPECT_THROWS(with_model_of(config, saved), Error,
                "layers: 3 is given, but the model to start from has 2; remove --layers");
}

Checkpoint stored(const GptConfig& config, const Gpt& params, const std::string& prefix = "params/") {
  Checkpoint out{.config = gpt_settings_of(config)};
  for (const auto& [path, array] : tree_flatten(params)) out.arrays.emplace_back(prefix + path, array);
  return out;
}

TEST(StoredGpt, IsReadFromACheckpoint) {
  for (const GptConfig& config : {small_gpt2(), small_llama()}) {
    const Gpt params = random_params(config, 1);
    const StoredGpt read = gpt_of(stored(config, params), "x");
    expect_equal_params(read.params, params);
    EXPECT_EQ(gpt_settings_of(read.config), gpt_settings_of(config));
  }
}

TEST(StoredGpt, AverageWeightsArePreferred) {
  const Gpt params = random_params(small_gpt2(), 1), average = random_params(small_gpt2(), 2);
  Checkpoint checkpoint = stored(small_gpt2(), params);
  for (const auto& each : stored(small_gpt2(), average, "average/").arrays) checkpoint.arrays.push_back(each);
  expect_equal_params(gpt_of(checkpoint, "x").params, average);
}

TEST(StoredGpt, WrongCheckpointsAreRejected) {
  const Checkpoint good = stored(small_gpt2(), random_params(small_gpt2(), 1));
  Checkpoint wrong = good;
  wrong.config["model"] = "cnn";
  EXPECT_THROWS(gpt_of(wrong, "generate: x"), Error, "generate: x holds a model cnn, not a language model");
  wrong = good;
  wrong.arrays.erase(wrong.arrays.begin());
  EXPECT_THROWS(gpt_of(wrong, "x"), Error, "x has no matrix params/token_embedding");
  wrong = good;
  wrong.arrays.pop_back();
  EXPECT_THROWS(gpt_of(wrong, "x"), Error, "x has no params/norm/bias, which its settings require");
  wrong = good;
  wrong.arrays.back().second = zeros({5});
  EXPECT_THROWS(gpt_of(wrong, "x"), Error, "x has params/norm/bias as f32[5], but its settings require f32[12]");
}

TEST(RunTokenizer, IsStoredBesideTheCheckpoints) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  const std::string checkpoint = save_checkpoint(run, stored(small_gpt2(), random_params(small_gpt2(), 1)));
  EXPECT_EQ(load_run_tokenizer(run), nullptr);
  EXPECT_EQ(load_run_tokenizer(checkpoint), nullptr);
  store_run_tokenizer(run, *char_tokenizer("abc"));
  for (const std::string& path : {run, run + "/", checkpoint, checkpoint + "/"}) {
    const TokenizerPtr read = load_run_tokenizer(path);
    ASSERT_TRUE(read) << path;
    EXPECT_EQ(read->vocabulary(), 3) << path;
  }
  EXPECT_EQ(load_run_tokenizer(dir.path()), nullptr);
  write_text_file(run + "/tokenizer.json", "{");
  EXPECT_THROWS(load_run_tokenizer(checkpoint), JsonSyntaxError, run + "/tokenizer.json");
}

TEST(RunTokenizer, ARunStartsFromAFolder) {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  const std::string checkpoint = save_checkpoint(run, stored(small_llama(), random_params(small_llama(), 1)));
  EXPECT_EQ(start_from(gpt_run({}), run).tokenizer, "");
  store_run_tokenizer(run, *char_tokenizer("abc"));
  for (const std::string& path : {run, checkpoint}) {
    const TrainConfig started = start_from(gpt_run({{"batch_size", "5"}}), path);
    EXPECT_EQ(started.batch_size, 5);
    EXPECT_EQ(gpt_settings_of(gpt_config_of(started, 3)), gpt_settings_of(small_llama()));
    EXPECT_EQ(started.tokenizer, run + "/tokenizer.json");
  }
  EXPECT_EQ(start_from(gpt_run({{"tokenizer", "bytes"}}), run).tokenizer, "bytes");
  EXPECT_THROWS(start_from(gpt_run({}), dir.path()), Error,
                dir.path() + " is neither a checkpoint nor a folder of checkpoints; give the run to start from");
}

TEST(LoadOptions, OnlyWantedArraysAreRead) {
  const TempDir dir;
  Checkpoint checkpoint{.arrays = {{"params/w", ones({300})}, {"optimizer/w", zeros({300})}}};
  const std::string path = save_checkpoint(dir.path(), checkpoint, {.shard_bytes = 1});
  // The shard of the other array is damaged, which is not noticed.
  const CheckpointInfo info = inspect_checkpoint(path);
  ASSERT_EQ(info.shards.size(), 2u);
  const std::string other = path + "/" + info.entries[1].pieces[0].shard;
  ASSERT_EQ(info.entries[1].name, "optimizer/w");
  std::vector<uint8_t> bytes = FileSystem::real().read_file(other);
  bytes.back() ^= 1;
  FileSystem::real().write(other, bytes);
  const auto is_param = [](const std::string& name) { return name.starts_with("params/"); };
  const Checkpoint read = load_checkpoint(path, {.wanted = is_param});
  ASSERT_EQ(read.arrays.size(), 1u);
  EXPECT_EQ(read.arrays[0].first, "params/w");
  EXPECT_EQ(read.arrays[0].second.to_vector<float>(), std::vector<float>(300, 1));
  EXPECT_THROWS(load_checkpoint(path), Error, other);
}

}  // namespace
}  // namespace lockstep
