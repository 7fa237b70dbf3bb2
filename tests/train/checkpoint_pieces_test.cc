// Checkpoints of arrays sharded over lanes: saved and loaded under any meshes, written by one process or by several,
// and each lane reads only its own part. Lanes are simulated, so that one process plays all roles.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "array/node.h"
#include "base/digest.h"
#include "base/faulty_files.h"
#include "base/throws.h"
#include "lockstep/device_put.h"
#include "lockstep/devices.h"
#include "train/checkpoint_io.h"
#include "train/checkpoints.h"
#include "train/eight_devices.h"
#include "train/manifest.h"
#include "train/overlap.h"

namespace lockstep {
namespace {

using detail::LanePieces, detail::MeshLanes, detail::Overlap;
using Bytes = std::vector<uint8_t>;

TEST(Overlap, VisitsTheIntersectionOfTwoBoxes) {
  std::mt19937 random(1);
  const auto box = [&](const Shape& shape) {
    IndexBox out;
    for (const int64_t extent : shape) {
      const int64_t a = static_cast<int64_t>(random() % static_cast<uint32_t>(extent + 1)),
                    b = static_cast<int64_t>(random() % static_cast<uint32_t>(extent + 1));
      out.push_back({std::min(a, b), random() % 3 ? std::max(a, b) : extent});
    }
    return out;
  };
  for (int round = 0; round < 500; ++round) {
    Shape shape(random() % 4);
    for (int64_t& extent : shape) extent = static_cast<int64_t>(random() % 5) + 1;
    const IndexBox a = box(shape), b = box(shape);
    // Elements are numbered in the complete array. Copy from a to b with Overlap, and compute the same directly.
    const auto numbers = [&](const IndexBox& of) {
      std::vector<int32_t> out;
      for (int64_t i = 0; i < count(shape); ++i) {
        int64_t rest = i;
        bool inside = true;
        for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
          inside &= of[d].begin <= rest % shape[d] && rest % shape[d] < of[d].end;
        if (inside) out.push_back(static_cast<int32_t>(i));
      }
      return out;
    };
    const std::vector<int32_t> from = numbers(a), all = numbers(b);
    std::vector<int32_t> to(all.size(), -1), wanted;
    for (const int32_t i : all) wanted.push_back(std::find(from.begin(), from.end(), i) != from.end() ? i : -1);
    for (Overlap walk(a, b, 4); !walk.done();) {
      const int64_t n = random() % 2 ? walk.bytes() : 4;  // complete runs or single elements
      std::memcpy(reinterpret_cast<std::byte*>(to.data()) + walk.in_b(),
                  reinterpret_cast<const std::byte*>(from.data()) + walk.in_a(), static_cast<size_t>(n));
      walk.skip(n);
    }
    ASSERT_EQ(to, wanted) << "round " << round;
  }
}

// A mesh on `count` lanes, of which the `here` lanes from `first` on belong to this process.
MeshLanes lanes_from(const Mesh& mesh, int64_t count, int64_t first, int64_t here) {
  return {lane_grid(mesh, count), here < count, first, here};
}

Array in_pieces(const Array& whole, const NamedSharding& sharding, const MeshLanes& lanes) {
  LanePieces pieces{
      lanes.grid, to_lane_spec(lanes.grid, sharding.spec(), whole.shape().size()), {}, lanes.across_processes};
  if (!pieces.is_sharded()) return device_put(whole, sharding);
  pieces.buffers.resize(static_cast<size_t>(lanes.grid.lanes()));
  for (int64_t lane = lanes.first_local; lane < lanes.first_local + lanes.local_count; ++lane) {
    const IndexBox box = lane_box(pieces.grid, pieces.lane_spec, whole.shape(), lane);
    BufferPtr buffer = allocate(detail::piece_type(whole.type(), box).bytes());
    detail::extract_box(detail::buffer_of(whole, "test")->data(), whole.shape(), box, size_of(whole.dtype()),
                        buffer->data());
    pieces.buffers[static_cast<size_t>(lane)] = std::move(buffer);
  }
  return detail::concrete(detail::intern(whole.type()), std::make_shared<LanePieces>(std::move(pieces)), sharding);
}

// Compares the pieces on each lane bitwise.
void expect_same_pieces(const Array& got, const Array& wanted) {
  ASSERT_EQ(got.type(), wanted.type());
  EXPECT_EQ(got.sharding(), wanted.sharding());
  const detail::LanePiecesPtr &a = got.node()->pieces.divided, &b = wanted.node()->pieces.divided;
  ASSERT_EQ(!!a, !!b);
  if (!a) {
    EXPECT_EQ(bytes_of(got), bytes_of(wanted));
    return;
  }
  EXPECT_EQ(a->grid, b->grid);
  EXPECT_EQ(a->lane_spec, b->lane_spec);
  EXPECT_EQ(a->across_processes, b->across_processes);
  ASSERT_EQ(a->buffers.size(), b->buffers.size());
  for (size_t lane = 0; lane < a->buffers.size(); ++lane) {
    ASSERT_EQ(!!a->buffers[lane], !!b->buffers[lane]) << "lane " << lane;
    if (!a->buffers[lane]) continue;
    ASSERT_EQ(a->buffers[lane]->size(), b->buffers[lane]->size()) << "lane " << lane;
    EXPECT_EQ(
        std::memcmp(a->buffers[lane]->data(), b->buffers[lane]->data(), static_cast<size_t>(b->buffers[lane]->size())),
        0)
        << "lane " << lane;
  }
}

Array random_array(std::mt19937& random, const Shape& shape, DType dtype) {
  BufferPtr buffer = allocate(Type{dtype, shape}.bytes());
  for (int64_t i = 0; i < buffer->size(); ++i) buffer->as<uint8_t>()[i] = static_cast<uint8_t>(random());
  return detail::concrete(detail::intern({dtype, shape}), std::move(buffer));
}

// Saves the parts of several processes as one checkpoint. Returns its folder.
std::string save_in_parts(const std::string& dir, const std::vector<Checkpoint>& parts, int64_t shard_bytes) {
  const std::string folder = dir + "/step_00000005";
  disk().make_dirs(folder);
  std::vector<CheckpointInfo> infos;
  for (size_t p = 0; p < parts.size(); ++p) {
    const detail::WriterRank writer{static_cast<int64_t>(p), std::ssize(parts)};
    const CheckpointInfo info = detail::write_part(disk(), folder, detail::contents_of(parts[p], writer), shard_bytes);
    // Encoded and decoded, as when it is sent to process 0.
    infos.push_back(parts.size() == 1 ? info : detail::decode_manifest(detail::encode_manifest(info), "part"));
  }
  detail::write_manifest(disk(), folder, detail::merge_parts(infos));
  return folder;
}

struct Placement {
  NamedSharding sharding;
  int64_t lanes, processes;
};

Placement random_placement(std::mt19937& random, const Shape& shape) {
  static constexpr int64_t kMeshes[][3] = {{8, 1, 1}, {2, 4, 1}, {4, 2, 1}, {2, 2, 2}, {1, 8, 1}, {4, 1, 2}, {2, 1, 1}};
  const auto& sizes = kMeshes[random() % std::size(kMeshes)];
  const Mesh mesh = make_mesh({{"a", sizes[0]}, {"b", sizes[1]}, {"c", sizes[2]}});
  std::vector<std::string> axes{"a", "b", "c"};
  std::shuffle(axes.begin(), axes.end(), random);
  PartitionSpec spec;
  for (size_t d = 0; d < shape.size(); ++d) {
    SpecEntry entry;
    while (!axes.empty() && random() % 2) {
      entry.axes.push_back(axes.back());
      axes.pop_back();
    }
    spec.entries.push_back(entry);
  }
  const int64_t lanes = std::min<int64_t>(mesh.size(), int64_t{1} << random() % 4);
  return {NamedSharding(mesh, spec.trimmed()), lanes, std::min<int64_t>(lanes, int64_t{1} << random() % 3)};
}

TEST(CheckpointPieces, MoveBetweenAnyMeshesSpecsLanesAndProcesses) {
  std::mt19937 random(11);
  constexpr DType kTypes[] = {f32, u8, bf16, f64, i32};
  int cut = 0;
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const TempDir dir;
    std::vector<Array> arrays;
    std::vector<Placement> from, to;
    for (int i = 0; i < 3; ++i) {
      Shape shape(random() % 4);
      for (int64_t& extent : shape) extent = static_cast<int64_t>(random() % 90);
      arrays.push_back(random_array(random, shape, kTypes[random() % std::size(kTypes)]));
      from.push_back(random_placement(random, shape));
      to.push_back(random_placement(random, shape));
      // All arrays of a run are on the same lanes and processes.
      from[i].lanes = from[0].lanes, from[i].processes = from[0].processes;
      to[i].lanes = to[0].lanes, to[i].processes = to[0].processes;
    }
    const auto part = [&](const std::vector<Placement>& placements, int64_t process) {
      Checkpoint out{.step = 5};
      for (size_t i = 0; i < arrays.size(); ++i) {
        const int64_t here = placements[i].lanes / placements[i].processes;
        out.arrays.emplace_back(
            fmt::format("array/{}", i),
            in_pieces(arrays[i], placements[i].sharding,
                      lanes_from(placements[i].sharding.mesh(), placements[i].lanes, process * here, here)));
      }
      return out;
    };
    std::vector<Checkpoint> parts;
    for (int64_t p = 0; p < from[0].processes; ++p) parts.push_back(part(from, p));
    for (const auto& [name, array] : parts[0].arrays) cut += !!array.node()->pieces.divided;
    const std::string folder = save_in_parts(dir.path(), parts, random() % 2 ? 1000 : int64_t{1} << 30);
    const CheckpointInfo info = inspect_checkpoint(folder, true);
    EXPECT_EQ(info.format, from[0].processes > 1 ? 2 : 1);

    const Checkpoint plain = load_checkpoint(folder);
    for (size_t i = 0; i < arrays.size(); ++i) EXPECT_EQ(bytes_of(plain.arrays[i].second), bytes_of(arrays[i]));
    for (int64_t p = 0; p < to[0].processes; ++p) {
      const int64_t here = to[0].lanes / to[0].processes;
      const Checkpoint loaded = detail::read_checkpoint(
          disk(), folder,
          [&](const std::string& name, const Type&) { return to[static_cast<size_t>(name.back() - '0')].sharding; },
          [&](const Mesh& mesh) { return lanes_from(mesh, to[0].lanes, p * here, here); });
      const Checkpoint wanted = part(to, p);
      for (size_t i = 0; i < arrays.size(); ++i) expect_same_pieces(loaded.arrays[i].second, wanted.arrays[i].second);
    }
  }
  EXPECT_GT(cut, 60);
}

class CountingFiles : public FaultyFiles {
 public:
  size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) override {
    if (path.ends_with(".safetensors")) reads.push_back({offset, offset + static_cast<int64_t>(out.size())});
    return FaultyFiles::read(path, offset, out);
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Range& range : reads) sum += range.size();
    return sum;
  }
  std::vector<Range> reads;
};

