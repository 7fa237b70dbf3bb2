#include "train/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/json.h"
#include "base/names.h"
#include "base/printable.h"

namespace lockstep::detail {
namespace {

using HfJson = nlohmann::json;

// Those of config.def.
constexpr int64_t kMaxExtent = int64_t{1} << 30, kMaxHidden = int64_t{1} << 24, kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 1000, kMaxHeads = 1000;

// The values of config.json. Absent keys and null are the same, as in transformers.
class HfValues {
 public:
  HfValues(const HfJson& json, std::string path) : json_(json), path_(std::move(path)) {}

  const HfJson* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }

  int64_t integer(const char* key, std::optional<int64_t> absent, int64_t high = kMaxExtent) const {
    const HfJson* value = find(key);
    if (!value && absent) return *absent;
    if (!value) throw_error("import: {} has no \"{}\"; the file is incomplete", path_, key);
    try {
      return integer_in(*value, key, 1, high);
    } catch (const Error& error) {
      throw_error("import: {}: {}", path_, error.what());
    }
  }

  double number(const char* key, double absent) const {
    const HfJson* value = find(key);
    if (!value) return absent;
    if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>()))
      throw_error("import: {} has \"{}\": {}; it must be a number above 0", path_, key, printable_json(*value));
    return value->get<double>();
  }

  bool boolean(const char* key, bool absent) const {
    const HfJson* value = find(key);
    if (!value) return absent;
    if (!value->is_boolean())
      throw_error("import: {} has \"{}\": {}; it must be true or false", path_, key, printable_json(*value));
    return value->get<bool>();
  }

  std::string text(const char* key, const std::string& absent) const {
    const HfJson* value = find(key);
    if (!value) return absent;
    if (!value->is_string())
      throw_error("import: {} has \"{}\": {}; it must be a string", path_, key, printable_json(*value));
    return value->get<std::string>();
  }

  // Throws Error unless a switch has this value.
  void require(const char* key, bool wanted, bool absent) const {
    if (boolean(key, absent) != wanted)
      throw_error("import: {} has \"{}\": {}, which Lockstep does not compute", path_, key, !wanted);
  }

  [[noreturn]] void reject(const char* key, const std::string& remedy) const {
    const HfJson* value = find(key);
    throw_error("import: {} has \"{}\": {}, which Lockstep does not compute; {}", path_, key,
                value ? printable_json(*value) : "null", remedy);
  }

  const std::string& path() const { return path_; }

 private:
  const HfJson& json_;
  std::string path_;
};

// Rejects rotary positions other than the plain ones. Returns the base of the wavelengths.
double rope_base_of(const HfValues& values) {
  double base = values.number("rope_theta", 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const HfJson* rope = values.find(key);
    if (!rope) continue;
    if (!rope->is_object()) values.reject(key, "it must be an object");
    const HfValues inside(*rope, fmt::format("{}: {}", values.path(), key));
    const std::string type = inside.text("rope_type", inside.text("type", "default"));
    if (type != "default") values.reject(key, "only models with plain rotary positions can be imported");
    if (inside.find("partial_rotary_factor") && inside.number("partial_rotary_factor", 1) != 1)
      values.reject(key, "only rotary positions of whole heads can be imported");
    base = inside.number("rope_theta", base);
  }
  if (values.find("partial_rotary_factor") && values.number("partial_rotary_factor", 1) != 1)
    values.reject("partial_rotary_factor", "only rotary positions of whole heads can be imported");
  return base;
}

