// The files of a run beside its checkpoints, and checkpoints of earlier runs in the same folder. Used by the main thread
// of the first process.
#pragma once

#include <map>
#include <string>

#include "train/config.h"

namespace lockstep {

// The settings as they are stored. The folders inside a run folder follow from it.
TrainConfig stored_settings(TrainConfig config);

// Writes the resolved settings to the checkpoint and log folders, ready to resume the run, and the files of the problem
// to the checkpoint folder. Never overwrites a config.yaml of the user.
void write_config(TrainConfig config, const std::map<std::string, std::string>& files);

// Keeps a new run apart from an earlier run in the same folder.
void move_all_checkpoints(const std::string& dir);

// Keeps a run that resumes from an earlier step apart from the checkpoints after it.
void move_checkpoints_after(const std::string& dir, int64_t step);

}  // namespace lockstep
