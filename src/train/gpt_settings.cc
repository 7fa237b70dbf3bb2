#include "train/gpt_settings.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/names.h"
#include "base/printable.h"
#include "lockstep/jit.h"
#include "lockstep/random.h"
#include "lockstep/tree.h"
#include "train/checkpoint_folder.h"
#include "train/manifest.h"
#include "train/run_file.h"

namespace lockstep {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// The settings of a model, and their names as text.
constexpr std::string_view kGptKeys[] = {
    "model",      "size", "layers",   "heads",        "kv_heads", "width", "context",   "hidden",      "head_width",
    "vocabulary", "norm", "position", "feed_forward", "bias",     "tied",  "rope_base", "norm_epsilon"};

template <class Enum>
struct EnumName {
  Enum value;
  std::string_view name;
};
constexpr EnumName<GptConfig::Norm> kNorms[] = {{GptConfig::Norm::layer, "layer"}, {GptConfig::Norm::rms, "rms"}};
constexpr EnumName<GptConfig::Position> kPositions[] = {{GptConfig::Position::learned, "learned"},
                                                        {GptConfig::Position::rotary, "rotary"}};
constexpr EnumName<GptConfig::FeedForward> kFeedForwards[] = {{GptConfig::FeedForward::gelu_exact, "gelu"},
                                                              {GptConfig::FeedForward::gelu_tanh, "gelu-tanh"},
                                                              {GptConfig::FeedForward::swiglu, "swiglu"}};
constexpr EnumName<bool> kSwitches[] = {{true, "on"}, {false, "off"}};

// Assigns the value of this name; keeps the value if the name is empty.
template <class Enum, size_t N>
void assign_named(Enum& value, const EnumName<Enum> (&names)[N], std::string_view key, const std::string& text) {
  if (text.empty()) return;
  std::vector<std::string> known;
  for (const EnumName<Enum>& each : names) {
    if (each.name == text) {
      value = each.value;
      return;
    }
    known.emplace_back(each.name);
  }
  throw_unknown_name(key, text, known);
}

template <class Enum, size_t N>
std::string name_of(Enum value, const EnumName<Enum> (&names)[N]) {
  for (const EnumName<Enum>& each : names)
    if (each.value == value) return std::string(each.name);
  LOCKSTEP_CHECK(false, "value {}", static_cast<int>(value));
  return {};
}

template <class T>
void assign_given(T& value, T given) {
  if (given != T{}) value = given;
}

}  // namespace

GptConfig gpt_config_of(const TrainConfig& config, int64_t vocabulary) {
  GptConfig out = gpt_config(config.size.empty() ? "char" : config.size);
  if (config.vocabulary > 0 && config.vocabulary < vocabulary)
    throw_error("vocabulary: {} is below the {} tokens of the tokenizer; set vocabulary to at least {}, or to 0",
                config.vocabulary, vocabulary, vocabulary);
  out.vocabulary = config.vocabulary > 0 ? config.vocabulary : vocabulary;
  assign_given(out.layers, config.layers);
  assign_given(out.heads, config.heads);
  assign_given(out.kv_heads, config.kv_heads);
  assign_given(out.width, config.width);
  assign_given(out.context, config.context);
  assign_given(out.hidden, config.hidden);
  assign_given(out.head_width, config.head_width);
  assign_given(out.rope_base, config.rope_base);
  assign_given(out.norm_epsilon, config.norm_epsilon);
  assign_named(out.norm, kNorms, "norm", config.norm);
  assign_named(out.position, kPositions, "position", config.position);
  assign_named(out.feed_forward, kFeedForwards, "feed_forward", config.feed_forward);
  assign_named(out.bias, kSwitches, "bias", config.bias);
  assign_named(out.tied, kSwitches, "tied", config.tied);
  out.dropout = config.dropout;
  check(out);
  return out;
}

ConfigMap gpt_settings_of(const GptConfig& config) {
  const nn::TransformerConfig blocks = config.blocks();
  TrainConfig settings;
  settings.model = "gpt";
  settings.layers = config.layers;
  settings.heads = blocks.heads;
  settings.kv_heads = blocks.kv_heads;
  settings.width = config.width;
  settings.context = config.context;
  settings.hidden = blocks.hidden;
  settings.head_width = blocks.head_width;
  settings.vocabulary = config.vocabulary;
  settings.norm = name_of(config.norm, kNorms);
  settings.position = name_of(config.position, kPositions);
  settings.feed_forward = name_of(config.feed_forward, kFeedForwards);
  settings.bias = name_of(config.bias, kSwitches);
  settings.tied = name_of(config.tied, kSwitches);
  settings.rope_base = config.rope_base;
  settings.norm_epsilon = config.norm_epsilon;
  ConfigMap out;
  for (const std::string_view name : kGptKeys) {
    const ConfigKey* key = find_config_key(name);
    LOCKSTEP_CHECK(key, "{}", name);
    out[std::string(name)] = text_of(settings, *key);
  }
  return out;
}

