// A Hugging Face folder in memory: read, changed and written byte by byte, for tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "lockstep/create.h"
#include "lockstep/gpt.h"
#include "lockstep/random.h"
#include "lockstep/tree.h"
#include "train/safetensors.h"

namespace lockstep {

inline void write_text_file(const std::string& path, const std::string& text) {
  FileSystem::real().write(path, std::vector<uint8_t>(text.begin(), text.end()));
}

struct HfFolder {
  struct Tensor {
    Type type;
    std::vector<uint8_t> bytes;
  };
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;

  static HfFolder read(const std::string& dir) {
    FileSystem& files = FileSystem::real();
    HfFolder out;
    out.config = nlohmann::json::parse(files.read_file(dir + "/config.json"));
    const std::string path = dir + "/model.safetensors";
    const detail::SafetensorsHeader header = detail::read_safetensors_header(files, path);
    for (const detail::SafetensorsEntry& entry : header.tensors) {
      std::vector<uint8_t> bytes(static_cast<size_t>(entry.type.bytes()));
      files.read(path, header.data_begin + entry.offset, bytes);
      out.tensors[entry.name] = {entry.type, std::move(bytes)};
    }
    return out;
  }

  bool has(const std::string& name) const { return tensors.count(name) > 0; }
  std::vector<float> values(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    EXPECT_EQ(tensor.type.dtype, f32) << name;
    std::vector<float> out(tensor.bytes.size() / sizeof(float));
    std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
    return out;
  }
  void set(const std::string& name, const Type& type) {
    tensors[name] = {type, std::vector<uint8_t>(static_cast<size_t>(type.bytes()), 0)};
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = tensors.extract(from);
    node.key() = to;
    tensors.insert(std::move(node));
  }
  // Renames all tensors that begin with `prefix` to names without it.
  void remove_prefix(const std::string& prefix) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors)
      if (name.starts_with(prefix)) names.push_back(name);
    for (const std::string& name : names) rename(name, name.substr(prefix.size()));
  }

  static void write_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors) {
    std::vector<detail::SafetensorsEntry> entries;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, tensor.type, static_cast<int64_t>(data.size())});
      data.append(tensor.bytes.begin(), tensor.bytes.end());
    }
    write_text_file(path, detail::encode_safetensors(entries, {}) + data);
  }
  // Writes config.json and one file of tensors.
  void write(const std::string& dir) const {
    FileSystem::real().make_dirs(dir);
    write_text_file(dir + "/config.json", config.dump());
    write_tensors(dir + "/model.safetensors", tensors);
  }
  // Writes config.json, `shards` files of tensors and their index. Returns the index.
  nlohmann::json write_shards(const std::string& dir, size_t shards) const {
    FileSystem::real().make_dirs(dir);
    write_text_file(dir + "/config.json", config.dump());
    std::vector<std::map<std::string, Tensor>> parts(shards);
    nlohmann::json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::json::object()}};
    size_t i = 0;
    for (const auto& [name, tensor] : tensors) {
      const size_t shard = i++ % shards;
      parts[shard][name] = tensor;
      index["weight_map"][name] = shard_name(shard, shards);
    }
    for (size_t shard = 0; shard < shards; ++shard) write_tensors(dir + "/" + shard_name(shard, shards), parts[shard]);
    write_text_file(dir + "/model.safetensors.index.json", index.dump());
    return index;
  }
  static std::string shard_name(size_t shard, size_t shards) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
  }
};

// Small models of both families. No two extents are equal, so that a transposed tensor is noticed.
inline GptConfig small_gpt2() {
  return {.vocabulary = 23, .context = 11, .layers = 2, .heads = 3, .width = 12, .hidden = 20, .norm_epsilon = 1e-4};
}
inline GptConfig small_llama() {
  return {.vocabulary = 23,
          .context = 19,
          .layers = 2,
          .heads = 6,
          .kv_heads = 2,
          .width = 18,
          .head_width = 4,
          .hidden = 14,
          .norm = GptConfig::Norm::rms,
          .position = GptConfig::Position::rotary,
          .feed_forward = GptConfig::FeedForward::swiglu,
          .bias = false,
          .tied = false,
          .rope_base = 500,
          .norm_epsilon = 1e-3};
}

// Parameters of which none is 0 or 1, so that each of them changes the logits.
inline Gpt random_params(const GptConfig& config, uint64_t seed) {
  int64_t leaf = 0;
  return tree_map(
      [&](const Array& a) {
        const Array key = random::fold_in(random::key(seed), leaf++);
        return 0.4f * random::normal(key, a.shape()) + (a.rank() == 1 ? 0.5f : 0.f);
      },
      create_gpt(config, random::key(seed)));
}

// Expects all parameters to have the same bits.
inline void expect_equal_params(const Gpt& a, const Gpt& b) {
  const auto left = tree_flatten(a), right = tree_flatten(b);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_EQ(left[i].second.shape(), right[i].second.shape()) << left[i].first;
    EXPECT_EQ(left[i].second.to_vector<float>(), right[i].second.to_vector<float>()) << left[i].first;
  }
}

}  // namespace lockstep
