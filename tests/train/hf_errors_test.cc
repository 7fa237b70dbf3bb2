// Hugging Face folders that are incomplete, damaged or of another kind: a message each, which names the file.
#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"
#include "base/throws.h"
#include "lockstep/hf.h"
#include "train/hf_folder.h"

namespace lockstep {
namespace {

class HuggingFaceErrors : public testing::Test {
 protected:
  HuggingFaceErrors() {
    save_hf(at("gpt2"), small_gpt2(), random_params(small_gpt2(), 1));
    save_hf(at("llama"), small_llama(), random_params(small_llama(), 2));
    gpt2_ = HfFolder::read(at("gpt2"));
    llama_ = HfFolder::read(at("llama"));
  }
  std::string at(const std::string& name) const { return dir_.path() + "/" + name; }

  // Expects the folder to be rejected with a message that has all these parts.
  void expect_rejected(const HfFolder& folder, const std::vector<std::string>& parts) {
    const std::string path = at("wrong" + std::to_string(++count_));
    folder.write(path);
    for (const std::string& part : parts) EXPECT_THROWS(load_hf(path), Error, part);
    EXPECT_THROWS(load_hf(path), Error, path);
  }
  // Expects config.json with another value of a key to be rejected.
  void expect_config_rejected(HfFolder folder, const std::string& key, const nlohmann::json& value,
                              const std::vector<std::string>& parts) {
    folder.config[key] = value;
    expect_rejected(folder, parts);
  }

