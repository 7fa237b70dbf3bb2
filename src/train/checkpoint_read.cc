// Reading checkpoints. The needed parts of a shard are read in windows of complete chunks. Each chunk is verified
// before data is copied from it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "array/node.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/printable.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_io.h"
#include "train/manifest.h"
#include "train/overlap.h"
#include "train/safetensors.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kReadWindow = int64_t{1} << 20;

[[noreturn]] void throw_damaged(const std::string& file, const std::string& fact) {
  throw_error("checkpoint: {} {}; the checkpoint is damaged: use another one", file, fact);
}

void check_size(FileSystem& files, const std::string& path, const CheckpointShard& shard) {
  if (!files.exists(path)) throw_damaged(path, "is missing");
  if (const int64_t bytes = files.size(path); bytes != shard.bytes)
    throw_damaged(path, fmt::format("has {} bytes, but the manifest says {}", bytes, shard.bytes));
}

// A copy from a shard to a buffer: the intersection of a stored piece and a needed box.
struct PieceCopy {
  Overlap walk;   // a: the piece in the file; b: the buffer
  int64_t begin;  // of the piece, in the file
  std::byte* to;
};

// Reads and verifies parts of a shard, in the order of the file.
class ShardReader {
 public:
  ShardReader(FileSystem& files, const std::string& path, const CheckpointShard& shard)
      : file_(files.open(path)),
        path_(path),
        shard_(shard),
        // Without checksums of chunks the complete file must be read to verify it.
        chunk_(shard.chunk_bytes > 0 ? shard.chunk_bytes : kReadWindow),
        needed_(static_cast<size_t>((shard.bytes + chunk_ - 1) / chunk_), shard.chunk_bytes == 0) {}

  // Schedule bytes to be read: a range, all, or those of a copy, which is then made.
  void add(int64_t begin, int64_t end) {
    for (int64_t chunk = begin / chunk_; chunk * chunk_ < end; ++chunk) needed_[static_cast<size_t>(chunk)] = true;
  }
  void add_all() { add(0, shard_.bytes); }
  void add(const PieceCopy& copy) {
    for (Overlap walk = copy.walk; !walk.done(); walk.skip(walk.bytes()))
      add(copy.begin + walk.in_a(), copy.begin + walk.in_a() + walk.bytes());
    copies_.push_back(copy);
  }

  // Reads, verifies and copies everything that was added.
  void run() {
    const auto chunks = static_cast<int64_t>(needed_.size());
    for (int64_t first = 0, last = 0; first < chunks; first = last) {
      last = first + 1;
      if (!needed_[static_cast<size_t>(first)]) continue;
      while (last < chunks && needed_[static_cast<size_t>(last)] && (last + 1 - first) * chunk_ <= kReadWindow) ++last;
      read(first * chunk_, std::min(last * chunk_, shard_.bytes));
      for (int64_t chunk = first; chunk < last; ++chunk) verify(chunk);
      for (PieceCopy& copy : copies_) copy_from_window(copy);
    }
    if (shard_.chunk_bytes == 0) check(file_hash_.hex(), shard_.sha256);
  }

 private:
  void check(const std::string& actual, const std::string& expected) const {
    if (actual != expected)
      throw_damaged(path_, fmt::format("has SHA-256 checksum {}, but the manifest says {}", actual, expected));
  }

  void read(int64_t begin, int64_t end) {
    begin_ = begin;
    window_.resize(static_cast<size_t>(end - begin));
    const size_t n = file_->read(begin, window_);
    if (n < window_.size()) throw_damaged(path_, fmt::format("ends after {} bytes", begin + static_cast<int64_t>(n)));
  }