TrainConfig with_model_of(TrainConfig config, const ConfigMap& saved) {
  for (const std::string_view name : kGptKeys) {
    const auto stored = saved.find(std::string(name));
    if (stored == saved.end()) continue;
    const ConfigKey* key = find_config_key(name);
    LOCKSTEP_CHECK(key, "{}", name);
    const std::string given = text_of(config, *key);
    if (given != text_of({}, *key) && given != stored->second)
      throw_error("{}: {} is given, but the model to start from has {}; remove {}", name, given, stored->second,
                  key->flag());
    if (const std::string problem = assign(config, *key, stored->second); !problem.empty())
      throw_error("{}: in the checkpoint to start from: {}", name, problem);
  }
  return config;
}

TrainConfig start_from(const TrainConfig& config, const std::string& path) {
  FileSystem& files = FileSystem::real();
  std::string checkpoint = path;
  if (!files.exists(detail::locate_checkpoint(files, path) + "/" + detail::kManifest)) {
    const std::vector<int64_t> steps = list_checkpoints(path);
    if (steps.empty())
      throw_error("{} is neither a checkpoint nor a folder of checkpoints; give the run to start from", path);
    checkpoint = checkpoint_path(path, steps.back());
  }
  TrainConfig out = with_model_of(config, inspect_checkpoint(checkpoint).config);
  if (out.tokenizer.empty()) out.tokenizer = run_tokenizer_file(checkpoint);
  return out;
}

Gpt gpt_form(const GptConfig& config) {
  const auto create = [&](const Array& key) { return create_gpt(config, key); };
  return detail::trace_call("gpt_form", create, random::key(0)).result;
}

void check_gpt_params(std::string_view what, const GptConfig& config, const Gpt& params) {
  const Gpt form = gpt_form(config);
  const auto wanted = tree_flatten(form), given = tree_flatten(params);
  for (size_t i = 0; i < std::max(wanted.size(), given.size()); ++i) {
    if (i < wanted.size() && i < given.size() && wanted[i].first == given[i].first && given[i].second.defined() &&
        wanted[i].second.shape() == given[i].second.shape())
      continue;
    const std::string& path = i < wanted.size() ? wanted[i].first : given[i].first;
    throw_error("{}: the parameter {} does not fit the configuration; use the configuration it was created with", what,
                path);
  }
}

StoredGpt gpt_of(const Checkpoint& checkpoint, const std::string& where) {
  const TrainConfig settings = from_map(checkpoint.config, where);
  if (settings.model != "gpt")
    throw_error("{} holds a model {}, not a language model; choose a checkpoint of model gpt", where,
                printable(settings.model));
  std::map<std::string, Array> arrays;
  for (const auto& [name, array] : checkpoint.arrays) arrays.emplace(name, array);
  const auto embedding = arrays.find("params/token_embedding");
  if (embedding == arrays.end() || embedding->second.rank() != 2)
    throw_error("{} has no matrix params/token_embedding; it is not a checkpoint of model gpt", where);
  StoredGpt out{.config = gpt_config_of(settings, embedding->second.shape(0)), .params = {}};
  out.params = gpt_form(out.config);
  detail::for_each_path(out.params, [&](const std::string& path, Array& leaf) {
    // Evaluations use the average of the weights where there is one, and so does what is made of a checkpoint.
    auto found = arrays.find("average/" + path);
    if (found == arrays.end()) found = arrays.find("params/" + path);
    if (found == arrays.end())
      throw_error("{} has no params/{}, which its settings require; the checkpoint is damaged", where, path);
    if (found->second.type().dtype != leaf.dtype() || found->second.shape() != leaf.shape())
      throw_error("{} has params/{} as {}, but its settings require {}; the checkpoint is damaged", where, path,
                  to_string(found->second.type()), to_string(leaf.type()));
    leaf = found->second;
  });
  return out;
}

std::string run_tokenizer_file(const std::string& dir) { return run_file(dir, kTokenizerFile); }

TokenizerPtr load_run_tokenizer(const std::string& dir) {
  const std::string path = run_tokenizer_file(dir);
  if (path.empty()) return nullptr;
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path, kMaxTokenizerBytes);
  return tokenizer_from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

void store_run_tokenizer(const std::string& dir, const Tokenizer& tokenizer, FileSystem& files) {
  const std::string json = tokenizer.to_json();
  files.make_dirs(dir);
  files.write_atomic(dir + "/" + kTokenizerFile, {reinterpret_cast<const uint8_t*>(json.data()), json.size()});
}

}  // namespace lockstep