// A checkpoint with an array of 2 MiB and a small array.
class LargeCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(3);
    checkpoint_.step = 5;
    checkpoint_.arrays = {{"w", random_array(random, {8192, 64}, f32)}, {"b", random_array(random, {64}, f32)}};
    path_ = save_checkpoint(dir_.path(), checkpoint_);
    shard_ = path_ + "/" + inspect_checkpoint(path_).shards.at(0).file;
    header_ = disk().size(shard_) - checkpoint_.arrays[0].second.type().bytes() - 256;
  }

  // Loads the part of one of `count` lanes, sharded by the spec.
  Checkpoint load(FileSystem& files, const PartitionSpec& spec, int64_t count, int64_t lane) const {
    const Mesh mesh = make_mesh({{"data", 8}});
    return detail::read_checkpoint(
        files, path_,
        [&](const std::string& name, const Type&) { return NamedSharding(mesh, name == "w" ? spec : P("data")); },
        [&](const Mesh& of) { return lanes_from(of, count, lane, 1); });
  }
  void flip(int64_t at) const {
    std::fstream file(shard_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at).put(static_cast<char>(byte ^ 4));
  }

  const TempDir dir_;
  Checkpoint checkpoint_;
  std::string path_, shard_;
  int64_t header_ = 0;  // bytes before the arrays
};

