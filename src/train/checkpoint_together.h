// One checkpoint written by all processes of a job: each the pieces of its own lanes, the first the manifest. Functions
// of their arguments, safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/checkpoint_io.h"

namespace lockstep::detail {

// Gives a text and returns those of all processes, in their order. All processes call it as often as one another.
// Throws CommError when they do not.
using Exchange = std::function<std::vector<std::string>(const std::string& own)>;

// As write_checkpoint, called by all processes with their own contents. What fails in one of them fails in all, with
// that one's words: throws IoError.
WrittenCheckpoint write_together(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                 int64_t shard_bytes, const Exchange& exchange);

}  // namespace lockstep::detail
