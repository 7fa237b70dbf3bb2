// The folders that `lockstep train` keeps its runs in: runs/<date>-<model>-<n> below the working directory. A run's
// folder has its settings (config.yaml), its state (run.json), its checkpoints (step_00000938, ...), its metrics
// (log/metrics.jsonl, ...) and flight records (flight/). Safe from any thread.
#pragma once

#include <string>

namespace lockstep {

// The folder of runs below the working directory.
inline constexpr const char* kRunsFolder = "runs";

// The folder of the run that a command's argument names: a path, the name of a run in runs/, or `last`, the newest one.
// Throws Error, starting with the name of the command, if there is none.
std::string find_run(const std::string& command, const std::string& argument);

}  // namespace lockstep