TEST_F(LargeCheckpoint, LaneReadsOnlyItsRows) {
  const Array& w = checkpoint_.arrays[0].second;
  for (const int64_t count : {2, 4, 8}) {
    int64_t all = 0;
    for (int64_t lane = 0; lane < count; ++lane) {
      SCOPED_TRACE(testing::Message() << "lane " << lane << " of " << count);
      CountingFiles files;
      const Checkpoint loaded = load(files, P("data"), count, lane);
      const Array wanted = in_pieces(w, loaded.arrays[0].second.sharding(),
                                     lanes_from(loaded.arrays[0].second.sharding().mesh(), count, lane, 1));
      expect_same_pieces(loaded.arrays[0].second, wanted);

      // Its piece, the chunks at both ends, those of the small array, and the header twice.
      const int64_t piece = w.type().bytes() / count, begin = header_ + lane * piece;
      EXPECT_LE(files.bytes(), piece + 4 * detail::kChunkBytes + 2 * header_);
      for (const Range& read : files.reads) {
        const bool own = read.begin >= begin - detail::kChunkBytes && read.end <= begin + piece + detail::kChunkBytes;
        const bool head = read.end <= std::max(header_, detail::kChunkBytes);
        const bool tail = read.begin >= header_ + w.type().bytes() - detail::kChunkBytes;
        EXPECT_TRUE(own || head || tail) << read.begin << " to " << read.end;
      }
      all += files.bytes();
    }
    EXPECT_LE(all, w.type().bytes() + count * (4 * detail::kChunkBytes + 2 * header_));
  }
}