  void verify(int64_t chunk) {
    const int64_t begin = chunk * chunk_ - begin_, end = std::min(begin + chunk_, std::ssize(window_));
    const std::span<const uint8_t> bytes(window_.data() + begin, static_cast<size_t>(end - begin));
    if (shard_.chunk_bytes == 0) return file_hash_.update(bytes);
    const std::string actual = sha256_hex(bytes), &expected = shard_.chunks[static_cast<size_t>(chunk)];
    if (actual != expected)
      throw_damaged(path_, fmt::format("has SHA-256 checksum {} in bytes {} to {}, but the manifest says {}", actual,
                                       chunk * chunk_, chunk * chunk_ + (end - begin), expected));
  }

  void copy_from_window(PieceCopy& copy) {
    const int64_t end = begin_ + std::ssize(window_);
    while (!copy.walk.done()) {
      const int64_t at = copy.begin + copy.walk.in_a();
      if (at >= end) return;
      const int64_t n = std::min(copy.walk.bytes(), end - at);
      std::memcpy(copy.to + copy.walk.in_b(), window_.data() + (at - begin_), static_cast<size_t>(n));
      copy.walk.skip(n);
    }
  }

  std::unique_ptr<OpenFile> file_;
  const std::string& path_;
  const CheckpointShard& shard_;
  int64_t chunk_;
  std::vector<bool> needed_;  // by chunk
  std::vector<PieceCopy> copies_;
  std::vector<uint8_t> window_;  // the bytes read last
  int64_t begin_ = 0;            // their position in the file
  Sha256 file_hash_;             // without chunks: of all bytes read
};

// An array being loaded: the parts that this process needs, and their memory.
struct ArrayLoad {
  struct Part {
    IndexBox box;
    BufferPtr buffer;
  };
  bool wanted = true;
  std::vector<Part> parts = {};
  NamedSharding sharding = {};
  std::shared_ptr<LanePieces> pieces = {};  // null: the complete array is loaded
};

ArrayLoad prepare(const CheckpointEntry& entry, const NamedSharding& sharding, const LanesOf& lanes_of_mesh) {
  ArrayLoad out;
  out.sharding = sharding;
  const auto part = [&](IndexBox box) -> const BufferPtr& {
    for (const ArrayLoad::Part& known : out.parts)
      if (known.box == box) return known.buffer;
    BufferPtr buffer = allocate(piece_type(entry.type, box).bytes());
    return out.parts.emplace_back(ArrayLoad::Part{std::move(box), std::move(buffer)}).buffer;
  };
  if (sharding.defined()) {
    sharding.index_box(entry.type.shape, 0);  // throws if the spec is longer than the rank
    const MeshLanes lanes = lanes_of_mesh(sharding.mesh());
    LanePieces pieces{
        lanes.grid, to_lane_spec(lanes.grid, sharding.spec(), entry.type.shape.size()), {}, lanes.across_processes};
    if (pieces.is_sharded()) {
      pieces.buffers.resize(static_cast<size_t>(lanes.grid.lanes()));
      for (int64_t lane = lanes.first_local; lane < lanes.first_local + lanes.local_count; ++lane)
        pieces.buffers[static_cast<size_t>(lane)] =
            part(lane_box(pieces.grid, pieces.lane_spec, entry.type.shape, lane));
      out.pieces = std::make_shared<LanePieces>(std::move(pieces));
      return out;
    }
  }
  part(whole_box(entry.type.shape));
  return out;
}

Array finished(const CheckpointEntry& entry, ArrayLoad loads) {
  const Type* type = intern(entry.type);
  if (loads.pieces) return concrete(type, std::move(loads.pieces), loads.sharding);
  return concrete(type, std::move(loads.parts[0].buffer), loads.sharding);
}

// A piece of an array in a shard, according to the manifest.
struct StoredPiece {
  size_t entry;
  const CheckpointPiece* piece;
  SafetensorsEntry tensor;
};