GptConfig gpt2_model(const HfValues& values, int64_t context) {
  GptConfig out;
  out.vocabulary = values.integer("vocab_size", {});
  out.context = values.integer("n_positions", values.integer("n_ctx", 1024));
  out.width = values.integer("n_embd", {}, kMaxWidth);
  out.layers = values.integer("n_layer", {}, kMaxLayers);
  out.heads = values.integer("n_head", {}, kMaxHeads);
  out.hidden = values.integer("n_inner", 4 * out.width, kMaxHidden);
  out.norm_epsilon = values.number("layer_norm_epsilon", 1e-5);
  out.tied = values.boolean("tie_word_embeddings", true);
  const std::string activation = values.text("activation_function", "gelu_new");
  if (activation == "gelu")
    out.feed_forward = GptConfig::FeedForward::gelu_exact;
  else if (activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu_fast")
    values.reject("activation_function", "it must be gelu_new, gelu_pytorch_tanh, gelu_fast or gelu");
  values.require("scale_attn_weights", true, true);
  values.require("scale_attn_by_inverse_layer_idx", false, false);
  values.require("add_cross_attention", false, false);
  if (context > 0 && context != out.context)
    throw_error(
        "import: {} has a context of {} tokens with learned positions, which cannot become {}; leave out --context",
        values.path(), out.context, context);
  return out;
}

GptConfig llama_model(const HfValues& values, int64_t context) {
  GptConfig out{.norm = GptConfig::Norm::rms,
                .position = GptConfig::Position::rotary,
                .feed_forward = GptConfig::FeedForward::swiglu};
  out.vocabulary = values.integer("vocab_size", {});
  out.context = values.integer("max_position_embeddings", 2048);
  out.width = values.integer("hidden_size", {}, kMaxWidth);
  out.layers = values.integer("num_hidden_layers", {}, kMaxLayers);
  out.heads = values.integer("num_attention_heads", {}, kMaxHeads);
  out.kv_heads = values.integer("num_key_value_heads", out.heads, kMaxHeads);
  out.hidden = values.integer("intermediate_size", {}, kMaxHidden);
  out.head_width = values.integer("head_dim", std::max<int64_t>(out.width / out.heads, 1), kMaxWidth);
  out.norm_epsilon = values.number("rms_norm_eps", 1e-6);
  out.rope_base = rope_base_of(values);
  out.tied = values.boolean("tie_word_embeddings", false);
  if (values.text("hidden_act", "silu") != "silu") values.reject("hidden_act", "it must be silu");
  out.bias = values.boolean("attention_bias", false);
  if (values.boolean("mlp_bias", false) != out.bias)
    values.reject("mlp_bias", "attention_bias and mlp_bias must be equal");
  if (context > out.context)
    throw_error("import: {} has a context of {} tokens, which cannot become {}; give --context of at most {}",
                values.path(), out.context, context, out.context);
  if (context > 0) out.context = context;
  if (values.find("sliding_window") && values.integer("sliding_window", {}) < out.context)
    values.reject("sliding_window", fmt::format("give --context of at most {}, where the window has no effect",
                                                values.integer("sliding_window", {})));
  return out;
}

// A byte as the character that stands for it in the vocabulary of byte-level encodings: itself if it is printable, else
// one from U+0100 on.
std::vector<std::string> byte_characters() {
  const auto utf8 = [](uint32_t code) {
    std::string out;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
    return out;
  };
  std::vector<std::string> out;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    out.push_back(utf8(printable ? byte : next++));
  }
  return out;
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& path, int64_t context) {
  const HfJson json = parse_json<HfJson>(text, path);
  if (!json.is_object()) throw_error("import: {} is not a JSON object; give the folder of a Hugging Face model", path);
  const HfValues values(json, path);
  const std::string type = values.text("model_type", "");
  const bool llama = type == "llama" || type == "mistral";
  if (type != "gpt2" && !llama)
    throw_error("import: {} has model_type \"{}\"; Lockstep reads gpt2, llama and mistral", path, printable(type));
  if (values.find("quantization_config")) values.reject("quantization_config", "use the model before quantization");
  HfConfig out{llama ? HfFamily::llama : HfFamily::gpt2,
               llama ? llama_model(values, context) : gpt2_model(values, context)};
  try {
    check(out.model);
  } catch (const Error& error) {
    throw_error("import: {} does not describe a model: {}", path, error.what());
  }
  return out;
}

HfFamily hf_family(const GptConfig& config) {
  const nn::TransformerConfig blocks = config.blocks();
  const bool rms = config.norm == GptConfig::Norm::rms, rotary = config.position == GptConfig::Position::rotary;
  const bool swiglu = config.feed_forward == GptConfig::FeedForward::swiglu;
  if (rms && rotary && swiglu) return HfFamily::llama;
  if (rms || rotary || swiglu)
    throw_error(
        "export: the model has {} norms, {} positions and a feed-forward layer of {}; Hugging Face's Llama has RMS "
        "norms, "
        "rotary positions and swiglu, GPT-2 has layer norms, learned positions and gelu: train one of these",
        rms ? "RMS" : "layer", rotary ? "rotary" : "learned", swiglu ? "swiglu" : "gelu");
  if (blocks.kv_heads != blocks.heads)
    throw_error(
        "export: the model has {} heads of keys and values for {} of queries, which Hugging Face's GPT-2 does not "
        "have; "
        "train with equal numbers, or as Llama",
        blocks.kv_heads, blocks.heads);
  if (blocks.head_width * blocks.heads != config.width)
    throw_error(
        "export: {} heads of {} features do not make the width {}, which Hugging Face's GPT-2 requires; train without "
        "head_width, or as Llama",
        blocks.heads, blocks.head_width, config.width);
  return HfFamily::gpt2;
}