TEST_F(LargeCheckpoint, AllLanesOfAProcessReadEveryChunkOnce) {
  CountingFiles files;
  const Mesh mesh = make_mesh({{"data", 8}});
  detail::read_checkpoint(
      files, path_, [&](const std::string&, const Type&) { return NamedSharding(mesh, P("data")); },
      [&](const Mesh& of) { return lanes_from(of, 4, 0, 4); });
  EXPECT_EQ(files.bytes(), disk().size(shard_) + header_);
}

// When the last dimension is sharded, every chunk contains elements of every lane.
TEST_F(LargeCheckpoint, ColumnShardsReadAllChunks) {
  const Array& w = checkpoint_.arrays[0].second;
  CountingFiles files;
  const Checkpoint loaded = load(files, P({}, "data"), 4, 1);
  EXPECT_EQ(files.bytes(), disk().size(shard_) + header_);
  const NamedSharding sharding = loaded.arrays[0].second.sharding();
  expect_same_pieces(loaded.arrays[0].second, in_pieces(w, sharding, lanes_from(sharding.mesh(), 4, 1, 1)));
}

TEST_F(LargeCheckpoint, EveryByteThatIsReadIsVerified) {
  const int64_t piece = checkpoint_.arrays[0].second.type().bytes() / 4;
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    // In the rows of lane 2, away from the chunks it shares with others.
    const int64_t at = header_ + 2 * piece + detail::kChunkBytes +
                       static_cast<int64_t>(random() % static_cast<uint32_t>(piece - 2 * detail::kChunkBytes));
    flip(at);
    EXPECT_THROWS(load(disk(), P("data"), 4, 2), Error, shard_ + " has SHA-256 checksum ");
    EXPECT_THROWS(load_checkpoint(path_), Error, shard_ + " has SHA-256 checksum ");
    EXPECT_NO_THROW(load(disk(), P("data"), 4, 0));  // its rows are intact
    flip(at);
  }
  flip(3);  // the header, which every lane reads
  for (int64_t lane = 0; lane < 4; ++lane)
    EXPECT_THROWS(load(disk(), P("data"), 4, lane), Error, shard_ + " has SHA-256 checksum ");
}

