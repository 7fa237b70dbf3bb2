#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/digest.h"
#include "base/faulty_files.h"
#include "base/throws.h"
#include "lockstep/device_put.h"
#include "lockstep/version.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_io.h"
#include "train/checkpoints.h"
#include "train/manifest.h"
#include "train/safetensors.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

std::string text_of(const std::string& path) {
  const Bytes bytes = disk().read_file(path);
  return {bytes.begin(), bytes.end()};
}
// Without fsync, which would take most of the time of these tests.
void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
void put(const std::string& path, const Bytes& bytes) { put(path, std::string(bytes.begin(), bytes.end())); }
void put_byte(const std::string& path, size_t at, int byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte));
}
TEST(Checkpoint, RoundTripsEverything) {
  const TempDir dir;
  const Checkpoint odd = odd_checkpoint();
  const std::string path = save_checkpoint(dir.path(), odd);
  EXPECT_EQ(path, dir.path() + "/step_00001000");
  EXPECT_TRUE(same_checkpoint(load_checkpoint(path), odd));
  EXPECT_TRUE(same_checkpoint(load_checkpoint(path + "/"), odd));
  EXPECT_EQ(disk().list(dir.path()), std::vector<std::string>{"step_00001000"});
  EXPECT_EQ(disk().list(path), (std::vector<std::string>{"manifest.json", "shard-00000-of-00001.safetensors"}));
}

TEST(Checkpoint, RoundTripsWithoutArrays) {
  const TempDir dir;
  const Checkpoint nothing;
  EXPECT_TRUE(same_checkpoint(load_checkpoint(save_checkpoint(dir.path() + "/a/b", nothing)), nothing));
}

TEST(Checkpoint, SameContentsGiveSameBytes) {
  const TempDir dir;
  const std::string a = save_checkpoint(dir.path() + "/a", odd_checkpoint());
  const std::string b = save_checkpoint(dir.path() + "/b", odd_checkpoint());
  for (const std::string& file : disk().list(a)) EXPECT_EQ(text_of(a + "/" + file), text_of(b + "/" + file));
}

TEST(Checkpoint, InspectReadsTheManifestOnly) {
  const TempDir dir;
  const Mesh mesh({devices()[0]}, {1, 1}, {"data", "model"});
  Checkpoint checkpoint = small_checkpoint(5);
  checkpoint.arrays[0].second = device_put(checkpoint.arrays[0].second, NamedSharding(mesh, P({}, {"data", "model"})));
  checkpoint.arrays[1].second = device_put(checkpoint.arrays[1].second, NamedSharding(mesh, P()));
  const CheckpointInfo info = inspect_checkpoint(save_checkpoint(dir.path(), checkpoint), true);
  EXPECT_EQ(info.path, dir.path() + "/step_00000005");
  EXPECT_EQ(info.format, 1);
  EXPECT_EQ(info.written_by, "lockstep " LOCKSTEP_VERSION);
  EXPECT_EQ(info.step, 5);
  EXPECT_EQ(info.cursor, checkpoint.cursor);
  EXPECT_EQ(info.seed, 7u);
  EXPECT_EQ(info.config, checkpoint.config);
  EXPECT_EQ(info.metrics, checkpoint.metrics);
  EXPECT_EQ(info.mesh, "Mesh('data': 1, 'model': 1)");
  ASSERT_EQ(info.meshes.size(), 1u);
  EXPECT_EQ(info.meshes[0][1].name, "model");
  ASSERT_EQ(info.entries.size(), 3u);
  EXPECT_EQ(info.entries[0].name, "params/w");
  EXPECT_EQ(info.entries[0].type, (Type{f32, {6, 10}}));
  EXPECT_EQ(info.entries[0].spec, "P(None, ('data', 'model'))");
  EXPECT_EQ(info.entries[0].partition, P({}, {"data", "model"}));
  EXPECT_EQ(info.entries[0].mesh, 0);
  EXPECT_EQ(info.entries[1].pieces.at(0).offset, 240);
  EXPECT_EQ(info.entries[2].spec, "P()");
  EXPECT_EQ(info.entries[2].mesh, -1);
  ASSERT_EQ(info.shards.size(), 1u);
  EXPECT_EQ(info.shards[0].file, "shard-00000-of-00001.safetensors");
  EXPECT_EQ(info.shards[0].bytes, disk().size(info.path + "/" + info.shards[0].file));
  EXPECT_EQ(info.shards[0].sha256, sha256_hex(disk().read_file(info.path + "/" + info.shards[0].file)));
}

