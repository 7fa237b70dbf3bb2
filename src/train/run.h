// A whole training run from its configuration: devices, data, engine, checkpoints, and what it says at the end. Used by
// the main thread.
#pragma once

#include <cstdio>
#include <functional>

#include "lockstep/engine.h"
#include "train/config.h"

namespace lockstep {

// Makes as many devices as the configuration says and lays the mesh over them. Throws SettingsError when there are too
// few, or others than expect_devices.
Mesh make_devices(const TrainConfig& config);

// The engine of a configuration; `total_steps` is the length of its schedule.
Engine make_engine(const TrainConfig& config, const ImageShape& shape, const Mesh& mesh, int64_t total_steps,
                   Loggers loggers);

struct RunOptions {
  std::function<bool()> stop = {};  // asked before every step; true ends the run after a checkpoint
  std::FILE* out = stdout;          // where the result goes
};

struct RunOutcome {
  bool expectations_met = true;
  bool ended_by_alarm = false;  // a strict run was ended by one
  bool stopped = false;   // by RunOptions::stop, before the last step
  bool unsaved = false;   // the checkpoint of the last step could not be written
  int64_t step = 0, total_steps = 0;
};

// Trains, evaluates and prints; the last line says how good the model is, unless the run was ended before. Throws
// SettingsError for settings that do not fit, before anything is trained or written, and IoError when the data or the
// folders cannot be had.
RunOutcome run_training(const TrainConfig& config, const RunOptions& options = {});

}  // namespace lockstep
