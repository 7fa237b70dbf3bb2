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
#include "lockstep/checkpoint.h"
#include "lockstep/engine.h"
#include "train/run.h"

namespace lockstep::cli {
namespace {

struct EvalArguments {
  std::string checkpoint, dataset, data_dir;
  DevicesFlags devices;
  int64_t batch_size = 1000;
};

// The number of classes of the model: the width of its last layer. The data may lack some of them.
int64_t classes_of(const Checkpoint& checkpoint, const std::string& path) {
  int64_t classes = 0;
  for (const auto& [name, array] : checkpoint.arrays)
    if (name.starts_with("params/") && !array.shape().empty()) classes = array.shape().back();
  if (classes == 0) throw_error("eval: {} holds no parameters; choose a checkpoint of `lockstep train`", path);
  return classes;
}

// Returns the test set of a data set, or all examples of a pair of files that --dataset names.
ImageDataset load_test_set(const EvalArguments& arguments, const TrainConfig& config) {
  const std::string& dataset = arguments.dataset;
  const size_t comma = dataset.find(',');
  if (comma != dataset.npos && dataset.find(',', comma + 1) == dataset.npos)
    return load_idx_pair(dataset.substr(0, comma), dataset.substr(comma + 1));
  // The data folder of the run is used only for the data set of the run.
  const std::string& dir = arguments.data_dir.empty() && dataset.empty() ? config.data_dir : arguments.data_dir;
  return load_dataset(dataset.empty() ? config.dataset : dataset, {.dir = dir}).test;
}

void check_dataset_flag(const std::string& dataset) {
  try {
    validate({.dataset = dataset});
  } catch (const Error& error) {
    throw UsageError(fmt::format("eval: {}", error.what()));
  }
}

void print(const EvalResult& result) {
  fmt::print("test_loss {:.6f} test_accuracy {:.4f} examples {}\n", result.loss, result.accuracy, result.examples);
  fmt::print("class  examples  predicted  correct  accuracy\n");
  for (size_t i = 0; i < result.predictions.size(); ++i) {
    const int64_t examples = i < result.labels.size() ? result.labels[i] : 0;
    const double accuracy = examples > 0 ? static_cast<double>(result.hits[i]) / static_cast<double>(examples) : 0;
    fmt::print("{:>5}  {:>8}  {:>9}  {:>7}  {:>8.4f}\n", i, examples, result.predictions[i], result.hits[i], accuracy);
  }
}

// Loads the checkpoint at `path`, or the newest complete one of a folder.
Checkpoint load_evaluated(const std::string& path) {
  if (!FileSystem::real().exists(path))
    throw_error("eval: {} does not exist; give a checkpoint, or a folder of checkpoints", path);
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

int run(const EvalArguments& arguments) {
  if (!arguments.dataset.empty()) check_dataset_flag(arguments.dataset);
  const Checkpoint checkpoint = load_evaluated(arguments.checkpoint);
  TrainConfig config = from_map(checkpoint.config, arguments.checkpoint);
  use_devices(arguments.devices);

  ImageDataset test = load_test_set(arguments, config);
  const int64_t classes = classes_of(checkpoint, arguments.checkpoint);
  if (test.classes > classes)
    throw_error("eval: the data has {} classes but the model has {}; select the model's data set with --dataset",
                test.classes, classes);
  test.classes = classes;
  const ImageShape shape{test.rows, test.cols, classes};
  // Only the model of the run is used: nothing is written, and the devices are those of this process.
  config.checkpoint_dir.clear();
  config.shard.clear();
  config.zero = 0;
  Engine engine = make_engine(config, shape, make_mesh({"data"}), std::max<int64_t>(checkpoint.step, 1), {});
  const TrainState state = engine.restore(checkpoint);
  print(engine.evaluate(state, to_arrays(std::move(test)), arguments.batch_size));
  return kDone;
}

}  // namespace

void add_eval_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("eval", "evaluate the model of a checkpoint on a test set");
  auto arguments = std::make_shared<EvalArguments>();
  command
      ->add_option("CHECKPOINT", arguments->checkpoint,
                   "a checkpoint, or a folder of checkpoints, whose newest complete one is used")
      ->required()
      ->type_name("DIR");
  command->add_option("--dataset", arguments->dataset, "a data set by name, or IDX files (default: that of the run)")
      ->type_name("mnist|fashion-mnist|synthetic|IMAGES,LABELS[,TEST_IMAGES,TEST_LABELS]");
  command
      ->add_option("--data-dir", arguments->data_dir,
                   "folder with the files of the data set (default: that of the run, else the cache)")
      ->type_name("DIR");
  command->add_option("--batch-size", arguments->batch_size, "examples per batch (default: 1000)")
      ->type_name("N")
      ->check(integer_between(1, std::numeric_limits<int>::max()));
  add_devices_flags(*command, arguments->devices);
  add_examples(*command, {"lockstep eval run", "lockstep eval run/step_00001000 --dataset fashion-mnist"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