TEST(Checkpoint, LoadedArraysHaveNoShardingByDefault) {
  const TempDir dir;
  const Mesh mesh({devices()[0]}, {1}, {"data"});
  Checkpoint checkpoint = small_checkpoint(5);
  checkpoint.arrays[0].second = device_put(checkpoint.arrays[0].second, NamedSharding(mesh, P("data")));
  const Checkpoint loaded = load_checkpoint(save_checkpoint(dir.path(), checkpoint));
  EXPECT_TRUE(loaded.arrays[0].second.sharding().mesh().axis_names().empty());
}

TEST(Checkpoint, ArraysOnSeveralMeshesKeepTheirs) {
  const TempDir dir;
  Checkpoint checkpoint = small_checkpoint(5);
  for (size_t i = 0; i < 2; ++i) {
    const Mesh mesh({devices()[0]}, {1}, {i == 0 ? "x" : "y"});
    checkpoint.arrays[i].second = device_put(checkpoint.arrays[i].second, NamedSharding(mesh, P()));
  }
  const CheckpointInfo info = inspect_checkpoint(save_checkpoint(dir.path(), checkpoint));
  EXPECT_EQ(info.mesh, "Mesh('x': 1), Mesh('y': 1)");
  EXPECT_EQ(info.entries[1].mesh, 1);
}

TEST(Checkpoint, LargeCheckpointsAreSplitBetweenArrays) {
  const TempDir dir;
  const Checkpoint odd = odd_checkpoint();
  for (const int64_t limit : {1, 8, 20, 1000}) {
    const std::string path = save_checkpoint(dir.path(), odd, {.shard_bytes = limit});
    EXPECT_TRUE(same_checkpoint(load_checkpoint(path), odd)) << limit;
    const CheckpointInfo info = inspect_checkpoint(path, true);
    EXPECT_EQ(info.shards.size() == 1, limit == 1000) << limit;
    for (size_t i = 0; i < info.shards.size(); ++i) {
      EXPECT_EQ(info.shards[i].file, fmt::format("shard-{:05}-of-{:05}.safetensors", i, info.shards.size()));
      const detail::SafetensorsHeader header =
          detail::read_safetensors_header(disk(), path + "/" + info.shards[i].file);
      const auto filled = [](const detail::SafetensorsEntry& tensor) { return tensor.type.bytes() > 0; };
      const auto arrays = std::count_if(header.tensors.begin(), header.tensors.end(), filled);
      EXPECT_TRUE(arrays == 1 || header.tensors.back().end() <= limit) << limit;
      EXPECT_EQ(header.metadata.at("step"), "1000");
    }
  }
}

TEST(Checkpoint, ElementsAreAligned) {
  const TempDir dir;
  for (const CheckpointEntry& entry : inspect_checkpoint(save_checkpoint(dir.path(), odd_checkpoint())).entries)
    EXPECT_EQ(entry.pieces.at(0).offset % size_of(entry.type.dtype), 0) << entry.name;
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const TempDir dir;
  Checkpoint checkpoint = small_checkpoint(5);
  save_checkpoint(dir.path(), checkpoint);
  checkpoint.metrics["test_accuracy"] = 0.75;
  const std::string path = save_checkpoint(dir.path(), checkpoint, {.shard_bytes = 1});
  EXPECT_TRUE(same_checkpoint(load_checkpoint(path), checkpoint));
  EXPECT_EQ(disk().list(dir.path()), std::vector<std::string>{"step_00000005"});
  EXPECT_EQ(disk().list(path).size(), 4u);
}

