// Writes a checkpoint to its folder and reads it back, in one process or in several that each hold some lanes. Pure
// functions except for the files, safe from any thread.
//
// Several processes write one checkpoint collectively (collective_save.h). Each writes shards with the pieces of its
// own lanes; process 0 writes the manifest:
//
//   process 0:  create the staged folder (checkpoint_folder.h)
//   all:        CheckpointInfo part = write_part(files, staged, contents_of(checkpoint, {index, count}), shard_bytes);
//   process 0:  write_manifest(files, staged, merge_parts(parts)), then install
//
// Parts are sent to process 0 as text, by encode_manifest().
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

// The rank of a process among those that write a checkpoint.
struct WriterRank {
  int64_t index = 0, count = 1;
};

// A part of an array in memory, dense and row-major. Does not own the memory.
struct CheckpointSource {
  IndexBox box;
  std::span<const uint8_t> bytes;
};

// A checkpoint to be written: its manifest, and the data of each array.
struct CheckpointContents {
  CheckpointInfo info;
  std::vector<std::vector<CheckpointSource>> data;  // for each of info.entries; parts of one array do not overlap
  WriterRank writer;
};

// What this process writes of a checkpoint. Refers to the memory of the arrays; sharded arrays are not gathered. A
// single process writes complete arrays. Of several processes, each writes the pieces of its own lanes, except those
// that a lower lane also holds; the first process writes replicated arrays. Throws Error as save_checkpoint does.
CheckpointContents contents_of(const Checkpoint& checkpoint, const WriterRank& writer = {});

struct WrittenCheckpoint {
  std::string path;
  std::vector<std::string> problems;  // errors that do not affect the checkpoint
};

// Writes a checkpoint in a job of one process. Throws IoError; then earlier checkpoints are unchanged, and hidden
// folders that could not be removed may remain.
WrittenCheckpoint write_checkpoint(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                   int64_t shard_bytes);

// The parts of write_checkpoint(), for several processes. They sync the files but not the folder. Throw IoError.
CheckpointInfo write_part(FileSystem& files, const std::string& folder, CheckpointContents contents,
                          int64_t shard_bytes);
void write_manifest(FileSystem& files, const std::string& folder, const CheckpointInfo& info);
// The manifest of the checkpoint that consists of these parts, given in the order of the processes. Throws Error when
// the parts do not make a complete checkpoint.
CheckpointInfo merge_parts(const std::vector<CheckpointInfo>& parts);

// Throws Error naming an array whose pieces overlap or do not cover it.
void check_complete(const CheckpointInfo& info);

// As inspect_checkpoint.
CheckpointInfo read_info(FileSystem& files, const std::string& path, bool verify);

using ShardingOf = std::function<NamedSharding(const std::string& name, const Type& type)>;
using LanesOf = std::function<MeshLanes(const Mesh& mesh)>;
using WantedArrays = std::function<bool(const std::string& name)>;

// As load_checkpoint. Of an array that is sharded over lanes, reads only the pieces of this process's lanes, each
// distinct piece once, and verifies them chunk by chunk. Pieces of other lanes are null. `lanes` returns the lanes of a
// mesh.
Checkpoint read_checkpoint(FileSystem& files, const std::string& path, const ShardingOf& sharding = {},
                           const LanesOf& lanes = lanes_of, const WantedArrays& wanted = {});

}  // namespace lockstep::detail