// The pieces in a shard, by offset. Throws Error unless they are contiguous and fit the shard.
std::vector<StoredPiece> pieces_in_shard(const CheckpointInfo& info, const CheckpointShard& shard) {
  std::vector<StoredPiece> out;
  for (size_t i = 0; i < info.entries.size(); ++i)
    for (const CheckpointPiece& piece : info.entries[i].pieces)
      if (piece.shard == shard.file)
        out.push_back(
            {i,
             &piece,
             {tensor_name(info.entries[i], piece), piece_type(info.entries[i].type, piece.box), piece.offset}});
  std::sort(out.begin(), out.end(), [](const StoredPiece& a, const StoredPiece& b) {
    const auto key = [](const SafetensorsEntry& t) { return std::tuple(t.offset, t.type.bytes(), t.name); };
    return key(a.tensor) < key(b.tensor);
  });
  int64_t bytes = 0;
  for (const auto& [entry, piece, tensor] : out) {
    if (tensor.offset != bytes || tensor.type.bytes() > shard.bytes - bytes)
      throw_damaged(info.path + "/" + kManifest,
                    fmt::format("places \"{}\" at byte {} of {}, where it does not fit", printable(tensor.name),
                                tensor.offset, printable(shard.file)));
    bytes += tensor.type.bytes();
  }
  return out;
}

void read_shard(FileSystem& files, const CheckpointInfo& info, const CheckpointShard& shard,
                const std::vector<ArrayLoad>& loads) {
  const std::string path = info.path + "/" + shard.file;
  const std::vector<StoredPiece> stored = pieces_in_shard(info, shard);
  int64_t header = shard.bytes;
  for (const StoredPiece& each : stored) header -= each.tensor.type.bytes();
  std::vector<PieceCopy> copies;
  bool empty = stored.empty();  // or contains a piece without bytes, for which the header is checked too
  for (const auto& [entry, piece, tensor] : stored) {
    empty |= tensor.type.bytes() == 0;
    for (const ArrayLoad::Part& part : loads[entry].parts)
      if (Overlap walk(piece->box, part.box, size_of(tensor.type.dtype)); !walk.done())
        copies.push_back({std::move(walk), header + piece->offset, part.buffer->data()});
  }
  if (copies.empty() && !empty) return;
  ShardReader reader(files, path, shard);
  reader.add(0, header);
  for (const PieceCopy& copy : copies) reader.add(copy);
  reader.run();

  std::vector<SafetensorsEntry> expected, actual = read_safetensors_header(files, path).tensors;
  for (const StoredPiece& each : stored) expected.push_back(each.tensor);
  const auto by_name = [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; };
  std::sort(expected.begin(), expected.end(), by_name);
  std::sort(actual.begin(), actual.end(), by_name);
  if (expected != actual) throw_damaged(path, "contains other arrays than the manifest says");
}

// Verifies the checksum of the complete file, which sha256sum computes too.
void verify_checksum(FileSystem& files, const std::string& path, const CheckpointShard& shard) {
  CheckpointShard unchunked = shard;
  unchunked.chunk_bytes = 0;
  ShardReader reader(files, path, unchunked);
  reader.add_all();
  reader.run();
}

bool overlap(const IndexBox& a, const IndexBox& b) { return !Overlap(a, b, 1).done(); }

using Pieces = std::vector<const CheckpointPiece*>;

// Whether every piece is one cell of the grid spanned by the bounds of all pieces. Two such pieces overlap only if they
// begin at the same index. REQUIRES: no piece is empty.
bool are_grid_cells(const Pieces& pieces, size_t rank) {
  for (size_t d = 0; d < rank; ++d) {
    std::set<int64_t> bounds;
    for (const CheckpointPiece* piece : pieces) bounds.insert({piece->box[d].begin, piece->box[d].end});
    for (const CheckpointPiece* piece : pieces)
      if (*bounds.upper_bound(piece->box[d].begin) != piece->box[d].end) return false;
  }
  return true;
}

