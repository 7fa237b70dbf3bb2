// Hugging Face folders: what is written means the same to an independent implementation, and reads back equal.
#include "lockstep/hf.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/half.h"
#include "train/gpt_settings.h"
#include "train/hf_folder.h"
#include "train/hf_reference.h"

namespace lockstep {
namespace {

std::vector<int> some_tokens(int64_t count, int64_t vocabulary) {
  std::vector<int> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int>((5 * i * i + 3 * i + 1) % vocabulary));
  return out;
}

// Compares the logits of a model with those of a plain implementation that reads the folder.
void expect_reference_logits(const GptConfig& config, const Gpt& params, const std::string& dir) {
  const std::vector<int> tokens = some_tokens(9, config.vocabulary);
  const HfFolder folder = HfFolder::read(dir);
  const hf_reference::Rows wanted = folder.config.at("model_type") == "llama"
                                        ? hf_reference::llama_logits(folder, tokens)
                                        : hf_reference::gpt2_logits(folder, tokens);
  const std::vector<double> logits =
      apply(config, params, Array::from(std::vector<int32_t>(tokens.begin(), tokens.end()), {1, 9}), {})
          .to_vector<double>();
  ASSERT_EQ(logits.size(), wanted.size() * wanted[0].size());
  double spread = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double each = wanted[i / wanted[0].size()][i % wanted[0].size()];
    ASSERT_NEAR(logits[i], each, 1e-4 * (1 + std::abs(each))) << i;
    spread = std::max(spread, std::abs(each));
  }
  EXPECT_GT(spread, 0.5);
}

struct Variant {
  std::string name;
  GptConfig config;
};

std::vector<Variant> variants() {
  std::vector<Variant> out = {{"gpt2", small_gpt2()}, {"llama", small_llama()}};
  out.push_back({"gpt2_untied", small_gpt2()});
  out.back().config.tied = false;
  out.push_back({"gpt2_exact_gelu", small_gpt2()});
  out.back().config.feed_forward = GptConfig::FeedForward::gelu_exact;
  out.push_back({"llama_tied", small_llama()});
  out.back().config.tied = true;
  out.push_back({"llama_biases", small_llama()});
  out.back().config.bias = true;
  out.push_back({"llama_as_many_heads", small_llama()});
  out.back().config.kv_heads = 0;
  return out;
}

TEST(HuggingFace, FoldersHaveTheLogitsOfAPlainImplementation) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const TempDir dir;
    const Gpt params = random_params(variant.config, 5);
    save_hf(dir.path() + "/x", variant.config, params);
    expect_reference_logits(variant.config, params, dir.path() + "/x");
  }
}

TEST(HuggingFace, FoldersReadBackEqual) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const TempDir dir;
    const Gpt params = random_params(variant.config, 6);
    save_hf(dir.path() + "/x", variant.config, params);
    const HfModel model = load_hf(dir.path() + "/x");
    expect_equal_params(model.params, params);
    EXPECT_EQ(gpt_settings_of(model.config), gpt_settings_of(variant.config));
    expect_reference_logits(model.config, model.params, dir.path() + "/x");
    EXPECT_EQ(model.tokenizer, nullptr);
    ASSERT_EQ(model.notes.size(), 1u);
    EXPECT_NE(model.notes[0].find("has neither tokenizer.json nor merges.txt"), std::string::npos);
  }
}

TEST(HuggingFace, ModelsWithoutBiasesGetZerosInGpt2) {
  const TempDir dir;
  GptConfig config = small_gpt2();
  config.bias = false;
  const Gpt params = random_params(config, 7);
  save_hf(dir.path() + "/x", config, params);
  expect_reference_logits(config, params, dir.path() + "/x");
  const HfModel model = load_hf(dir.path() + "/x");
  EXPECT_TRUE(model.config.bias);
  EXPECT_EQ(model.params.blocks[1].attention.qkv.w.to_vector<float>(),
            params.blocks[1].attention.qkv.w.to_vector<float>());
  EXPECT_EQ(model.params.blocks[1].attention.qkv.b->to_vector<float>(), std::vector<float>(36));
  expect_reference_logits(model.config, model.params, dir.path() + "/x");
}

TEST(HuggingFace, HalfPrecisionIsRoundedAndReadBack) {
  for (const GptConfig& config : {small_gpt2(), small_llama()})
    for (const DType dtype : {bf16, f16}) {
      const TempDir dir;
      const Gpt params = random_params(config, 8);
      save_hf(dir.path() + "/x", config, params, {.dtype = dtype});
      const Gpt rounded = tree_map([&](const Array& a) { return astype(astype(a, dtype), f32); }, params);
      expect_equal_params(load_hf(dir.path() + "/x").params, rounded);
      const nlohmann::json written = HfFolder::read(dir.path() + "/x").config;
      EXPECT_EQ(written.at("torch_dtype"), dtype == bf16 ? "bfloat16" : "float16");
    }
}

TEST(HuggingFace, ShardsAndNamesWithoutPrefixAreRead) {
  for (const GptConfig& config : {small_gpt2(), small_llama()}) {
    const TempDir dir;
    const Gpt params = random_params(config, 9);
    save_hf(dir.path() + "/x", config, params);
    HfFolder folder = HfFolder::read(dir.path() + "/x");
    folder.write_shards(dir.path() + "/shards", 3);
    expect_equal_params(load_hf(dir.path() + "/shards").params, params);
    folder.remove_prefix(config.tied ? "transformer." : "model.");
    folder.write(dir.path() + "/bare");
    expect_equal_params(load_hf(dir.path() + "/bare").params, params);
  }
}

