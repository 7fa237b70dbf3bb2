// The argument of commands that read the weights of a run: a checkpoint, or a folder of checkpoints. Used by the main
// thread only.
#pragma once

#include <string>

#include "lockstep/checkpoint.h"

namespace lockstep::cli {

// Loads the checkpoint at `path`, or the newest complete one in a folder: its parameters and, if it has one, their
// average; no optimizer state. Prints a note for each damaged one that was skipped. Throws Error starting with the name
// of the command.
Checkpoint load_stored_run(const std::string& command, const std::string& path);

// Throws Error starting with the name of the command if `dir` exists and is not an empty folder.
void check_new_folder(const std::string& command, const std::string& dir);

}  // namespace lockstep::cli