TEST(Checkpoint, InvalidCheckpointsAreRejectedBeforeWriting) {
  const TempDir dir;
  const auto expect_rejected = [&](const char* part, const std::function<void(Checkpoint&)>& change) {
    Checkpoint checkpoint = small_checkpoint(5);
    change(checkpoint);
    EXPECT_THROWS(save_checkpoint(dir.path(), checkpoint), Error, part);
    EXPECT_TRUE(disk().list(dir.path()).empty());
  };
  expect_rejected("the step is -1; give a step of at least 0", [](Checkpoint& c) { c.step = -1; });
  expect_rejected("two arrays are named \"params/w\"", [](Checkpoint& c) { c.arrays[1].first = "params/w"; });
  expect_rejected("\"__metadata__\" is not a valid array name",
                  [](Checkpoint& c) { c.arrays[1].first = "__metadata__"; });
  expect_rejected("\"\" is not a valid array name", [](Checkpoint& c) { c.arrays[1].first = ""; });
  expect_rejected("is not a valid array name", [](Checkpoint& c) { c.arrays[1].first = "\xff"; });
  expect_rejected("the array is empty", [](Checkpoint& c) { c.arrays[1].second = Array(); });
  expect_rejected("the metric \"\\xff\" is not UTF-8", [](Checkpoint& c) { c.metrics["\xff"] = 1; });
  expect_rejected("the setting \"\\xff\" is not UTF-8", [](Checkpoint& c) { c.config["\xff"] = "1"; });
  EXPECT_THROWS(save_checkpoint("", small_checkpoint(1)), Error, "the folder name is empty");
  EXPECT_THROWS(save_checkpoint(dir.path(), small_checkpoint(1), {.shard_bytes = 0}), Error, "shard_bytes is 0");
}

TEST(Checkpoint, SettingsThatAreNotUtf8AreSavedWithReplacements) {
  const TempDir dir;
  Checkpoint checkpoint = small_checkpoint(5);
  checkpoint.config["dir"] = "/data/\xff/x";
  EXPECT_EQ(load_checkpoint(save_checkpoint(dir.path(), checkpoint)).config.at("dir"), "/data/\uFFFD/x");
}

TEST(Checkpoint, ListsFoldersWithAManifest) {
  const TempDir dir;
  EXPECT_TRUE(list_checkpoints(dir.path() + "/missing").empty());
  for (const int64_t step : {123456789, 7, 0}) save_checkpoint(dir.path(), small_checkpoint(step));
  disk().make_dirs(dir.path() + "/step_00000008");
  disk().make_dirs(dir.path() + "/other");
  for (const char* name : {"step_9", "step_000000010", "step_0000001x", "step_00000011"}) {
    save_checkpoint(dir.path() + "/other", small_checkpoint(1));
    disk().rename(dir.path() + "/other/step_00000001", dir.path() + "/" + name);
  }
  disk().write(dir.path() + "/step_00000012", Bytes{1});
  disk().make_dirs(dir.path() + "/.step_00000013.tmp-host-1-1");
  disk().make_dirs(dir.path() + "/.step_00000014.old-host-1-2");
  EXPECT_EQ(list_checkpoints(dir.path()), (std::vector<int64_t>{0, 7, 11, 123456789}));
  EXPECT_EQ(detail::list_steps(disk(), dir.path(), detail::ListedSteps::all),
            (std::vector<int64_t>{0, 7, 8, 11, 12, 123456789}));
  EXPECT_EQ(checkpoint_path("run", 7), "run/step_00000007");
}

