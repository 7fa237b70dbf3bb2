// Runs the problem of a user's program, or the one that the settings select. Used by the main thread only.
#pragma once

#include <functional>
#include <string>

#include "command/devices_flag.h"
#include "lockstep/task.h"
#include "train/run.h"

namespace lockstep {

// Makes the task and data of a run from its settings. Called in every process, after devices exist.
using ProblemFactory = std::function<Problem(const TrainConfig& config, const Mesh& mesh)>;

namespace cli {

// An empty factory stands for the built-in models and data sets.
RunOutcome train_problem(const TrainConfig& config, const ProblemFactory& make, const RunOptions& options);
std::string problem_schedule(const TrainConfig& config, const ProblemFactory& make);

struct EvaluationRequest {
  std::string checkpoint;
  DevicesFlags devices;
  int64_t batch_size = 1000;
  ConfigMap changes;  // settings of the user's program that differ from those of the run
};
// Evaluates the checkpoint, or the newest complete one of a folder, on the test set of the problem; on its validation set
// if it has no test set. Prints the metrics and returns the exit code.
int evaluate_problem(const EvaluationRequest& request, const ProblemFactory& make);

}  // namespace cli
}  // namespace lockstep
