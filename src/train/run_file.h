// Files that a run stores beside its checkpoints, such as its tokenizer. Safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"

namespace lockstep {

// The path of a file of a run; empty if there is none. `dir` is the folder of the run, or a checkpoint in it. A copied
// checkpoint may have the file inside.
std::string run_file(const std::string& dir, const std::string& name);

// Replaces the file `name` of a folder so that readers see either the old or the new one. Does not force it to the disk.
void replace_run_file(FileSystem& files, const std::string& folder, const std::string& name,
                      std::span<const uint8_t> bytes);

}  // namespace lockstep
