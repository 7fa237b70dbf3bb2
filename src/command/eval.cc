#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "command/checkpoint_argument.h"
#include "command/command.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "command/number_check.h"
#include "command/problem_runs.h"
#include "lockstep/checkpoint.h"
#include "lockstep/engine.h"
#include "train/evaluation_folder.h"
#include "train/gpt_settings.h"
#include "train/run.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct EvalArguments {
  std::string checkpoint, dataset, data_dir;
  DevicesFlags devices;
  ReportFlags report;
  int64_t batch_size = 0;
};

void check_dataset_flag(const std::string& model, const std::string& dataset) {
  try {
    validate({.model = model, .dataset = dataset});
  } catch (const Error& error) {
    throw UsageError(fmt::format("eval: {}", error.what()));
  }
}

int run(const EvalArguments& arguments) {
  const std::string path = find_run("eval", arguments.checkpoint);
  const Checkpoint checkpoint = load_evaluated_checkpoint(path);
  TrainConfig config = from_map(checkpoint.config, path);
  if (!arguments.dataset.empty()) check_dataset_flag(config.model, arguments.dataset);
  use_devices(arguments.devices);

  const ModelInfo info = load_model_info(path, config);
  check_model_info(info, checkpoint, fmt::format("eval: {}", path));
  const Problem problem =
      builtin_eval_problem(config, {arguments.dataset, arguments.data_dir, run_tokenizer_file(path), info});
  const SourcePtr& set = problem.test ? problem.test : problem.validation;
  if (!set)
    throw_error("eval: {} has neither a test set nor a validation set; choose another with --dataset", config.dataset);
  // Only the model of the run is used: no checkpoint is written, and the devices are those of this process.
  config.checkpoint_dir.clear();
  config.shard.clear();
  config.zero = 0;
  Engine engine = make_engine(config, problem.task, make_mesh({"data"}), std::max<int64_t>(checkpoint.step, 1), {});
  const TrainState state = engine.restore(checkpoint);
  return evaluate_and_report(
      engine, state,
      {.source = set,
       .name = problem.test ? "test" : "validation",
       .class_names = info.class_names,
       .batch_size = arguments.batch_size > 0 ? arguments.batch_size : default_eval_batch(config),
       .run_folder = run_folder_of(path),
       .dataset = arguments.dataset.empty() ? config.dataset : arguments.dataset},
      arguments.report);
}

}  // namespace

void add_eval_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("eval", "evaluate the model of a checkpoint on a test set");
  auto arguments = std::make_shared<EvalArguments>();
  add_run_argument(*command, arguments->checkpoint);
  command->add_option("--dataset", arguments->dataset, "a data set by name, or IDX files (default: that of the run)")
      ->type_name(
          "mnist|fashion-mnist|synthetic|cifar10|moby-dick|sotu|text:PATH|tokens:FILE|images:DIR|npy:X,Y|csv:FILE|"
          "IMAGES,"
          "LABELS[,TEST_IMAGES,TEST_LABELS]");
  command
      ->add_option("--data-dir", arguments->data_dir,
                   "folder with the files of the data set (default: that of the run, else the cache)")
      ->type_name("DIR");
  command
      ->add_option("--batch-size", arguments->batch_size,
                   "examples per batch (default: 1000; for gpt, that of the run)")
      ->type_name("N")
      ->check(integer_between(1, std::numeric_limits<int>::max()));
  group_flags(*command, "Data", {"--dataset", "--data-dir", "--batch-size"});
  add_report_flags(*command, arguments->report);
  add_devices_flags(*command, arguments->devices);
  add_examples(*command, {"lockstep eval last", "lockstep eval run/step_00001000 --dataset fashion-mnist",
                          "lockstep eval last --worst 25 mistakes.png"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