  const TempDir dir_;
  HfFolder gpt2_, llama_;
  int count_ = 0;
};

TEST_F(HuggingFaceErrors, MissingTensors) {
  for (const HfFolder& folder : {gpt2_, llama_})
    for (const auto& [name, tensor] : folder.tensors) {
      HfFolder without = folder;
      without.tensors.erase(name);
      expect_rejected(without, {"import: the tensor \"", "is missing in ", "model.safetensors; "});
    }
  HfFolder without = llama_;
  without.tensors.erase("model.layers.1.self_attn.k_proj.weight");
  expect_rejected(without, {"the tensor \"model.layers.1.self_attn.k_proj.weight\" is missing in "});
}

TEST_F(HuggingFaceErrors, WrongShapes) {
  for (const HfFolder& folder : {gpt2_, llama_})
    for (const auto& [name, tensor] : folder.tensors) {
      HfFolder other = folder;
      Shape shape = tensor.type.shape;
      std::reverse(shape.begin(), shape.end());
      if (shape == tensor.type.shape) shape.push_back(1);
      other.set(name, {f32, shape});
      expect_rejected(other, {"import: \"" + name + "\" in ", "model.safetensors has shape " + to_string(shape)});
    }
}

TEST_F(HuggingFaceErrors, WrongElementTypes) {
  HfFolder other = gpt2_;
  other.set("transformer.ln_f.bias", {i32, {12}});
  expect_rejected(other, {"import: \"transformer.ln_f.bias\" in ",
                          "has elements of type I32; weights must be F32, F16 or "
                          "BF16"});
}

TEST_F(HuggingFaceErrors, UnknownTensors) {
  HfFolder other = gpt2_;
  other.set("transformer.h.2.ln_1.weight", {f32, {12}});
  expect_rejected(other, {"import: ", " has the tensor \"transformer.h.2.ln_1.weight\", which the model of "});
  other.set("score.weight", {f32, {2, 12}});
  expect_rejected(other, {" has the tensor \"score.weight\" and 1 other tensor, which the model of "});
}

TEST_F(HuggingFaceErrors, UntiedCopiesOfTiedWeights) {
  HfFolder other = gpt2_;
  other.set("lm_head.weight", {f32, {23, 12}});
  expect_rejected(other,
                  {"import: \"lm_head.weight\" in ",
                   "differs from \"transformer.wte.weight\", but config.json has \"tie_word_embeddings\": true"});
}

TEST_F(HuggingFaceErrors, MissingFiles) {
  EXPECT_THROWS(load_hf(at("nothing")), Error, "nothing does not exist; give the folder of a Hugging Face model");
  FileSystem& files = FileSystem::real();
  files.make_dirs(at("empty"));
  EXPECT_THROWS(load_hf(at("empty")), Error, "empty has no config.json");
  write_text_file(at("empty/config.json"), gpt2_.config.dump());
  EXPECT_THROWS(load_hf(at("empty")), Error, "empty has neither model.safetensors nor model.safetensors.index.json");
  write_text_file(at("empty/pytorch_model.bin"), "x");
  EXPECT_THROWS(load_hf(at("empty")), Error, "has its weights in pytorch_model.bin");
}

TEST_F(HuggingFaceErrors, TruncatedFiles) {
  const std::vector<uint8_t> whole = FileSystem::real().read_file(at("gpt2/model.safetensors"));
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    FileSystem::real().write(at("gpt2/model.safetensors"), std::span(whole).first(size));
    EXPECT_THROWS(load_hf(at("gpt2")), Error, "safetensors: " + at("gpt2/model.safetensors"));
  }
}

TEST_F(HuggingFaceErrors, WrongShards) {
  const nlohmann::json index = llama_.write_shards(at("shards"), 2);
  const std::string index_path = at("shards/model.safetensors.index.json");
  const auto with_index = [&](const nlohmann::json& json) { write_text_file(index_path, json.dump()); };
  nlohmann::json other = index;
  other["weight_map"]["model.norm.weight"] = "model-00003-of-00002.safetensors";
  with_index(other);
  EXPECT_THROWS(load_hf(at("shards")), Error,
                "import: the shard " + at("shards") +
                    "/model-00003-of-00002.safetensors is missing; it has \"model.norm.weight\": download it");
  for (const nlohmann::json& file : std::vector<nlohmann::json>{"../gpt2/model.safetensors", "", 3, nullptr}) {
    other["weight_map"]["model.norm.weight"] = file;
    with_index(other);
    EXPECT_THROWS(load_hf(at("shards")), Error, "which is not the name of a file in the folder");
  }
  other = index;
  other["weight_map"]["model.norm.extra"] = HfFolder::shard_name(0, 2);
  with_index(other);
  EXPECT_THROWS(load_hf(at("shards")), Error, "places \"model.norm.extra\" in ");
  for (const nlohmann::json& wrong :
       std::vector<nlohmann::json>{nlohmann::json::array(), 3, nlohmann::json::object(), {{"weight_map", 3}}}) {
    with_index(wrong);
    EXPECT_THROWS(load_hf(at("shards")), Error, "import: " + index_path + " has no \"weight_map\"");
  }
  write_text_file(index_path, "{");
  EXPECT_THROWS(load_hf(at("shards")), JsonSyntaxError, index_path);
}

TEST_F(HuggingFaceErrors, OtherKindsOfModels) {
  expect_config_rejected(gpt2_, "model_type", "bert",
                         {"has model_type \"bert\"; Lockstep reads gpt2, llama and mistral"});
  expect_config_rejected(gpt2_, "model_type", nullptr, {"has model_type \"\""});
  expect_config_rejected(gpt2_, "model_type", 3, {"has \"model_type\": 3; it must be a string"});
  expect_config_rejected(gpt2_, "activation_function", "relu",
                         {"has \"activation_function\": \"relu\", which Lockstep"});
  expect_config_rejected(gpt2_, "scale_attn_weights", false,
                         {"has \"scale_attn_weights\": false, which Lockstep does"});
  expect_config_rejected(gpt2_, "scale_attn_by_inverse_layer_idx", true, {"\"scale_attn_by_inverse_layer_idx\": true"});
  expect_config_rejected(gpt2_, "add_cross_attention", true, {"\"add_cross_attention\": true"});
  expect_config_rejected(gpt2_, "quantization_config", nlohmann::json::object(),
                         {"has \"quantization_config\": {}, which Lockstep does not compute; use the model before"});
  expect_config_rejected(llama_, "hidden_act", "gelu",
                         {"has \"hidden_act\": \"gelu\", which Lockstep does not compute"});
  expect_config_rejected(llama_, "mlp_bias", true, {"attention_bias and mlp_bias must be equal"});
  expect_config_rejected(llama_, "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}},
                         {"has \"rope_scaling\": ", "only models with plain rotary positions can be imported"});
  expect_config_rejected(llama_, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}, {"has \"rope_scaling\": "});
  expect_config_rejected(llama_, "rope_parameters", {{"rope_type", "yarn"}}, {"has \"rope_parameters\": "});
  expect_config_rejected(llama_, "partial_rotary_factor", 0.5, {"has \"partial_rotary_factor\": 0.5"});
  expect_config_rejected(llama_, "sliding_window", 4, {"has \"sliding_window\": 4, which Lockstep does not compute"});
}