TEST(HuggingFace, BuffersOfOldVersionsAreIgnored) {
  const TempDir dir;
  const Gpt params = random_params(small_gpt2(), 10);
  save_hf(dir.path() + "/x", small_gpt2(), params);
  HfFolder folder = HfFolder::read(dir.path() + "/x");
  folder.set("transformer.h.0.attn.bias", {u8, {1, 1, 11, 11}});
  folder.set("transformer.h.1.attn.masked_bias", {f32, {}});
  // A tied output layer that is stored too.
  folder.tensors["lm_head.weight"] = folder.tensors["transformer.wte.weight"];
  folder.write(dir.path() + "/old");
  expect_equal_params(load_hf(dir.path() + "/old").params, params);
}

TEST(HuggingFace, MistralWithoutWindowIsLlama) {
  const TempDir dir;
  const Gpt params = random_params(small_llama(), 11);
  save_hf(dir.path() + "/x", small_llama(), params);
  HfFolder folder = HfFolder::read(dir.path() + "/x");
  folder.config["model_type"] = "mistral";
  folder.config["sliding_window"] = nullptr;
  folder.write(dir.path() + "/none");
  expect_equal_params(load_hf(dir.path() + "/none").params, params);
  folder.config["sliding_window"] = 8;
  folder.write(dir.path() + "/window");
  EXPECT_THROWS(load_hf(dir.path() + "/window"), Error,
                "config.json has \"sliding_window\": 8, which Lockstep does not compute; give --context of at most 8");
  const HfModel shorter = load_hf(dir.path() + "/window", {.context = 8});
  EXPECT_EQ(shorter.config.context, 8);
  expect_equal_params(shorter.params, params);
}

TEST(HuggingFace, RotaryParametersOfNewVersionsAreRead) {
  const TempDir dir;
  save_hf(dir.path() + "/x", small_llama(), random_params(small_llama(), 12));
  HfFolder folder = HfFolder::read(dir.path() + "/x");
  folder.config.erase("rope_theta");
  folder.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1234.5}};
  folder.write(dir.path() + "/new");
  EXPECT_EQ(load_hf(dir.path() + "/new").config.rope_base, 1234.5);
  folder.config.erase("rope_parameters");
  folder.config["rope_scaling"] = nullptr;
  folder.write(dir.path() + "/absent");
  EXPECT_EQ(load_hf(dir.path() + "/absent").config.rope_base, 10000);
}

TEST(HuggingFace, TokenizersTravel) {
  const std::string_view corpus = "the cat and the dog; \u00e4\u20ac";
  GptConfig config = small_gpt2();
  config.vocabulary = 300;
  const Gpt params = random_params(config, 13);
  for (const TokenizerPtr& tokenizer : {byte_tokenizer(), char_tokenizer(corpus), train_tokenizer({&corpus, 1}, 270)}) {
    SCOPED_TRACE(tokenizer->name());
    const TempDir dir;
    save_hf(dir.path() + "/x", config, params, {.tokenizer = tokenizer.get()});
    const HfModel model = load_hf(dir.path() + "/x");
    ASSERT_TRUE(model.tokenizer);
    EXPECT_TRUE(model.notes.empty());
    EXPECT_EQ(model.tokenizer->encode("the cat \u20ac"), tokenizer->encode("the cat \u20ac"));
    EXPECT_EQ(model.tokenizer->vocabulary(), tokenizer->vocabulary());
  }
}

TEST(HuggingFace, BytesAreWrittenAsByteLevelEncoding) {
  const TempDir dir;
  GptConfig config = small_gpt2();
  config.vocabulary = 256;
  save_hf(dir.path() + "/x", config, random_params(config, 14), {.tokenizer = byte_tokenizer().get()});
  FileSystem::real().remove(dir.path() + "/x/lockstep_tokenizer.json");
  const HfModel model = load_hf(dir.path() + "/x");
  ASSERT_TRUE(model.tokenizer) << model.notes[0];
  const std::string text = "any\n bytes\x01 \u00e4\u20ac\U0001f600";
  EXPECT_EQ(model.tokenizer->encode(text), byte_tokenizer()->encode(text));
}

TEST(HuggingFace, UnreadableTokenizersAreNoted) {
  const TempDir dir;
  const Gpt params = random_params(small_gpt2(), 15);
  save_hf(dir.path() + "/x", small_gpt2(), params);
  write_text_file(dir.path() + "/x/tokenizer.json", R"({"model": {"type": "Unigram"}})");
  const HfModel model = load_hf(dir.path() + "/x");
  expect_equal_params(model.params, params);
  EXPECT_EQ(model.tokenizer, nullptr);
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_TRUE(model.notes[0].starts_with("the model has no tokenizer: ")) << model.notes[0];
}

TEST(HuggingFace, SettingsDescribeAModelCompletely) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const ConfigMap settings = gpt_settings_of(variant.config);
    const GptConfig read = gpt_config_of(from_map(settings), 7);
    EXPECT_EQ(gpt_settings_of(read), settings);
    EXPECT_EQ(read.vocabulary, variant.config.vocabulary);
    EXPECT_EQ(read.tied, variant.config.tied);
    EXPECT_EQ(read.rope_base, variant.config.rope_base);
  }
}

}  // namespace
}  // namespace lockstep
