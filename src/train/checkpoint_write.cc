// Writing checkpoints.
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "array/node.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/printable.h"
#include "base/text_bytes.h"
#include "lockstep/version.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_io.h"
#include "train/manifest.h"
#include "train/overlap.h"
#include "train/safetensors.h"

namespace lockstep::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints contain arrays in little-endian byte order");

// Bytes are hashed and written in windows that fit the cache.
constexpr int64_t kWriteWindow = int64_t{1} << 20;

using Bytes = std::span<const uint8_t>;

// The index of a mesh in `meshes`, compared by names and sizes of axes; a new mesh is appended. -1 for a mesh without
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

// The pieces of an array on this process's lanes, except those that a lower lane also holds.
std::vector<CheckpointSource> own_pieces(const LanePieces& pieces, const Type& type) {
  std::vector<CheckpointSource> out;
  std::vector<IndexBox> seen;
  for (size_t lane = 0; lane < pieces.buffers.size(); ++lane) {
    IndexBox box = lane_box(pieces.grid, pieces.lane_spec, type.shape, static_cast<int64_t>(lane));
    if (std::find(seen.begin(), seen.end(), box) != seen.end()) continue;
    seen.push_back(box);
    const BufferPtr& buffer = pieces.buffers[lane];
    if (!buffer) continue;
    const Type piece = piece_type(type, box);
    if (piece.bytes() > 0 || type.bytes() == 0)
      out.push_back({std::move(box), {buffer->as<const uint8_t>(), static_cast<size_t>(piece.bytes())}});
  }
  return out;
}

// Adds the memory of an array to `contents`, and the pieces in which it is written to `entry`.
void add_array(CheckpointContents& contents, const Array& array, CheckpointEntry& entry) {
  const IndexBox whole = whole_box(entry.type.shape);
  const Node& node = *array.node();
  std::vector<CheckpointSource>& sources = contents.data.emplace_back();
  if (node.kind == Node::Kind::concrete && node.pieces.divided && node.pieces.divided->is_sharded()) {
    sources = own_pieces(*node.pieces.divided, entry.type);
    if (contents.writer.count > 1 && node.pieces.divided->across_processes) {
      for (const CheckpointSource& source : sources) entry.pieces.push_back({source.box, {}, 0});
      return;
    }
  } else {
    const BufferPtr& buffer = buffer_of(array, "save_checkpoint");
    sources.push_back({whole, {buffer->as<const uint8_t>(), static_cast<size_t>(entry.type.bytes())}});
  }
  if (contents.writer.index == 0)
    entry.pieces.push_back({whole, {}, 0});
  else
    sources.clear();
}

// A piece of an array: the index of its entry, and of the piece in the entry.
struct PieceIndex {
  size_t entry, piece;
};
using ShardPieces = std::vector<PieceIndex>;  // by offset

CheckpointPiece& piece_of(CheckpointInfo& info, const PieceIndex& item) {
  return info.entries[item.entry].pieces[item.piece];
}
Type type_of(const CheckpointInfo& info, const PieceIndex& item) {
  const CheckpointEntry& entry = info.entries[item.entry];
  return piece_type(entry.type, entry.pieces[item.piece].box);
}

// Assigns a shard and an offset to each piece.
std::vector<ShardPieces> assign_offsets(CheckpointInfo& info, const WriterRank& writer, int64_t shard_bytes) {
  std::vector<ShardPieces> shards;
  int64_t bytes = 0;
  for (size_t i = 0; i < info.entries.size(); ++i)
    for (size_t k = 0; k < info.entries[i].pieces.size(); ++k) {
      const int64_t more = type_of(info, {i, k}).bytes();
      if (shards.empty() || (bytes > 0 && more > shard_bytes - bytes)) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().push_back({i, k});
      bytes += more;
    }
  for (size_t s = 0; s < shards.size(); ++s) {
    std::string file = fmt::format("shard-{:05}-of-{:05}", s, shards.size());
    if (writer.count > 1) file += fmt::format("-process-{:05}-of-{:05}", writer.index, writer.count);
    info.shards.push_back({.file = file + ".safetensors", .sha256 = {}, .chunks = {}});
    std::vector<Type> types;
    for (const PieceIndex& item : shards[s]) types.push_back(type_of(info, item));
    ShardPieces ordered;
    int64_t offset = 0;
    for (size_t index : safetensors_order(types)) {
      ordered.push_back(shards[s][index]);
      CheckpointPiece& piece = piece_of(info, ordered.back());
      piece.shard = info.shards[s].file;
      piece.offset = std::exchange(offset, offset + types[index].bytes());
    }
    shards[s] = std::move(ordered);
  }
  return shards;
}