// Old checkpoints: the complete file must be read to verify it.
TEST_F(LargeCheckpoint, ShardsWithoutChunkChecksumsAreReadCompletely) {
  forge(path_ + "/manifest.json", [](nlohmann::ordered_json& json) {
    for (auto& shard : json["shards"]) {
      shard.erase("chunk_bytes");
      shard.erase("chunks");
    }
  });
  EXPECT_TRUE(same_checkpoint(load_checkpoint(path_), checkpoint_));
  CountingFiles files;
  const Checkpoint loaded = load(files, P("data"), 4, 3);
  EXPECT_EQ(files.bytes(), disk().size(shard_) + header_);
  const NamedSharding sharding = loaded.arrays[0].second.sharding();
  expect_same_pieces(loaded.arrays[0].second,
                     in_pieces(checkpoint_.arrays[0].second, sharding, lanes_from(sharding.mesh(), 4, 3, 1)));
  flip(header_ + 5);
  EXPECT_THROWS(load(disk(), P("data"), 4, 3), Error, shard_ + " has SHA-256 checksum ");
}

TEST(CheckpointPieces, SavingDoesNotGatherShardedArrays) {
  const TempDir dir;
  std::mt19937 random(4);
  const Array whole = random_array(random, {300, 500}, f32);
  const Mesh mesh = make_mesh({{"data", 8}});
  for (const PartitionSpec& spec : {P("data"), P({}, "data")}) {
    const Array cut = in_pieces(whole, NamedSharding(mesh, spec), lanes_from(mesh, 4, 0, 4));
    const std::string path = save_checkpoint(dir.path(), {.step = 1, .arrays = {{"w", cut}}});
    EXPECT_FALSE(cut.node()->host);
    EXPECT_EQ(bytes_of(load_checkpoint(path).arrays.at(0).second), bytes_of(whole));
    Checkpointer background({.dir = dir.path() + "/background"});
    background.save({.step = 1, .arrays = {{"w", cut}}});
    background.wait();
    EXPECT_TRUE(background.failures().empty());
    EXPECT_FALSE(cut.node()->host);
    EXPECT_EQ(bytes_of(load_checkpoint(dir.path() + "/background/step_00000001").arrays.at(0).second), bytes_of(whole));
  }
}

class CollectivelySavedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(6);
    const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
    const Array w = random_array(random, {6, 10}, f32), v = random_array(random, {4}, f32);
    for (int64_t p = 0; p < 2; ++p)
      parts_.push_back({.step = 5,
                        .arrays = {{"w", in_pieces(w, NamedSharding(mesh, P("data")), lanes_from(mesh, 4, 2 * p, 2))},
                                   {"v", in_pieces(v, NamedSharding(mesh, P()), lanes_from(mesh, 4, 2 * p, 2))}}});
  }
  const TempDir dir_;
  std::vector<Checkpoint> parts_;
};

// Lanes 0 and 1 hold the first rows, 2 and 3 the others; "v" is replicated.
TEST_F(CollectivelySavedCheckpoint, EachPieceIsWrittenOnceByTheLowestLane) {
  const std::string path = save_in_parts(dir_.path(), parts_, int64_t{1} << 30);
  const CheckpointInfo info = inspect_checkpoint(path, true);
  ASSERT_EQ(info.shards.size(), 2u);
  EXPECT_EQ(info.shards[0].file, "shard-00000-of-00001-process-00000-of-00002.safetensors");
  EXPECT_EQ(info.shards[1].file, "shard-00000-of-00001-process-00001-of-00002.safetensors");
  ASSERT_EQ(info.entries.at(0).pieces.size(), 2u);
  EXPECT_EQ(info.entries[0].pieces[0].box, (IndexBox{{0, 3}, {0, 10}}));
  EXPECT_EQ(info.entries[0].pieces[1].box, (IndexBox{{3, 6}, {0, 10}}));
  EXPECT_EQ(info.entries[0].pieces[1].shard, info.shards[1].file);
  EXPECT_EQ(detail::tensor_name(info.entries[0], info.entries[0].pieces[1]), "w[3:6, 0:10]");
  ASSERT_EQ(info.entries.at(1).pieces.size(), 1u);
  EXPECT_EQ(info.entries[1].pieces[0].shard, info.shards[0].file);
}

