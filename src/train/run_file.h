// Files that a run stores beside its checkpoints, such as its tokenizer. Safe from any thread.
#pragma once

#include <string>

namespace lockstep {

// The path of a file of a run; empty if there is none. `dir` is the folder of the run, or a checkpoint in it. A copied
// checkpoint may have the file inside.
std::string run_file(const std::string& dir, const std::string& name);

}  // namespace lockstep
