// Checkpoints from their folders. What is wanted of a shard is read in windows of whole chunks, each of which is
// verified before anything is taken from it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "array/node.h"
#include "base/check.h"
#include "base/printable.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_io.h"
#include "train/manifest.h"
#include "train/overlap.h"
#include "train/safetensors.h"
#include "train/sha256.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kReadWindow = int64_t{1} << 20;

[[noreturn]] void refuse(const std::string& file, const std::string& fact) {
  throw_error("checkpoint: {} {}; the checkpoint is not whole: use another one", file, fact);
}

void check_size(FileSystem& files, const std::string& path, const CheckpointShard& shard) {
  if (!files.exists(path)) refuse(path, "is missing");
  if (const int64_t bytes = files.size(path); bytes != shard.bytes)
    refuse(path, fmt::format("has {} bytes, and the manifest says {}", bytes, shard.bytes));
}

// Bytes of a shard that go to one buffer: those that a piece in the file and a wanted box have in common.
struct Transfer {
  Overlap walk;   // a: the piece in the file; b: the buffer
  int64_t begin;  // of the piece, in the file
  std::byte* to;
};

// Reads parts of a shard, in order.
class ShardReader {
 public:
  ShardReader(FileSystem& files, const std::string& path, const CheckpointShard& shard)
      : file_(files.open(path)),
        path_(path),
        shard_(shard),
        // Without sums of chunks nothing can be believed before all is read.
        chunk_(shard.chunk_bytes > 0 ? shard.chunk_bytes : kReadWindow),
        wanted_(static_cast<size_t>((shard.bytes + chunk_ - 1) / chunk_), shard.chunk_bytes == 0) {}

  void want(int64_t begin, int64_t end) {
    for (int64_t chunk = begin / chunk_; chunk * chunk_ < end; ++chunk) wanted_[static_cast<size_t>(chunk)] = true;
  }
  void want_all() { want(0, shard_.bytes); }
  void want(const Transfer& transfer) {
    for (Overlap walk = transfer.walk; !walk.done(); walk.skip(walk.bytes()))
      want(transfer.begin + walk.in_a(), transfer.begin + walk.in_a() + walk.bytes());
    transfers_.push_back(transfer);
  }

  // Fills the buffers.
  void run() {
    const auto chunks = static_cast<int64_t>(wanted_.size());
    for (int64_t first = 0, last = 0; first < chunks; first = last) {
      last = first + 1;
      if (!wanted_[static_cast<size_t>(first)]) continue;
      while (last < chunks && wanted_[static_cast<size_t>(last)] && (last + 1 - first) * chunk_ <= kReadWindow) ++last;
      read(first * chunk_, std::min(last * chunk_, shard_.bytes));
      for (int64_t chunk = first; chunk < last; ++chunk) verify(chunk);
      for (Transfer& transfer : transfers_) take(transfer);
    }
    if (shard_.chunk_bytes == 0) check(whole_.hex(), shard_.sha256);
  }

 private:
  void check(const std::string& sum, const std::string& said) const {
    if (sum != said) refuse(path_, fmt::format("has the SHA-256 sum {}, and the manifest says {}", sum, said));
  }

  void read(int64_t begin, int64_t end) {
    begin_ = begin;
    window_.resize(static_cast<size_t>(end - begin));
    const size_t n = file_->read(begin, window_);
    if (n < window_.size()) refuse(path_, fmt::format("ends after {} bytes", begin + static_cast<int64_t>(n)));
  }

  void verify(int64_t chunk) {
    const int64_t begin = chunk * chunk_ - begin_, end = std::min(begin + chunk_, std::ssize(window_));
    const std::span<const uint8_t> bytes(window_.data() + begin, static_cast<size_t>(end - begin));
    if (shard_.chunk_bytes == 0) return whole_.update(bytes);
    const std::string sum = sha256_hex(bytes), &said = shard_.chunks[static_cast<size_t>(chunk)];
    if (sum != said)
      refuse(path_, fmt::format("has the SHA-256 sum {} in its bytes {} to {}, and the manifest says {}", sum,
                                chunk * chunk_, chunk * chunk_ + (end - begin), said));
  }

  void take(Transfer& transfer) {
    const int64_t end = begin_ + std::ssize(window_);
    while (!transfer.walk.done()) {
      const int64_t at = transfer.begin + transfer.walk.in_a();
      if (at >= end) return;
      const int64_t n = std::min(transfer.walk.bytes(), end - at);
      std::memcpy(transfer.to + transfer.walk.in_b(), window_.data() + (at - begin_), static_cast<size_t>(n));
      transfer.walk.skip(n);
    }
  }

  std::unique_ptr<OpenFile> file_;
  const std::string& path_;
  const CheckpointShard& shard_;
  int64_t chunk_;
  std::vector<bool> wanted_;  // by chunk
  std::vector<Transfer> transfers_;
  std::vector<uint8_t> window_;  // what was read last, and where it begins in the file
  int64_t begin_ = 0;
  Sha256 whole_;
};