// Two checkpoints; the tests damage the newer one.
class DamagedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    older_ = small_checkpoint(1);
    save_checkpoint(dir_.path(), older_);
    path_ = save_checkpoint(dir_.path(), small_checkpoint(2), {.shard_bytes = 200});
    for (const std::string& name : disk().list(path_)) files_.push_back(path_ + "/" + name);
    ASSERT_EQ(files_.size(), 3u);  // the manifest and two shards
  }
  void expect_damaged(const std::string& file, const std::string& what) {
    try {
      load_checkpoint(path_);
      FAIL() << "loaded with " << what << " of " << file;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << what << ": " << error.what();
    }
  }
  void expect_skipped() {
    std::vector<std::string> warnings;
    const auto found = find_checkpoint(dir_.path(), "auto", [&](const std::string& text) { warnings.push_back(text); });
    ASSERT_TRUE(found);
    EXPECT_TRUE(same_checkpoint(*found, older_));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("resume: skipping step 2: "), std::string::npos) << warnings[0];
    EXPECT_NE(warnings[0].find(path_), std::string::npos) << warnings[0];
  }
  const TempDir dir_;
  Checkpoint older_;
  std::string path_;
  std::vector<std::string> files_;
};

TEST_F(DamagedCheckpoint, FlippedByteIsDetected) {
  std::mt19937 random(1);
  for (const std::string& file : files_) {
    const Bytes original = disk().read_file(file);
    for (size_t at = 0; at < original.size(); ++at) {
      put_byte(file, at, original[at] ^ static_cast<uint8_t>(1u << random() % 8));
      expect_damaged(file, fmt::format("byte {} flipped", at));
      if (at % 97 == 0) expect_skipped();
      put_byte(file, at, original[at]);
    }
    EXPECT_NO_THROW(load_checkpoint(path_));
  }
}

TEST_F(DamagedCheckpoint, WrongLengthIsDetected) {
  for (const std::string& file : files_) {
    const Bytes original = disk().read_file(file);
    for (const size_t length :
         {size_t{0}, size_t{1}, size_t{7}, original.size() / 2, original.size() - 1, original.size() + 1}) {
      Bytes damaged = original;
      damaged.resize(length, '\n');
      put(file, damaged);
      expect_damaged(file, fmt::format("{} bytes instead of {}", length, original.size()));
      expect_skipped();
    }
    put(file, original);
  }
}

TEST_F(DamagedCheckpoint, MissingShardIsDetected) {
  for (size_t i = 1; i < files_.size(); ++i) {
    const Bytes original = disk().read_file(files_[i]);
    disk().remove(files_[i]);
    expect_damaged(files_[i] + " is missing", "nothing");
    EXPECT_THROWS(inspect_checkpoint(path_), Error, files_[i] + " is missing");
    expect_skipped();
    put(files_[i], original);
  }
}

TEST_F(DamagedCheckpoint, FolderWithoutManifestIsNotACheckpoint) {
  disk().remove(files_[0]);
  expect_damaged(path_ + " is not a complete checkpoint: it has no manifest.json", "nothing");
  expect_skipped();
  EXPECT_EQ(list_checkpoints(dir_.path()), std::vector<int64_t>{1});
  EXPECT_THROWS(find_checkpoint(dir_.path(), "2", ignore), Error, path_ + " is not a complete checkpoint");
}

TEST_F(DamagedCheckpoint, InspectVerifiesChecksumsOnRequest) {
  Bytes bytes = disk().read_file(files_[1]);
  bytes.back() ^= 1;
  put(files_[1], bytes);
  EXPECT_NO_THROW(inspect_checkpoint(path_));
  EXPECT_THROWS(inspect_checkpoint(path_, true), Error, files_[1] + " has SHA-256 checksum ");
}

TEST_F(DamagedCheckpoint, FailedReadsThrowIoError) {
  FaultyFiles files;
  const std::string older = checkpoint_path(dir_.path(), 1);
  detail::read_checkpoint(files, older);
  for (const auto& [operation, count] : files.counts()) {
    for (int k = 1; k <= count; ++k) {
      FaultyFiles faulty;
      faulty.fail_at(operation, k, EIO);
      EXPECT_THROWS(detail::read_checkpoint(faulty, older), IoError, older);
    }
  }
}

