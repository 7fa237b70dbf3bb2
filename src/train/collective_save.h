// Writes one checkpoint collectively: each process of a job writes the pieces of its own lanes, the first process
// writes the manifest. Safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/checkpoint_io.h"

namespace lockstep::detail {

// All-gathers a text: returns the texts of all processes by rank. REQUIRES: all processes make the same number of
// calls. Throws CommError otherwise.
using Exchange = std::function<std::vector<std::string>(const std::string& own)>;

// As write_checkpoint, called by all processes with their own contents. A failure in one process makes all of them
// throw IoError with that process's message.
WrittenCheckpoint write_collectively(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                     int64_t shard_bytes, const Exchange& exchange);

}  // namespace lockstep::detail