// An array on its way in: the parts of it that are wanted, and their memory.
struct Incoming {
  struct Part {
    IndexBox box;
    BufferPtr buffer;
  };
  std::vector<Part> parts;
  NamedSharding sharding;
  std::shared_ptr<LanePieces> pieces;  // null: it comes whole
};

Incoming prepare(const CheckpointEntry& entry, const NamedSharding& sharding, const LanesOf& lanes_of_mesh) {
  Incoming out;
  out.sharding = sharding;
  const auto part = [&](IndexBox box) -> const BufferPtr& {
    for (const Incoming::Part& known : out.parts)
      if (known.box == box) return known.buffer;
    BufferPtr buffer = allocate(piece_type(entry.type, box).bytes());
    return out.parts.emplace_back(Incoming::Part{std::move(box), std::move(buffer)}).buffer;
  };
  if (sharding.defined()) {
    sharding.index_box(entry.type.shape, 0);  // throws when the spec is longer than the rank
    const MeshLanes lanes = lanes_of_mesh(sharding.mesh());
    LanePieces pieces{
        lanes.grid, lane_cuts(lanes.grid, sharding.spec(), entry.type.shape.size()), {}, lanes.across_processes};
    if (pieces.is_sharded()) {
      pieces.buffers.resize(static_cast<size_t>(lanes.grid.lanes()));
      for (int64_t lane = lanes.first_local; lane < lanes.first_local + lanes.local_count; ++lane)
        pieces.buffers[static_cast<size_t>(lane)] = part(lane_box(pieces.grid, pieces.cuts, entry.type.shape, lane));
      out.pieces = std::make_shared<LanePieces>(std::move(pieces));
      return out;
    }
  }
  part(whole_box(entry.type.shape));
  return out;
}

Array finished(const CheckpointEntry& entry, Incoming incoming) {
  const Type* type = intern(entry.type);
  if (incoming.pieces) return concrete(type, std::move(incoming.pieces), incoming.sharding);
  return concrete(type, std::move(incoming.parts[0].buffer), incoming.sharding);
}

// What lies in a shard: a piece of an array, as the manifest says.
struct Lying {
  size_t entry;
  const CheckpointPiece* piece;
  SafetensorsEntry tensor;
};

// In the order of their bytes.
std::vector<Lying> contents_of_shard(const CheckpointInfo& info, const CheckpointShard& shard) {
  std::vector<Lying> out;
  for (size_t i = 0; i < info.entries.size(); ++i)
    for (const CheckpointPiece& piece : info.entries[i].pieces)
      if (piece.shard == shard.file)
        out.push_back(
            {i,
             &piece,
             {tensor_name(info.entries[i], piece), piece_type(info.entries[i].type, piece.box), piece.offset}});
  std::sort(out.begin(), out.end(), [](const Lying& a, const Lying& b) {
    const auto place = [](const SafetensorsEntry& t) { return std::pair(t.offset, t.type.bytes()); };
    return place(a.tensor) != place(b.tensor) ? place(a.tensor) < place(b.tensor) : a.tensor.name < b.tensor.name;
  });
  int64_t bytes = 0;
  for (const auto& [entry, piece, tensor] : out) {
    if (tensor.offset != bytes || tensor.type.bytes() > shard.bytes - bytes)
      refuse(info.path + "/" + kManifest, fmt::format("puts \"{}\" at byte {} of {}, where it does not fit",
                                                      printable(tensor.name), tensor.offset, printable(shard.file)));
    bytes += tensor.type.bytes();
  }
  return out;
}

void read_shard(FileSystem& files, const CheckpointInfo& info, const CheckpointShard& shard,
                const std::vector<Incoming>& incoming) {
  const std::string path = info.path + "/" + shard.file;
  const std::vector<Lying> lying = contents_of_shard(info, shard);
  int64_t header = shard.bytes;
  for (const Lying& each : lying) header -= each.tensor.type.bytes();
  std::vector<Transfer> transfers;
  bool empty = lying.empty();  // or has something of no bytes in it, which everybody wants
  for (const auto& [entry, piece, tensor] : lying) {
    empty |= tensor.type.bytes() == 0;
    for (const Incoming::Part& part : incoming[entry].parts)
      if (Overlap walk(piece->box, part.box, size_of(tensor.type.dtype)); !walk.done())
        transfers.push_back({std::move(walk), header + piece->offset, part.buffer->data()});
  }
  if (transfers.empty() && !empty) return;
  ShardReader reader(files, path, shard);
  reader.want(0, header);
  for (const Transfer& transfer : transfers) reader.want(transfer);
  reader.run();

  std::vector<SafetensorsEntry> wanted, got = read_safetensors_header(files, path).tensors;
  for (const Lying& each : lying) wanted.push_back(each.tensor);
  const auto by_name = [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; };
  std::sort(wanted.begin(), wanted.end(), by_name);
  std::sort(got.begin(), got.end(), by_name);
  if (wanted != got) refuse(path, "has other arrays than the manifest says");
}