TEST_F(DamagedCheckpoint, InconsistentManifestIsRejected) {
  const std::string manifest = text_of(files_[0]);
  const auto expect_rejected = [&](const std::string& part,
                                   const std::function<void(nlohmann::ordered_json&)>& change) {
    forge(files_[0], change);
    EXPECT_THROWS(load_checkpoint(path_), Error, part);
    expect_skipped();
    put(files_[0], manifest);
  };
  using J = nlohmann::ordered_json;
  EXPECT_NO_THROW(load_checkpoint(path_));
  expect_rejected(
      "has format 3, written by \"lockstep 9\", but this lockstep reads formats up to 2; use a newer lockstep",
      [](J& j) {
        j["format"] = 3;
        j["written_by"] = "lockstep 9";
      });
  expect_rejected("manifest.json: ", [](J& j) { j.erase("step"); });
  expect_rejected("manifest.json: ", [](J& j) { j["config"]["x"] = 1; });
  expect_rejected("has unknown element type \"f8\"", [](J& j) { j["arrays"][0]["dtype"] = "f8"; });
  expect_rejected("is on mesh 3 of 0", [](J& j) { j["arrays"][0]["mesh"] = 3; });
  expect_rejected("is in x, which is not a shard", [](J& j) { j["arrays"][0]["shard"] = "x"; });
  expect_rejected("has 1 bytes, but f32[6,10] has 240", [](J& j) { j["arrays"][0]["bytes"] = 1; });
  expect_rejected("shape is 2305843009213693952; it must be a whole number from 0 to ",
                  [](J& j) { j["arrays"][0]["shape"] = {int64_t{1} << 61}; });
  expect_rejected("no machine holds", [](J& j) { j["arrays"][0]["shape"] = {int64_t{1} << 40, int64_t{1} << 40}; });
  expect_rejected("has 1 checksums for its ", [](J& j) { j["shards"][0]["chunk_bytes"] = 7; });
  expect_rejected("has 0 checksums for its ", [](J& j) { j["shards"][0]["chunks"] = ""; });
  expect_rejected("two arrays are named", [](J& j) { j["arrays"][1]["name"] = j["arrays"][0]["name"]; });
  expect_rejected("is not a valid shard name", [](J& j) { j["shards"][0]["file"] = "../x"; });
  expect_rejected("is listed twice", [](J& j) { j["shards"][0]["file"] = j["shards"][1]["file"]; });
  expect_rejected("where it does not fit", [](J& j) { j["arrays"][0]["offset"] = 4; });
  expect_rejected("offset is -4; it must be a whole number from 0 to ", [](J& j) { j["arrays"][0]["offset"] = -4; });
  expect_rejected("has fewer bytes than the arrays in it", [](J& j) {
    j["arrays"][0]["shape"] = {6000};
    j["arrays"][0]["bytes"] = 24000;
  });
  expect_rejected("contains other arrays than the manifest says", [](J& j) { j["arrays"][0]["name"] = "x"; });
  expect_rejected("contains other arrays than the manifest says", [](J& j) { j["arrays"].erase(0); });
}

