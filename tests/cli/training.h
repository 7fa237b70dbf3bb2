// Helpers for tests of `lockstep train`: a small data set in files, runs of the program, and comparisons of their
// checkpoints.
#pragma once

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/idx.h"
#include "lockstep/checkpoint.h"
#include "lockstep/data.h"
#include "support/program.h"
#include "support/text.h"
#include "support/text_file.h"

namespace lockstep {

// Paths of IDX files with 600 training and 100 test examples, written once, in the form of --dataset.
inline const std::string& small_dataset() {
  static const TempDir dir;
  static const std::string paths = [] {
    const Dataset data = synthetic_digits(600, 100);
    std::string out;
    for (const ImageDataset* half : {&data.train, &data.test}) {
      const std::string name = dir.path() + (half == &data.train ? "/train" : "/test");
      FileSystem::real().write(name + "-images", encode_idx({{half->count, half->rows, half->cols}, {half->images}}));
      FileSystem::real().write(name + "-labels", encode_idx({{half->count}, {half->labels}}));
      out += (out.empty() ? "" : ",") + name + "-images," + name + "-labels";
    }
    return out;
  }();
  return paths;
}

// The command `lockstep train` on that data with batches of 50: twelve steps per epoch.
inline Words train_command(const Words& flags) {
  const bool has_data = std::find(flags.begin(), flags.end(), "--dataset") != flags.end();
  const Words data = has_data ? Words{} : Words{"--dataset", small_dataset()};
  const bool has_folder = std::ranges::any_of(flags, [](const std::string& flag) {
    return flag.starts_with("--checkpoint-dir") || flag.starts_with("--log-dir") || flag.starts_with("--run-dir") ||
           flag.starts_with("--config") || flag.ends_with(".yaml");
  });
  const Words folder = has_folder ? Words{} : Words{"--no-save"};
  return Words{program_path(), "train"} + data + Words{"--batch-size", "50"} + folder + flags;
}

// Flags of a small language model with dropout, and of a text to train it on.
inline Words text_flags() {
  static const std::string file = [] {
    static const TempDir dir;
    std::string text;
    for (int i = 0; i < 1500; ++i) text += fmt::format("{} times {} is {}.\n", i % 31, i % 17, (i % 31) * (i % 17));
    FileSystem::real().write(dir.path() + "/text.txt", std::vector<uint8_t>(text.begin(), text.end()));
    return dir.path() + "/text.txt";
  }();
  return {"--model", "gpt", "--dataset", "text:" + file, "--size",    "char-small", "--layers",  "2",
          "--heads", "2",   "--width",   "16",           "--context", "24",         "--dropout", "0.1"};
}
inline RunningProgram::Result train(const Words& flags) { return RunningProgram(train_command(flags)).wait(); }

inline void flip_byte(const std::string& path) {
  std::vector<uint8_t> bytes = FileSystem::real().read_file(path);
  bytes[bytes.size() / 2] ^= 1;
  FileSystem::real().write(path, bytes);
}

// The manifest of the newest checkpoint, without settings that do not change the result.
inline nlohmann::json manifest_of(const std::string& dir) {
  const std::string path = checkpoint_path(dir, list_checkpoints(dir).back());
  const std::string text = read_text(path + "/manifest.json");
  nlohmann::json manifest = nlohmann::json::parse(text, nullptr, false);
  manifest.erase("sha256");  // of the manifest itself
  for (const char* key : {"checkpoint_dir", "log_dir", "devices", "resume", "steps", "quiet", "loggers", "log_every"})
    manifest["config"].erase(key);
  return manifest;
}

// Expects the newest checkpoints of both folders to have the same step and byte-equal arrays.
inline void expect_same_weights(const std::string& dir, const std::string& wanted) {
  const std::vector<int64_t> steps = list_checkpoints(dir), wanted_steps = list_checkpoints(wanted);
  ASSERT_FALSE(steps.empty());
  ASSERT_FALSE(wanted_steps.empty());
  ASSERT_EQ(steps.back(), wanted_steps.back());
  const nlohmann::json shards = manifest_of(wanted)["shards"];
  ASSERT_GT(shards.size(), 0u);
  for (const auto& shard : shards) {
    const std::string file = "/" + shard["file"].get<std::string>();
    EXPECT_TRUE(FileSystem::real().read_file(checkpoint_path(dir, steps.back()) + file) ==
                FileSystem::real().read_file(checkpoint_path(wanted, steps.back()) + file))
        << file;
  }
}

// Also expects the same cursor, settings, metrics and mesh.
inline void expect_same_result(const std::string& dir, const std::string& wanted) {
  expect_same_weights(dir, wanted);
  EXPECT_EQ(manifest_of(dir), manifest_of(wanted));
}

}  // namespace lockstep
