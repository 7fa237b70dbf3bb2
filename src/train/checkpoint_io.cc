#include "train/checkpoint_io.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "array/node.h"
#include "base/check.h"
#include "lockstep/version.h"
#include "train/checkpoint_folder.h"
#include "train/json.h"
#include "train/manifest.h"
#include "train/safetensors.h"
#include "train/sha256.h"

namespace lockstep::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints hold the bytes of arrays as they lie in memory");

// Bytes are hashed while the cache still has them.
constexpr size_t kPiece = size_t{1} << 20;

using Bytes = std::span<const uint8_t>;
Bytes bytes_of(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

// The place of a mesh among `meshes`, by the names and sizes of its axes, where it is put if it is new; -1 without
// axes.
int mesh_index(const Mesh& mesh, std::vector<std::vector<MeshAxis>>& meshes) {
  if (mesh.axis_names().empty()) return -1;
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < mesh.shape().size(); ++i) axes.emplace_back(mesh.axis_names()[i], mesh.shape()[i]);
  const auto same = [&](const std::vector<MeshAxis>& other) {
    return std::equal(axes.begin(), axes.end(), other.begin(), other.end(),
                      [](const MeshAxis& a, const MeshAxis& b) { return a.name == b.name && a.size == b.size; });
  };
  const auto at = std::find_if(meshes.begin(), meshes.end(), same);
  if (at != meshes.end()) return static_cast<int>(at - meshes.begin());
  meshes.push_back(std::move(axes));
  return static_cast<int>(meshes.size()) - 1;
}

// The entries of one shard, in the order of their bytes.
using ShardEntries = std::vector<size_t>;

// Decides where each array goes: fills in shards and offsets.
std::vector<ShardEntries> lay_out(CheckpointInfo& info, int64_t shard_bytes) {
  std::vector<ShardEntries> shards;
  int64_t bytes = 0;
  for (size_t i = 0; i < info.entries.size(); ++i) {
    const int64_t more = info.entries[i].type.bytes();
    if (shards.empty() || (bytes > 0 && more > shard_bytes - bytes)) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(i);
    bytes += more;
  }
  for (size_t s = 0; s < shards.size(); ++s) {
    info.shards.push_back({.file = fmt::format("shard-{:05}-of-{:05}.safetensors", s, shards.size()), .sha256 = {}});
    std::vector<Type> types;
    for (size_t i : shards[s]) types.push_back(info.entries[i].type);
    ShardEntries ordered;
    int64_t offset = 0;
    for (size_t place : safetensors_order(types)) {
      CheckpointEntry& entry = info.entries[ordered.emplace_back(shards[s][place])];
      entry.shard = info.shards[s].file;
      entry.offset = std::exchange(offset, offset + entry.type.bytes());
    }
    shards[s] = std::move(ordered);
  }
  return shards;
}

std::vector<SafetensorsEntry> tensors_of(const CheckpointInfo& info, const ShardEntries& entries) {
  std::vector<SafetensorsEntry> tensors;
  for (size_t i : entries) tensors.push_back({info.entries[i].name, info.entries[i].type, info.entries[i].offset});
  return tensors;
}

void write_shard(FileSystem& files, const std::string& folder, const CheckpointContents& contents,
                 const ShardEntries& entries, CheckpointShard& shard) {
  const CheckpointInfo& info = contents.info;
  const std::string header = encode_safetensors(tensors_of(info, entries),
                                                {{"written_by", info.written_by}, {"step", std::to_string(info.step)}});
  const std::unique_ptr<FileWriter> file = files.create(folder + "/" + shard.file);
  Sha256 sum;
  const auto put = [&](Bytes bytes) {
    shard.bytes += static_cast<int64_t>(bytes.size());
    while (!bytes.empty()) {
      const Bytes piece = bytes.first(std::min(bytes.size(), kPiece));
      sum.update(piece);
      file->write(piece);
      bytes = bytes.subspan(piece.size());
    }
  };
  put(bytes_of(header));
  for (size_t i : entries) put(contents.data[i]);
  file->finish();
  shard.sha256 = sum.hex();
}