TEST_F(DamagedCheckpoint, ManifestWithInvalidValuesIsRejected) {
  const std::string manifest = text_of(files_[0]);
  using J = nlohmann::ordered_json;
  const auto expect_rejected = [&](const std::string& part, const std::function<void(J&)>& change) {
    forge(files_[0], change);
    EXPECT_THROWS(load_checkpoint(path_), Error, part);
    EXPECT_THROWS(inspect_checkpoint(path_), Error, part);
    put(files_[0], manifest);
  };
  expect_rejected("step is -1; it must be a whole number from 0 to ", [](J& j) { j["step"] = -1; });
  expect_rejected("step is 1.5; it must be a whole number from 0 to ", [](J& j) { j["step"] = 1.5; });
  expect_rejected("step is 18446744073709551615; ", [](J& j) { j["step"] = ~uint64_t{0}; });
  expect_rejected("epoch is -1; ", [](J& j) { j["cursor"]["epoch"] = -1; });
  expect_rejected("sample is 0.5; ", [](J& j) { j["cursor"]["sample"] = 0.5; });
  expect_rejected("seed is -1; expected a whole number of at least 0", [](J& j) { j["seed"] = -1; });
  expect_rejected("mesh is 1.5; ", [](J& j) { j["arrays"][0]["mesh"] = 1.5; });
  expect_rejected("is on mesh 1099511627776 of 0", [](J& j) { j["arrays"][0]["mesh"] = int64_t{1} << 40; });
  const J axis = {{"axis", "data"}, {"size", int64_t{1} << 40}};
  expect_rejected("size is 1099511627776; ", [&](J& j) { j["meshes"] = J::array({J::array({axis})}); });
  expect_rejected("shape is 1.5; ", [](J& j) { j["arrays"][0]["shape"] = {1.5}; });
  expect_rejected("bytes is 240.0; ", [](J& j) { j["arrays"][0]["bytes"] = 240.0; });
  expect_rejected("bytes is -1; ", [](J& j) { j["shards"][0]["bytes"] = -1; });
  expect_rejected("chunk_bytes is 0; ", [](J& j) { j["shards"][0]["chunk_bytes"] = 0; });
  expect_rejected("is not a SHA-256 checksum", [](J& j) { j["shards"][0]["sha256"] = "x"; });
  expect_rejected("a metric is []", [](J& j) { j["metrics"]["loss"] = J::array(); });
  for (const std::string& name : {std::string("a\0b", 3), std::string(".."), std::string("a\nb"),
                                  std::string("\033[31m"), std::string("manifest.json"), std::string(300, 'x')})
    expect_rejected("is not a valid shard name; expected a plain file name",
                    [&](J& j) { j["shards"][0]["file"] = name; });
}

TEST_F(DamagedCheckpoint, DeeplyNestedManifestIsRejected) {
  std::string text = text_of(files_[0]);
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& key : {std::string("\"bytes\": "), std::string("\"written_by\": ")}) {
    std::string forged = text;
    const size_t at = forged.find(key) + key.size();
    forged.replace(at, forged.find_first_of(",\n", at) - at, deep);
    if (key == "\"written_by\": ") forged.replace(forged.find("\"format\": ") + 10, 1, "3");
    put(files_[0], with_checksum(forged));
    EXPECT_THROWS(load_checkpoint(path_), Error, "more than 64 objects or lists");
    EXPECT_THROWS(inspect_checkpoint(path_), Error, "more than 64 objects or lists");
    expect_skipped();
  }
}

TEST_F(DamagedCheckpoint, ManifestMustBeARegularFile) {
  const std::string manifest = files_[0];
  disk().remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_THROWS(inspect_checkpoint(path_), IoError, "it is a pipe");
  expect_skipped();
  disk().remove(manifest);
  std::filesystem::create_symlink("/dev/zero", manifest);
  EXPECT_THROWS(inspect_checkpoint(path_), IoError, "it is a device");
  expect_skipped();
}

TEST(FindCheckpoint, AutoAndNone) {
  const TempDir dir;
  EXPECT_FALSE(find_checkpoint(dir.path(), "auto", ignore));
  EXPECT_FALSE(find_checkpoint(dir.path() + "/missing", "auto", ignore));
  save_checkpoint(dir.path(), small_checkpoint(9));
  save_checkpoint(dir.path(), small_checkpoint(10));
  EXPECT_FALSE(find_checkpoint(dir.path(), "", ignore));
  EXPECT_FALSE(find_checkpoint(dir.path(), "none", ignore));
  EXPECT_EQ(find_checkpoint(dir.path(), "auto", nullptr)->step, 10);
}

TEST(FindCheckpoint, OnlyDamagedCheckpointsAreAnError) {
  const TempDir dir;
  put(save_checkpoint(dir.path(), small_checkpoint(9)) + "/manifest.json", "{}");
  int warnings = 0;
  EXPECT_THROWS(
      find_checkpoint(dir.path(), "auto", [&](const std::string&) { ++warnings; }), Error,
      "resume: 1 checkpoint in " + dir.path() + ", but none is complete; restore a backup, or start a new run");
  EXPECT_EQ(warnings, 1);
  EXPECT_THROWS(find_checkpoint("", dir.path(), ignore), Error, "no checkpoint in " + dir.path() + " is complete");
  EXPECT_THROWS(find_checkpoint(dir.path(), "9", ignore), Error, "does not end with its checksum");
}