void verify_sum(FileSystem& files, const std::string& path, const CheckpointShard& shard) {
  CheckpointShard whole = shard;  // the sum of the whole file, which other programs can take too
  whole.chunk_bytes = 0;
  ShardReader reader(files, path, whole);
  reader.want_all();
  reader.run();
}

bool overlap(const IndexBox& a, const IndexBox& b) { return !Overlap(a, b, 1).done(); }

using Pieces = std::vector<const CheckpointPiece*>;

// Whether every piece is one cell of the grid that all their bounds make together. Of such pieces those that differ in
// where they begin have nothing in common. REQUIRES: none is empty.
bool are_cells(const Pieces& pieces, size_t rank) {
  for (size_t d = 0; d < rank; ++d) {
    std::set<int64_t> bounds;
    for (const CheckpointPiece* piece : pieces) bounds.insert({piece->box[d].begin, piece->box[d].end});
    for (const CheckpointPiece* piece : pieces)
      if (*bounds.upper_bound(piece->box[d].begin) != piece->box[d].end) return false;
  }
  return true;
}

void check_no_overlap(const CheckpointEntry& entry) {
  const auto refuse_both = [&](const CheckpointPiece& a, const CheckpointPiece& b) {
    throw_error("checkpoint: pieces {} and {} of \"{}\" overlap; the checkpoint is not whole: use another one",
                printable(tensor_name(entry, a)), printable(tensor_name(entry, b)), printable(entry.name));
  };
  Pieces pieces;
  for (const CheckpointPiece& piece : entry.pieces)
    if (count(piece_type(entry.type, piece.box).shape) > 0) pieces.push_back(&piece);
  if (are_cells(pieces, entry.type.shape.size())) {
    std::map<Shape, const CheckpointPiece*> by_begin;
    for (const CheckpointPiece* piece : pieces) {
      Shape begin;
      for (const Range& range : piece->box) begin.push_back(range.begin);
      if (const auto [before, added] = by_begin.emplace(std::move(begin), piece); !added)
        refuse_both(*before->second, *piece);
    }
    return;
  }
  // Of any other form they are compared one by one. Lockstep cuts arrays into the cells of a grid.
  constexpr size_t kMostCompared = 2000;
  if (pieces.size() > kMostCompared)
    throw_error("checkpoint: \"{}\" has {} pieces that are no grid; at most {} such are read", printable(entry.name),
                pieces.size(), kMostCompared);
  for (size_t i = 0; i < pieces.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (overlap(pieces[i]->box, pieces[k]->box)) refuse_both(*pieces[k], *pieces[i]);
}

}  // namespace

void check_whole(const CheckpointInfo& info) {
  for (const CheckpointEntry& entry : info.entries) {
    const int64_t all = count(entry.type.shape);
    int64_t elements = 0;
    for (const CheckpointPiece& piece : entry.pieces) {
      elements += count(piece_type(entry.type, piece.box).shape);
      if (elements > all) break;  // some overlap
    }
    check_no_overlap(entry);
    if (elements != all)
      throw_error(
          "checkpoint: the pieces of \"{}\" have {} of its {} elements; the checkpoint is not whole: use "
          "another one",
          printable(entry.name), elements, all);
  }
}

CheckpointInfo read_info(FileSystem& files, const std::string& path, bool verify) {
  const std::string folder = locate_checkpoint(files, path);
  const std::string manifest = folder + "/" + kManifest;
  if (!files.exists(folder)) throw_error("checkpoint: {} is not there; check the path", folder);
  if (!files.exists(manifest))
    throw_error("checkpoint: {} is no checkpoint, or not a whole one: it has no {}; check the path, or use another one",
                folder, kManifest);
  const std::vector<uint8_t> text = files.read_file(manifest, kMostManifestBytes);
  CheckpointInfo info = decode_manifest({reinterpret_cast<const char*>(text.data()), text.size()}, manifest);
  info.path = folder;
  check_whole(info);
  for (const CheckpointShard& shard : info.shards) check_size(files, folder + "/" + shard.file, shard);
  if (verify)
    for (const CheckpointShard& shard : info.shards) verify_sum(files, folder + "/" + shard.file, shard);
  return info;
}

Checkpoint read_checkpoint(FileSystem& files, const std::string& path, const ShardingOf& sharding,
                           const LanesOf& lanes) {
  const CheckpointInfo info = read_info(files, path, false);
  std::vector<Incoming> incoming;
  for (const CheckpointEntry& entry : info.entries)
    incoming.push_back(prepare(entry, sharding ? sharding(entry.name, entry.type) : NamedSharding(), lanes));
  for (const CheckpointShard& shard : info.shards) read_shard(files, info, shard, incoming);
  Checkpoint out{.step = info.step,
                 .cursor = info.cursor,
                 .seed = info.seed,
                 .arrays = {},
                 .config = info.config,
                 .metrics = info.metrics};
  for (size_t i = 0; i < incoming.size(); ++i)
    out.arrays.emplace_back(info.entries[i].name, finished(info.entries[i], std::move(incoming[i])));
  return out;
}

}  // namespace lockstep::detail
