// The argument of commands that read the weights of a run: a checkpoint, a folder of checkpoints, or the name of a run.
// Used by the main thread only.
#pragma once

#include <string>

#include "lockstep/checkpoint.h"
#include "lockstep/task.h"
#include "train/config.h"
#include "train/model_info.h"

namespace lockstep::cli {

// Loads the checkpoint at `path`, or the newest complete one in a folder: its parameters and, if it has one, their
// average; no optimizer state. Prints a note for each damaged one that was skipped. Throws Error starting with the name
// of the command.
Checkpoint load_stored_run(const std::string& command, const std::string& path);

// A model of images or tables with its weights.
struct StoredModel {
  std::string path;  // of the run or checkpoint
  int64_t step = 0;
  TrainConfig config;
  Checkpoint checkpoint;  // its parameters
  ModelInfo info;
  Task task;
  std::vector<Array> params;  // in the order of task.paths
};
// The model of a run that an argument names, see find_run(). `average`: the average of the weights, if the run keeps
// one; otherwise their last values. A language model has neither task nor parameters. Throws like load_stored_run().
StoredModel load_stored_model(const std::string& command, const std::string& argument, bool average = true);

// Throws Error starting with the name of the command if `dir` exists and is not an empty folder.
void check_new_folder(const std::string& command, const std::string& dir);

}  // namespace lockstep::cli
