// One checkpoint to and from its folder, by one process or by several that each hold some lanes. Functions of their
// arguments, safe from any thread.
//
// Several processes write one together: each its own shards, in which its pieces lie, and one of them the manifest.
//
//   staged, made by process 0                                                  // checkpoint_folder.h
//   CheckpointInfo part = write_part(files, staged, contents_of(checkpoint, {index, count}), shard_bytes);   // all
//   write_manifest(files, staged, merged(parts));  install                     // process 0, given the parts of all
//
// Parts travel as encode_manifest() writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "array/lane_pieces.h"
#include "base/file.h"
#include "lockstep/checkpoint.h"

namespace lockstep::detail {

// Which of the processes that write a checkpoint together.
struct Writer {
  int64_t index = 0, count = 1;
};

// A part of an array as it lies in memory, dense and row-major, which others own.
struct CheckpointSource {
  IndexBox box;
  std::span<const uint8_t> bytes;
};

// A checkpoint as it is written: what its manifest says, and what memory holds of each array.
struct CheckpointContents {
  CheckpointInfo info;
  std::vector<std::vector<CheckpointSource>> data;  // for each of info.entries; no two overlap
  Writer writer;
};

// Points into the checkpoint's arrays, which are not put together. One process writes arrays whole; of several each
// writes the pieces of its own lanes, of lanes that hold the same the lowest, and the first what is whole. Throws
// Error as save_checkpoint does.
CheckpointContents contents_of(const Checkpoint& checkpoint, const Writer& writer = {});

struct WrittenCheckpoint {
  std::string path;
  std::vector<std::string> problems;  // what failed without harm to the checkpoint
};

// By one process. Throws IoError; then nothing has changed, but for rubbish that could not be removed.
WrittenCheckpoint write_checkpoint(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                   int64_t shard_bytes);

// The steps of it, for several processes. Files are synced, names in the folder are not. Throws IoError.
CheckpointInfo write_part(FileSystem& files, const std::string& folder, CheckpointContents contents,
                          int64_t shard_bytes);
void write_manifest(FileSystem& files, const std::string& folder, const CheckpointInfo& info);
// The manifest of a checkpoint whose parts these are, in the order of the processes. Throws Error when they do not make
// a whole.
CheckpointInfo merged(const std::vector<CheckpointInfo>& parts);

// Throws Error naming the array whose pieces leave something out, or overlap.
void check_whole(const CheckpointInfo& info);

// As inspect_checkpoint.
CheckpointInfo read_info(FileSystem& files, const std::string& path, bool verify);

using ShardingOf = std::function<NamedSharding(const std::string& name, const Type& type)>;
using LanesOf = std::function<MeshLanes(const Mesh& mesh)>;

// As load_checkpoint. Of an array that its sharding cuts across lanes only what the lanes of this process hold is read,
// each distinct piece once, and verified in chunks; pieces of other lanes are null. `lanes` says which lanes those are.
Checkpoint read_checkpoint(FileSystem& files, const std::string& path, const ShardingOf& sharding = {},
                           const LanesOf& lanes = lanes_of);

}  // namespace lockstep::detail