void check_no_overlap(const CheckpointEntry& entry) {
  const auto throw_overlap = [&](const CheckpointPiece& a, const CheckpointPiece& b) {
    throw_error("checkpoint: pieces {} and {} of \"{}\" overlap; the checkpoint is damaged: use another one",
                printable(tensor_name(entry, a)), printable(tensor_name(entry, b)), printable(entry.name));
  };
  Pieces pieces;
  for (const CheckpointPiece& piece : entry.pieces)
    if (count(piece_type(entry.type, piece.box).shape) > 0) pieces.push_back(&piece);
  if (are_grid_cells(pieces, entry.type.shape.size())) {
    std::map<Shape, const CheckpointPiece*> by_begin;
    for (const CheckpointPiece* piece : pieces) {
      Shape begin;
      for (const Range& range : piece->box) begin.push_back(range.begin);
      if (const auto [before, added] = by_begin.emplace(std::move(begin), piece); !added)
        throw_overlap(*before->second, *piece);
    }
    return;
  }
  // Lockstep shards arrays into grid cells. Pieces of another program may have any form; they are compared pairwise.
  constexpr size_t kMaxCompared = 2000;
  if (pieces.size() > kMaxCompared)
    throw_error("checkpoint: \"{}\" has {} pieces that do not form a grid; the limit is {}", printable(entry.name),
                pieces.size(), kMaxCompared);
  for (size_t i = 0; i < pieces.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (overlap(pieces[i]->box, pieces[k]->box)) throw_overlap(*pieces[k], *pieces[i]);
}

}  // namespace

void check_complete(const CheckpointInfo& info) {
  for (const CheckpointEntry& entry : info.entries) {
    const int64_t all = count(entry.type.shape);
    int64_t elements = 0;
    for (const CheckpointPiece& piece : entry.pieces) {
      elements += count(piece_type(entry.type, piece.box).shape);
      if (elements > all) break;  // some pieces overlap
    }
    check_no_overlap(entry);
    if (elements != all)
      throw_error(
          "checkpoint: the pieces of \"{}\" have {} of its {} elements; the checkpoint is incomplete: use another one",
          printable(entry.name), elements, all);
  }
}

CheckpointInfo read_info(FileSystem& files, const std::string& path, bool verify) {
  const std::string folder = locate_checkpoint(files, path);
  const std::string manifest = folder + "/" + kManifest;
  if (!files.exists(folder)) throw_error("checkpoint: {} does not exist; check the path", folder);
  if (!files.exists(manifest))
    throw_error("checkpoint: {} is not a complete checkpoint: it has no {}; check the path, or use another checkpoint",
                folder, kManifest);
  const std::vector<uint8_t> text = files.read_file(manifest, kMaxManifestBytes);
  CheckpointInfo info = decode_manifest({reinterpret_cast<const char*>(text.data()), text.size()}, manifest);
  info.path = folder;
  check_complete(info);
  for (const CheckpointShard& shard : info.shards) check_size(files, folder + "/" + shard.file, shard);
  if (verify)
    for (const CheckpointShard& shard : info.shards) verify_checksum(files, folder + "/" + shard.file, shard);
  return info;
}

Checkpoint read_checkpoint(FileSystem& files, const std::string& path, const ShardingOf& sharding, const LanesOf& lanes,
                           const WantedArrays& wanted) {
  const CheckpointInfo info = read_info(files, path, false);
  std::vector<ArrayLoad> loads;
  for (const CheckpointEntry& entry : info.entries)
    loads.push_back(wanted && !wanted(entry.name)
                        ? ArrayLoad{.wanted = false}
                        : prepare(entry, sharding ? sharding(entry.name, entry.type) : NamedSharding(), lanes));
  for (const CheckpointShard& shard : info.shards) read_shard(files, info, shard, loads);
  Checkpoint out{.step = info.step,
                 .cursor = info.cursor,
                 .seed = info.seed,
                 .arrays = {},
                 .config = info.config,
                 .metrics = info.metrics};
  for (size_t i = 0; i < loads.size(); ++i)
    if (loads[i].wanted) out.arrays.emplace_back(info.entries[i].name, finished(info.entries[i], std::move(loads[i])));
  return out;
}

}  // namespace lockstep::detail
