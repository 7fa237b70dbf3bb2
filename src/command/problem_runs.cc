#include "command/problem_runs.h"

#include "base/check.h"

namespace lockstep::cli {
namespace {

[[noreturn]] void throw_not_connected() { throw_error("train_main: this build trains built-in models only"); }

}  // namespace

RunOutcome train_problem(const TrainConfig& config, const ProblemFactory& make, const RunOptions& options) {
  if (make) throw_not_connected();
  return run_training(config, options);
}

std::string problem_schedule(const TrainConfig& config, const ProblemFactory& make) {
  if (make) throw_not_connected();
  return training_schedule(config);
}

int evaluate_problem(const EvaluationRequest&, const ProblemFactory&) { throw_not_connected(); }

}  // namespace lockstep::cli