TEST(FindCheckpoint, CheckpointsWithoutManifestsAreAnError) {
  const TempDir dir;
  for (const int64_t step : {8, 9})
    disk().remove(save_checkpoint(dir.path(), small_checkpoint(step)) + "/manifest.json");
  std::vector<std::string> warnings;
  EXPECT_THROWS(
      find_checkpoint(dir.path(), "auto", [&](const std::string& text) { warnings.push_back(text); }), Error,
      "resume: 2 checkpoints in " + dir.path() + ", but none is complete; restore a backup, or start a new run");
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("resume: skipping step 9: "), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("resume: skipping step 8: "), std::string::npos) << warnings[1];
  EXPECT_THROWS(find_checkpoint("", dir.path(), ignore), Error, "no checkpoint in " + dir.path() + " is complete");
}

TEST(FindCheckpoint, PartialCheckpointsAreIgnored) {
  const TempDir dir;
  const std::string path = save_checkpoint(dir.path(), small_checkpoint(9));
  disk().remove(path + "/manifest.json");
  disk().rename(path, dir.path() + "/.step_00000009.tmp-host-1-1");
  EXPECT_FALSE(find_checkpoint(dir.path(), "auto", [](const std::string& text) { ADD_FAILURE() << text; }));
}

TEST(FindCheckpoint, ByStep) {
  const TempDir dir;
  EXPECT_THROWS(find_checkpoint(dir.path(), "7", ignore), Error,
                "no checkpoint of step 7; " + dir.path() + " has no checkpoints");
  save_checkpoint(dir.path(), small_checkpoint(9));
  save_checkpoint(dir.path(), small_checkpoint(10));
  EXPECT_EQ(find_checkpoint(dir.path(), "9", ignore)->step, 9);
  EXPECT_EQ(find_checkpoint(dir.path(), "00000009", ignore)->step, 9);
  EXPECT_EQ(find_checkpoint(dir.path(), "step_00000009", ignore)->step, 9);
  EXPECT_THROWS(find_checkpoint(dir.path(), "7", ignore), Error,
                "no checkpoint of step 7; steps available in " + dir.path() + ": 9, 10");
}

TEST(FindCheckpoint, WithoutAFolder) {
  EXPECT_FALSE(find_checkpoint("", "auto", ignore));
  EXPECT_THROWS(find_checkpoint("", "7", ignore), Error,
                "step 7; the run has no checkpoint folder: set --checkpoint-dir");
}

TEST(FindCheckpoint, ByPath) {
  const TempDir dir;
  const std::string nine = save_checkpoint(dir.path() + "/a", small_checkpoint(9));
  save_checkpoint(dir.path() + "/a", small_checkpoint(10));
  save_checkpoint(dir.path(), small_checkpoint(3));
  EXPECT_EQ(find_checkpoint(dir.path(), nine, ignore)->step, 9);
  EXPECT_EQ(find_checkpoint(dir.path(), dir.path() + "/a", ignore)->step, 10);
  EXPECT_EQ(find_checkpoint(dir.path(), dir.path() + "/a/", ignore)->step, 10);
  EXPECT_THROWS(find_checkpoint(dir.path(), dir.path() + "/b", ignore), Error,
                dir.path() + "/b does not exist; give \"auto\", \"none\", a step or the path of a checkpoint; " +
                    "steps available in " + dir.path() + ": 3");
  disk().make_dirs(dir.path() + "/c");
  EXPECT_THROWS(find_checkpoint(dir.path(), dir.path() + "/c", ignore), Error, "is neither a complete checkpoint");
  EXPECT_THROWS(load_checkpoint(dir.path() + "/c/step_00000001"), Error, "does not exist; check the path");
  EXPECT_THROWS(load_checkpoint(dir.path() + "/d/step_00000001"), Error, "does not exist; check the path");
}

}  // namespace
}  // namespace lockstep