std::string encode_hf_config(const GptConfig& config, HfFamily family, DType dtype, const Tokenizer* tokenizer) {
  const nn::TransformerConfig blocks = config.blocks();
  nlohmann::ordered_json json;
  const bool llama = family == HfFamily::llama;
  json["architectures"] = {llama ? "LlamaForCausalLM" : "GPT2LMHeadModel"};
  json["model_type"] = llama ? "llama" : "gpt2";
  json["vocab_size"] = config.vocabulary;
  if (llama) {
    json["hidden_size"] = config.width;
    json["intermediate_size"] = blocks.hidden;
    json["num_hidden_layers"] = config.layers;
    json["num_attention_heads"] = blocks.heads;
    json["num_key_value_heads"] = blocks.kv_heads;
    json["head_dim"] = blocks.head_width;
    json["max_position_embeddings"] = config.context;
    json["hidden_act"] = "silu";
    json["rms_norm_eps"] = config.norm_epsilon;
    // Older versions of transformers read rope_theta, newer ones rope_parameters.
    json["rope_theta"] = config.rope_base;
    json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config.rope_base}};
    json["attention_bias"] = config.bias;
    json["mlp_bias"] = config.bias;
    json["attention_dropout"] = 0.0;
  } else {
    json["n_positions"] = config.context;
    json["n_embd"] = config.width;
    json["n_layer"] = config.layers;
    json["n_head"] = blocks.heads;
    json["n_inner"] = blocks.hidden;
    json["activation_function"] = config.feed_forward == GptConfig::FeedForward::gelu_tanh ? "gelu_new" : "gelu";
    json["layer_norm_epsilon"] = config.norm_epsilon;
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = 0.0;
  }
  json["tie_word_embeddings"] = config.tied;
  json["use_cache"] = true;
  const std::optional<int32_t> end = tokenizer ? tokenizer->end_of_text() : std::nullopt;
  json["bos_token_id"] = end ? nlohmann::ordered_json(*end) : nlohmann::ordered_json();
  json["eos_token_id"] = json["bos_token_id"];
  json["torch_dtype"] = dtype == f32 ? "float32" : dtype == bf16 ? "bfloat16" : "float16";
  return json.dump(2) + "\n";
}

std::string encode_generation_config(const Tokenizer* tokenizer) {
  nlohmann::ordered_json json;
  json["do_sample"] = true;
  if (const std::optional<int32_t> end = tokenizer ? tokenizer->end_of_text() : std::nullopt)
    json["bos_token_id"] = json["eos_token_id"] = json["pad_token_id"] = *end;
  return json.dump(2) + "\n";
}

std::string encode_hf_tokenizer(const Tokenizer& tokenizer) {
  if (tokenizer.name() != "bytes" && tokenizer.name() != "chars") return tokenizer.to_json();
  const bool bytes = tokenizer.name() == "bytes";
  const std::vector<std::string> characters = byte_characters();
  HfJson vocabulary = HfJson::object();
  for (int64_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const std::string_view token = tokenizer.token_bytes(static_cast<int32_t>(id));
    const bool one = bytes && token.size() == 1;
    vocabulary[one ? characters[static_cast<uint8_t>(token[0])] : std::string(token)] = id;
  }
  HfJson json;
  json["version"] = "1.0";
  for (const char* key : {"truncation", "padding"}) json[key] = nullptr;
  json["added_tokens"] = HfJson::array();
  json["normalizer"] = nullptr;
  const HfJson level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  json["pre_tokenizer"] = bytes ? level : HfJson();
  json["post_processor"] = nullptr;
  json["decoder"] = bytes ? level : HfJson{{"type", "Fuse"}};
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"vocab", vocabulary},
                   {"merges", HfJson::array()}};
  return json.dump() + "\n";
}

std::string encode_tokenizer_config(const Tokenizer& tokenizer, int64_t context) {
  nlohmann::ordered_json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["model_max_length"] = context;
  json["clean_up_tokenization_spaces"] = false;
  if (const std::optional<int32_t> end = tokenizer.end_of_text())
    json["bos_token"] = json["eos_token"] = std::string(tokenizer.token_bytes(*end));
  return json.dump(2) + "\n";
}

}  // namespace lockstep::detail
