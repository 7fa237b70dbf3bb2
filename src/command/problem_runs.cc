#include "command/problem_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "command/checkpoint_argument.h"
#include "command/command.h"
#include "command/evaluation.h"
#include "train/evaluation_folder.h"
#include "train/run_folders.h"

namespace lockstep::cli {
Checkpoint load_evaluated_checkpoint(const std::string& path) {
  check_checkpoint_argument("eval", path);
  // find_checkpoint() reads a value of --resume: without the slash, "100" is a step and "auto" is not a path.
  const auto as_eval = [](const std::string& text) {
    constexpr std::string_view kResume = "resume: ";
    return text.starts_with(kResume) ? "eval: " + text.substr(kResume.size()) : text;
  };
  const auto print_note = [&](const std::string& text) { print_stderr("lockstep: {}\n", as_eval(text)); };
  const bool is_keyword = path == "auto" || path == "none" || path.find_first_not_of("0123456789") == path.npos;
  try {
    return find_checkpoint("", is_keyword ? path + "/" : path, print_note).value();
  } catch (const Error& error) {
    throw Error(as_eval(error.what()));
  }
}

RunOutcome train_problem(const TrainConfig& config, const ProblemFactory& make, const RunOptions& options) {
  return run_training(config, make ? make : ProblemFactory(builtin_problem), options);
}

std::string problem_schedule(const TrainConfig& config, const ProblemFactory& make) {
  return training_schedule(config, make ? make : ProblemFactory(builtin_problem_shapes));
}

int evaluate_problem(const EvaluationRequest& request, const ProblemFactory& make) {
  const std::string path = find_run("eval", request.checkpoint);
  const Checkpoint checkpoint = load_evaluated_checkpoint(path);
  TrainConfig config = overlay(from_map(checkpoint.config, path), request.changes, "eval");
  use_devices(request.devices);
  const Problem problem = open_problem(make, config);
  const SourcePtr& set = problem.test ? problem.test : problem.validation;
  if (!set)
    throw_error("eval: the task {} has neither a test set nor a validation set; return one from its function",
                problem.task.name);
  // Only the model of the run is used: no checkpoint is written, and the devices are those of this process.
  config.checkpoint_dir.clear();
  config.shard.clear();
  config.zero = 0;
  Engine engine = make_engine(config, problem.task, make_mesh({"data"}), std::max<int64_t>(checkpoint.step, 1), {});
  return evaluate_and_report(engine, engine.restore(checkpoint),
                             {.source = set,
                              .name = problem.test ? "test" : "validation",
                              .batch_size = request.batch_size,
                              .run_folder = run_folder_of(path)},
                             request.report);
}

}  // namespace lockstep::cli