[[noreturn]] void refuse(const std::string& file, const std::string& fact) {
  throw_error("checkpoint: {} {}; the checkpoint is not whole: use another one", file, fact);
}

void check_size(FileSystem& files, const std::string& path, const CheckpointShard& shard) {
  if (!files.exists(path)) refuse(path, "is missing");
  if (const int64_t bytes = files.size(path); bytes != shard.bytes)
    refuse(path, fmt::format("has {} bytes, and the manifest says {}", bytes, shard.bytes));
}

// Reads a file in order, once, and hashes what it reads.
class HashedReader {
 public:
  HashedReader(FileSystem& files, const std::string& path) : file_(files.open(path)), path_(path) {}

  void read(std::span<uint8_t> out) {
    while (!out.empty()) {
      const std::span<uint8_t> piece = out.first(std::min(out.size(), kPiece));
      const size_t n = file_->read(at_, piece);
      if (n < piece.size()) refuse(path_, fmt::format("ends after {} bytes", at_ + static_cast<int64_t>(n)));
      sum_.update(piece);
      at_ += static_cast<int64_t>(n);
      out = out.subspan(n);
    }
  }
  void check(const CheckpointShard& shard) {
    if (const std::string sum = sum_.hex(); sum != shard.sha256)
      refuse(path_, fmt::format("has the SHA-256 sum {}, and the manifest says {}", sum, shard.sha256));
  }

 private:
  std::unique_ptr<OpenFile> file_;
  const std::string& path_;
  int64_t at_ = 0;
  Sha256 sum_;
};

void verify_sum(FileSystem& files, const std::string& path, const CheckpointShard& shard) {
  HashedReader reader(files, path);
  std::vector<uint8_t> piece;
  for (int64_t left = shard.bytes; left > 0; left -= static_cast<int64_t>(piece.size())) {
    piece.resize(std::min(static_cast<size_t>(left), kPiece));
    reader.read(piece);
  }
  reader.check(shard);
}

// Fills arrays[i] for every entry of the shard.
void read_shard(FileSystem& files, const CheckpointInfo& info, const CheckpointShard& shard,
                std::vector<std::pair<std::string, Array>>& arrays) {
  const std::string path = info.path + "/" + shard.file;
  ShardEntries entries;
  for (size_t i = 0; i < info.entries.size(); ++i)
    if (info.entries[i].shard == shard.file) entries.push_back(i);
  const auto place = [&](size_t i) { return std::pair(info.entries[i].offset, info.entries[i].type.bytes()); };
  std::sort(entries.begin(), entries.end(), [&](size_t a, size_t b) {
    return place(a) != place(b) ? place(a) < place(b) : info.entries[a].name < info.entries[b].name;
  });
  int64_t data_bytes = 0;
  for (size_t i : entries) {
    const CheckpointEntry& entry = info.entries[i];
    if (entry.offset != data_bytes || entry.type.bytes() > shard.bytes - data_bytes)
      refuse(info.path + "/" + kManifest,
             fmt::format("puts \"{}\" at byte {} of {}, where it does not fit", entry.name, entry.offset, shard.file));
    data_bytes += entry.type.bytes();
  }
  HashedReader reader(files, path);
  std::vector<uint8_t> header(static_cast<size_t>(shard.bytes - data_bytes));
  reader.read(header);
  for (size_t i : entries) {
    const Type& type = info.entries[i].type;
    BufferPtr buffer = allocate(type.bytes());
    reader.read({buffer->as<uint8_t>(), static_cast<size_t>(type.bytes())});
    arrays[i] = {info.entries[i].name, concrete(intern(type), std::move(buffer))};
  }
  reader.check(shard);

  std::vector<SafetensorsEntry> wanted = tensors_of(info, entries);
  std::vector<SafetensorsEntry> got = read_safetensors_header(files, path).tensors;
  const auto by_name = [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; };
  std::sort(wanted.begin(), wanted.end(), by_name);
  std::sort(got.begin(), got.end(), by_name);
  if (wanted != got) refuse(path, "has other arrays than the manifest says");
}

}  // namespace