TEST_F(HuggingFaceErrors, WrongSizes) {
  for (const char* key : {"vocab_size", "n_embd", "n_layer", "n_head"}) {
    for (const nlohmann::json& value : std::vector<nlohmann::json>{0, -1, 1.5, "12", int64_t{1} << 40, nullptr})
      expect_config_rejected(gpt2_, key, value, {key});
    HfFolder without = gpt2_;
    without.config.erase(key);
    expect_rejected(without, {fmt::format("has no \"{}\"; the file is incomplete", key)});
  }
  expect_config_rejected(llama_, "hidden_size", 19, {"import: "});
  expect_config_rejected(llama_, "num_key_value_heads", 5, {"does not describe a model: "});
  expect_config_rejected(llama_, "num_hidden_layers", 3,
                         {"the tensor \"model.layers.2.input_layernorm.weight\" is missing"});
  expect_config_rejected(llama_, "rms_norm_eps", -1, {"has \"rms_norm_eps\": -1; it must be a number above 0"});
  expect_config_rejected(llama_, "tie_word_embeddings", "no", {"it must be true or false"});
  EXPECT_THROWS(load_hf(at("gpt2"), {.context = 5}), Error,
                "has a context of 11 tokens with learned positions, which cannot become 5");
  EXPECT_THROWS(load_hf(at("llama"), {.context = 20}), Error, "has a context of 19 tokens, which cannot become 20");
  EXPECT_THROWS(load_hf(at("llama"), {.context = -1}), Error, "the context is -1");
}

TEST_F(HuggingFaceErrors, ConfigurationsThatAreNotJson) {
  write_text_file(at("gpt2/config.json"), "{\"model_type\": ");
  EXPECT_THROWS(load_hf(at("gpt2")), JsonSyntaxError, at("gpt2/config.json"));
  write_text_file(at("gpt2/config.json"), "[]");
  EXPECT_THROWS(load_hf(at("gpt2")), Error, "config.json is not a JSON object");
}

TEST_F(HuggingFaceErrors, ModelsThatNoFamilyDescribes) {
  GptConfig config = small_llama();
  config.norm = GptConfig::Norm::layer;
  EXPECT_THROWS(save_hf(at("new"), config, random_params(config, 3)), Error,
                "export: the model has layer norms, rotary positions and a feed-forward layer of swiglu; ");
  config = small_gpt2();
  config.kv_heads = 1;
  EXPECT_THROWS(save_hf(at("new"), config, random_params(config, 3)), Error,
                "export: the model has 1 heads of keys and values for 3 of queries");
  config = small_gpt2();
  config.head_width = 6;
  EXPECT_THROWS(save_hf(at("new"), config, random_params(config, 3)), Error,
                "export: 3 heads of 6 features do not make the width 12");
  EXPECT_THROWS(save_hf(at("new"), small_gpt2(), random_params(small_llama(), 3)), Error,
                "export: the parameter token_embedding does not fit the configuration");
  EXPECT_THROWS(save_hf(at("new"), small_gpt2(), random_params(small_gpt2(), 3), {.dtype = i32}), Error,
                "export: the element type is i32; choose f32, bf16 or f16");
  EXPECT_THROWS(save_hf("", small_gpt2(), random_params(small_gpt2(), 3)), Error, "the name of the folder is empty");
  EXPECT_FALSE(FileSystem::real().exists(at("new")));
}

TEST_F(HuggingFaceErrors, FoldersAreNotOverwritten) {
  EXPECT_THROWS(save_hf(at("gpt2"), small_gpt2(), random_params(small_gpt2(), 3)), Error,
                "export: the folder " + at("gpt2") + " is not empty; choose another one, or remove it");
  FileSystem::real().make_dirs(at("empty"));
  save_hf(at("empty/"), small_gpt2(), random_params(small_gpt2(), 3));
  expect_equal_params(load_hf(at("empty")).params, random_params(small_gpt2(), 3));
}

TEST_F(HuggingFaceErrors, WrongWeightsLeaveNothing) {
  Gpt params = random_params(small_gpt2(), 3);
  params.norm.scale = full({12}, std::numeric_limits<float>::infinity());
  EXPECT_THROWS(save_hf(at("new"), small_gpt2(), params), Error,
                "export: \"transformer.ln_f.weight\" has the value inf, which is not finite");
  params.norm.scale = full({12}, 70000.f);
  EXPECT_THROWS(save_hf(at("new"), small_gpt2(), params, {.dtype = f16}), Error,
                "export: \"transformer.ln_f.weight\" has the value 70000, which f16 cannot represent");
  EXPECT_EQ(FileSystem::real().list(dir_.path()), (std::vector<std::string>{"gpt2", "llama"}));
  save_hf(at("new"), small_gpt2(), params, {.dtype = bf16});
}

}  // namespace
}  // namespace lockstep