// Writes a shard sequentially and computes its checksums: of the file and of its chunks.
class HashingWriter {
 public:
  HashingWriter(FileSystem& files, const std::string& folder, CheckpointShard& shard)
      : file_(files.create(folder + "/" + shard.file)), shard_(shard) {
    shard_.chunk_bytes = kChunkBytes;
  }

  void write(Bytes bytes) {
    while (!bytes.empty()) {
      const Bytes part = bytes.first(std::min(bytes.size(), static_cast<size_t>(kWriteWindow)));
      file_hash_.update(part);
      add_to_chunks(part);
      file_->write(part);
      bytes = bytes.subspan(part.size());
    }
  }

  void finish() {
    if (shard_.bytes % kChunkBytes != 0) end_chunk();
    file_->finish();
    shard_.sha256 = file_hash_.hex();
  }

 private:
  void add_to_chunks(Bytes bytes) {
    while (!bytes.empty()) {
      const int64_t room = kChunkBytes - shard_.bytes % kChunkBytes;
      const Bytes part = bytes.first(std::min(bytes.size(), static_cast<size_t>(room)));
      chunk_.update(part);
      shard_.bytes += static_cast<int64_t>(part.size());
      bytes = bytes.subspan(part.size());
      if (shard_.bytes % kChunkBytes == 0) end_chunk();
    }
  }
  void end_chunk() { shard_.chunks.push_back(std::exchange(chunk_, Sha256()).hex()); }

  std::unique_ptr<FileWriter> file_;
  CheckpointShard& shard_;
  Sha256 file_hash_, chunk_;
};

// Writes a piece from the parts of the array in memory, a window at a time.
void write_piece(HashingWriter& out, const Type& type, const IndexBox& box,
                 const std::vector<CheckpointSource>& sources) {
  for (const CheckpointSource& source : sources)
    if (source.box == box) return out.write(source.bytes);
  std::vector<Overlap> walks;
  for (const CheckpointSource& source : sources) walks.emplace_back(box, source.box, size_of(type.dtype));
  std::vector<uint8_t> window;
  for (int64_t begin = 0; begin < type.bytes(); begin += kWriteWindow) {
    const int64_t end = std::min(begin + kWriteWindow, type.bytes());
    window.resize(static_cast<size_t>(end - begin));
    for (size_t k = 0; k < walks.size(); ++k)
      for (Overlap& walk = walks[k]; !walk.done() && walk.in_a() < end;) {
        const int64_t n = std::min(walk.bytes(), end - walk.in_a());
        std::memcpy(window.data() + (walk.in_a() - begin), sources[k].bytes.data() + walk.in_b(),
                    static_cast<size_t>(n));
        walk.skip(n);
      }
    out.write(window);
  }
}

void write_shard(FileSystem& files, const std::string& folder, CheckpointContents& contents, const ShardPieces& items,
                 CheckpointShard& shard) {
  CheckpointInfo& info = contents.info;
  std::vector<SafetensorsEntry> tensors;
  for (const PieceIndex& item : items) {
    const CheckpointEntry& entry = info.entries[item.entry];
    const CheckpointPiece& piece = entry.pieces[item.piece];
    tensors.push_back({tensor_name(entry, piece), type_of(info, item), piece.offset});
  }
  HashingWriter out(files, folder, shard);
  out.write(
      text_bytes(encode_safetensors(tensors, {{"written_by", info.written_by}, {"step", std::to_string(info.step)}})));
  for (const PieceIndex& item : items)
    write_piece(out, type_of(info, item), piece_of(info, item).box, contents.data[item.entry]);
  out.finish();
}

}  // namespace

