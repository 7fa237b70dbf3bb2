// Runs the problem of a user's program, or the one that the settings select. Used by the main thread only.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "command/devices_flag.h"
#include "command/evaluation.h"
#include "lockstep/task.h"
#include "train/run.h"

namespace lockstep {

namespace cli {

// An empty factory stands for the built-in models and data sets.
RunOutcome train_problem(const TrainConfig& config, const ProblemFactory& make, const RunOptions& options);
std::string problem_schedule(const TrainConfig& config, const ProblemFactory& make);

// The checkpoint at `path`, which exists, or the newest complete one of a folder. Throws Error naming `eval`.
Checkpoint load_evaluated_checkpoint(const std::string& path);

struct EvaluationRequest {
  std::string checkpoint;
  DevicesFlags devices;
  ReportFlags report;
  int64_t batch_size = 1000;
  ConfigMap changes;  // settings of the user's program that differ from those of the run
};
// Evaluates the checkpoint, or the newest complete one of a folder, on the test set of the problem; on its validation set
// if it has no test set. Prints a report and returns the exit code.
int evaluate_problem(const EvaluationRequest& request, const ProblemFactory& make);

}  // namespace cli
}  // namespace lockstep
