// One checkpoint to and from its folder. Functions of their arguments, safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "lockstep/checkpoint.h"

namespace lockstep::detail {

// A checkpoint as it is written: what its manifest says, and the bytes of each array, which others own.
struct CheckpointContents {
  CheckpointInfo info;
  std::vector<std::span<const uint8_t>> data;  // one for each of info.entries
};

// Points into the checkpoint's arrays. Throws Error as save_checkpoint does.
CheckpointContents contents_of(const Checkpoint& checkpoint);

struct WrittenCheckpoint {
  std::string path;
  std::vector<std::string> problems;  // what failed without harm to the checkpoint
};

// Throws IoError; then nothing has changed, but for rubbish that could not be removed.
WrittenCheckpoint write_checkpoint(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                   int64_t shard_bytes);

// As inspect_checkpoint and load_checkpoint.
CheckpointInfo read_info(FileSystem& files, const std::string& path, bool verify);
Checkpoint read_checkpoint(FileSystem& files, const std::string& path);

}  // namespace lockstep::detail