CheckpointContents contents_of(const Checkpoint& checkpoint) {
  if (checkpoint.step < 0) throw_error("save_checkpoint: step {}; steps count from 0", checkpoint.step);
  CheckpointContents out;
  out.info = {.path = {},
              .format = kCheckpointFormat,
              .written_by = "lockstep " LOCKSTEP_VERSION,
              .step = checkpoint.step,
              .cursor = checkpoint.cursor,
              .seed = checkpoint.seed,
              .mesh = {},
              .meshes = {},
              .entries = {},
              .shards = {},
              .config = checkpoint.config,
              .metrics = checkpoint.metrics};
  std::set<std::string_view> names;
  for (const auto& [name, array] : checkpoint.arrays) {
    if (name.empty() || name == "__metadata__" || !is_utf8(name))
      throw_error("save_checkpoint: {} is no name for an array; choose another, in UTF-8", printable(name));
    if (!names.insert(name).second) throw_error("save_checkpoint: two arrays are called \"{}\"; rename one", name);
    const Type type = {array.dtype(), array.shape()};
    const BufferPtr& buffer = buffer_of(array, "save_checkpoint");
    out.data.emplace_back(buffer->as<const uint8_t>(), static_cast<size_t>(type.bytes()));
    const NamedSharding sharding = array.sharding();
    out.info.entries.push_back({.name = name,
                                .type = type,
                                .spec = to_string(sharding.spec()),
                                .partition = sharding.spec(),
                                .mesh = mesh_index(sharding.mesh(), out.info.meshes),
                                .shard = {},
                                .offset = 0});
  }
  out.info.mesh = describe_meshes(out.info.meshes);
  static_cast<void>(encode_manifest(out.info));  // throws here rather than when it is written
  return out;
}

WrittenCheckpoint write_checkpoint(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                   int64_t shard_bytes) {
  CheckpointInfo& info = contents.info;
  if (!files.exists(dir)) {
    files.make_dirs(dir);
    files.sync_dir(parent_dir(dir));
  }
  WrittenCheckpoint out{.path = dir + "/" + step_name(info.step), .problems = tidy(files, dir)};
  const std::vector<ShardEntries> shards = lay_out(info, shard_bytes);
  StagedCheckpoint staged(files, dir, info.step);
  files.make_dirs(staged.path());
  for (size_t s = 0; s < shards.size(); ++s) write_shard(files, staged.path(), contents, shards[s], info.shards[s]);
  const std::unique_ptr<FileWriter> manifest = files.create(staged.path() + "/" + kManifest);
  manifest->write(bytes_of(encode_manifest(info)));
  manifest->finish();
  files.sync_dir(staged.path());
  for (std::string& problem : staged.install()) out.problems.push_back(std::move(problem));
  return out;
}

CheckpointInfo read_info(FileSystem& files, const std::string& path, bool verify) {
  const std::string folder = locate_checkpoint(files, path);
  const std::string manifest = folder + "/" + kManifest;
  if (!files.exists(folder)) throw_error("checkpoint: {} is not there; check the path", folder);
  if (!files.exists(manifest))
    throw_error("checkpoint: {} is no checkpoint, or not a whole one: it has no {}; check the path, or use another one",
                folder, kManifest);
  const std::vector<uint8_t> text = files.read_file(manifest);
  CheckpointInfo info = decode_manifest({reinterpret_cast<const char*>(text.data()), text.size()}, manifest);
  info.path = folder;
  for (const CheckpointShard& shard : info.shards) check_size(files, folder + "/" + shard.file, shard);
  if (verify)
    for (const CheckpointShard& shard : info.shards) verify_sum(files, folder + "/" + shard.file, shard);
  return info;
}

Checkpoint read_checkpoint(FileSystem& files, const std::string& path) {
  const CheckpointInfo info = read_info(files, path, false);
  Checkpoint out{.step = info.step,
                 .cursor = info.cursor,
                 .seed = info.seed,
                 .arrays = {},
                 .config = info.config,
                 .metrics = info.metrics};
  out.arrays.resize(info.entries.size());
  for (const CheckpointShard& shard : info.shards) read_shard(files, info, shard, out.arrays);
  return out;
}

}  // namespace lockstep::detail