CheckpointContents contents_of(const Checkpoint& checkpoint, const WriterRank& writer) {
  if (checkpoint.step < 0) throw_error("save_checkpoint: the step is {}; give a step of at least 0", checkpoint.step);
  CheckpointContents out{.info = {}, .data = {}, .writer = writer};
  out.info = {.path = {},
              .format = writer.count > 1 ? kPiecesFormat : kWholeFormat,
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
      throw_error("save_checkpoint: \"{}\" is not a valid array name; choose another one, in UTF-8", printable(name));
    if (!names.insert(name).second) throw_error("save_checkpoint: two arrays are named \"{}\"; rename one", name);
    const NamedSharding sharding = array.sharding();
    out.info.entries.push_back({.name = name,
                                .type = {array.dtype(), array.shape()},
                                .spec = to_string(sharding.spec()),
                                .partition = sharding.spec(),
                                .mesh = mesh_index(sharding.mesh(), out.info.meshes),
                                .pieces = {}});
    add_array(out, array, out.info.entries.back());
  }
  out.info.mesh = describe_meshes(out.info.meshes);
  static_cast<void>(encode_manifest(out.info));  // throws early if the manifest is invalid
  return out;
}

CheckpointInfo write_part(FileSystem& files, const std::string& folder, CheckpointContents contents,
                          int64_t shard_bytes) {
  const std::vector<ShardPieces> shards = assign_offsets(contents.info, contents.writer, shard_bytes);
  for (size_t s = 0; s < shards.size(); ++s) write_shard(files, folder, contents, shards[s], contents.info.shards[s]);
  return std::move(contents.info);
}

void write_manifest(FileSystem& files, const std::string& folder, const CheckpointInfo& info) {
  const std::unique_ptr<FileWriter> manifest = files.create(folder + "/" + kManifest);
  manifest->write(text_bytes(encode_manifest(info)));
  manifest->finish();
}

CheckpointInfo merge_parts(const std::vector<CheckpointInfo>& parts) {
  CheckpointInfo out = parts.at(0);
  for (size_t p = 1; p < parts.size(); ++p) {
    const CheckpointInfo& part = parts[p];
    if (part.step != out.step || part.entries.size() != out.entries.size())
      throw_error(
          "checkpoint: process {} saved {} arrays of step {}, but process 0 saved {} of step {}; save the same state "
          "in all processes",
          p, part.entries.size(), part.step, out.entries.size(), out.step);
    for (size_t i = 0; i < out.entries.size(); ++i) {
      const CheckpointEntry &theirs = part.entries[i], &first = out.entries[i];
      if (theirs.name != first.name || theirs.type != first.type)
        throw_error(
            "checkpoint: array {} is \"{}\", {}, on process {}, but \"{}\", {}, on process 0; save the same state in "
            "all processes",
            i, theirs.name, to_string(theirs.type), p, first.name, to_string(first.type));
      out.entries[i].pieces.insert(out.entries[i].pieces.end(), theirs.pieces.begin(), theirs.pieces.end());
    }
    out.shards.insert(out.shards.end(), part.shards.begin(), part.shards.end());
  }
  check_complete(out);
  return out;
}

WrittenCheckpoint write_checkpoint(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                   int64_t shard_bytes) {
  const int64_t step = contents.info.step;
  if (!files.exists(dir)) {
    files.make_dirs(dir);
    files.sync_dir(parent_dir(dir));
  }
  WrittenCheckpoint out{.path = dir + "/" + step_name(step), .problems = recover_folder(files, dir)};
  StagedCheckpoint staged(files, dir, step);
  files.make_dirs(staged.path());
  write_manifest(files, staged.path(), write_part(files, staged.path(), std::move(contents), shard_bytes));
  files.sync_dir(staged.path());
  for (std::string& problem : staged.install()) out.problems.push_back(std::move(problem));
  return out;
}

}  // namespace lockstep::detail