TEST_F(CollectivelySavedCheckpoint, InconsistentPartsAreRejected) {
  const auto info = [&](size_t p, const std::function<void(Checkpoint&)>& change = {}) {
    Checkpoint checkpoint = parts_[p];
    if (change) change(checkpoint);
    return detail::contents_of(checkpoint, {static_cast<int64_t>(p), 2}).info;
  };
  EXPECT_NO_THROW(detail::merge_parts({info(0), info(1)}));
  EXPECT_THROWS(detail::merge_parts({info(0)}), Error, "the pieces of \"w\" have 30 of its 60 elements");
  EXPECT_THROWS(detail::merge_parts({info(0), info(0)}), Error,
                "pieces w[0:3, 0:10] and w[0:3, 0:10] of \"w\" overlap");
  EXPECT_THROWS(detail::merge_parts({info(0), info(1, [](Checkpoint& c) { c.step = 6; })}), Error,
                "process 1 saved 2 arrays of step 6, but process 0 saved 2 of step 5");
  EXPECT_THROWS(detail::merge_parts({info(0), info(1, [](Checkpoint& c) { c.arrays[1].first = "u"; })}), Error,
                "array 1 is \"u\", f32[4], on process 1, but \"v\", f32[4], on process 0");
}

TEST_F(CollectivelySavedCheckpoint, InconsistentManifestIsRejected) {
  const std::string path = save_in_parts(dir_.path(), parts_, int64_t{1} << 30), manifest = path + "/manifest.json";
  const Bytes text = disk().read_file(manifest);
  const auto expect_rejected = [&](const std::string& part,
                                   const std::function<void(nlohmann::ordered_json&)>& change) {
    forge(manifest, change);
    EXPECT_THROWS(load_checkpoint(path), Error, part);
    disk().write(manifest, text);
  };
  using J = nlohmann::ordered_json;
  EXPECT_NO_THROW(load_checkpoint(path));
  expect_rejected("array \"w\" has a piece from [0, 0] to [3, 11], which is not a part of f32[6,10]",
                  [](J& j) { j["arrays"][0]["pieces"][0]["end"][1] = 11; });
  expect_rejected("which is not a part of", [](J& j) { j["arrays"][0]["pieces"][0]["begin"] = {0}; });
  expect_rejected("have 57 of its 60 elements", [](J& j) { j["arrays"][0]["pieces"][0]["end"] = {3, 9}; });
  expect_rejected("overlap", [](J& j) { j["arrays"][0]["pieces"][0]["end"][0] = 4; });
  expect_rejected("is in x, which is not a shard", [](J& j) { j["arrays"][0]["pieces"][1]["shard"] = "x"; });
}

TEST_F(CollectivelySavedCheckpoint, FlippedByteIsDetected) {
  const std::string path = save_in_parts(dir_.path(), parts_, int64_t{1} << 30);
  for (const CheckpointShard& shard : inspect_checkpoint(path).shards) {
    const std::string file = path + "/" + shard.file;
    const Bytes original = disk().read_file(file);
    for (size_t at = 0; at < original.size(); at += 7) {
      Bytes damaged = original;
      damaged[at] ^= 1;
      std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(damaged.data()), std::ssize(damaged));
      EXPECT_THROWS(load_checkpoint(path), Error, file);
    }
    disk().write(file, original);
  }
  EXPECT_NO_THROW(load_checkpoint(path));
}

TEST(CheckpointPieces, ShardingLongerThanTheRankIsRejected) {
  const TempDir dir;
  const std::string path = save_checkpoint(dir.path(), small_checkpoint(5));
  const Mesh mesh = make_mesh({{"data", 8}});
  const LoadOptions options{
      .sharding = [&](const std::string&, const Type&) { return NamedSharding(mesh, P({}, {}, "data")); }};
  EXPECT_THROWS(load_checkpoint(path, options), Error, "3");
}

TEST(Manifest, RoundTripsShardsWithoutChunks) {
  CheckpointInfo info;
  info.format = detail::kWholeFormat;
  info.shards.push_back({"shard-00000-of-00001.safetensors", 8, std::string(64, '0'), 0, {}});
  const std::string text = detail::encode_manifest(info);
  EXPECT_EQ(text.find("chunk"), text.npos);
  EXPECT_EQ(detail::encode_manifest(detail::decode_manifest(text, "manifest.json")), text);
}

}  // namespace
}  // namespace lockstep
