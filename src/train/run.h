// A complete training run from its configuration: devices, data, engine, checkpoints, final result. Not thread-safe:
// call from the main thread.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "lockstep/engine.h"
#include "train/config.h"
#include "train/problem.h"

namespace lockstep {

// Creates the configured devices and the mesh over them. Throws SettingsError when there are too few devices, or their
// number differs from expect_devices.
Mesh make_devices(const TrainConfig& config);

// Makes the engine of a configuration. `total_steps`: the length of the learning rate schedule.
Engine make_engine(const TrainConfig& config, Task task, const Mesh& mesh, int64_t total_steps, Loggers loggers,
                   Hooks hooks = {});

struct RunOptions {
  std::function<bool()> stop = {};  // see FitOptions::stop
  std::FILE* out = stdout;          // receives the final result
  bool keep = false;                // in a new folder below runs/, if the settings name no folder
};

struct RunOutcome {
  bool expectations_met = true;
  bool ended_by_alarm = false;  // in a strict run
  bool stopped = false;         // by RunOptions::stop, before the last step
  bool unsaved = false;         // the checkpoint of the last step could not be written
  int64_t step = 0, total_steps = 0;
  std::string run_folder = {};  // empty: the run has none
};

// Trains and evaluates; prints the result as the last line, unless the run ended early. Throws SettingsError for
// settings that do not fit the machine or the data, before anything is trained or written. Throws IoError when the data
// or the folders are not accessible.
RunOutcome run_training(const TrainConfig& config, const ProblemFactory& make, const RunOptions& options = {});

// How the lanes of this process execute the training step of a run, as text; see Engine::schedule(). Trains and writes
// nothing. Throws like run_training(). All processes call it.
std::string training_schedule(const TrainConfig& config, const ProblemFactory& make);

}  // namespace lockstep
