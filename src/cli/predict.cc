#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/names.h"
#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/predict_inputs.h"
#include "cli/predict_print.h"
#include "cli/stored_run.h"
#include "command/checkpoint_argument.h"
#include "command/choice_check.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "command/number_check.h"
#include "data/images/parallel_indices.h"
#include "lockstep/devices.h"
#include "lockstep/precision.h"
#include "lockstep/reduce.h"
#include "train/predictor.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMostPerBatch = 256;

struct PredictArguments {
  std::string run, format = "text", precision;
  std::vector<std::string> inputs;
  DatasetInput dataset;
  int64_t top = 1;
  bool invert = false, quiet = false;
  DevicesFlags devices;
};

void check_arguments(const PredictArguments& arguments) {
  if (arguments.inputs.empty() && arguments.dataset.dataset.empty())
    throw UsageError("predict: no inputs; give images, folders, .npy or .csv files, or --dataset NAME");
  if (!arguments.inputs.empty() && !arguments.dataset.dataset.empty())
    throw UsageError("predict: files and --dataset were both given; give one of them");
  if (arguments.dataset.dataset.empty() && !(arguments.dataset.range + arguments.dataset.data_dir).empty())
    throw UsageError("predict: --range and --data-dir are for --dataset, which was not given");
}

// One call of `lockstep predict`: reads the inputs in batches, computes and prints.
class PredictRun {
 public:
  PredictRun(const PredictArguments& arguments, StoredModel model)
      : arguments_(arguments),
        model_(std::move(model)),
        form_(image_form(model_.info, model_.config, arguments.invert)),
        is_table_(model_.info.kind == ModelInfo::Kind::table),
        predictor_(model_.task, model_.params,
                   precision_of(arguments.precision.empty() ? model_.config.precision : arguments.precision).compute) {}

  int operator()() {
    open();
    PrintOptions options{.top = std::min(arguments_.top, std::max<int64_t>(model_.info.classes, 1))};
    for (const auto& set : sets_) {
      for (int64_t i = 0; i < set->count(); ++i) {
        items_.push_back({set.get(), i});
        options.name_width = std::max(options.name_width, set->name(i).size());
      }
      if (set->count() > 0 && !set->label(0).empty()) options.labels = true;
    }
    const std::unique_ptr<PredictionPrinter> printer = make_printer(arguments_.format, model_.info, options);
    const int64_t batch = std::min(kMostPerBatch, std::ssize(items_));
    for (int64_t begin = 0; begin < std::ssize(items_); begin += batch)
      for (const Prediction& each : predict(begin, batch, options.top))
        if (process_index() == 0) show(*printer, each);
    if (process_index() == 0) printer->finish();
    std::fflush(stdout);
    if (!arguments_.quiet && process_index() == 0)
      for (const std::string& note : conversions_.notes()) print_stderr("lockstep: predict: {}\n", note);
    if (failed_ > 0 && process_index() == 0)
      print_stderr("lockstep: predict: {} of {} could not be used\n", failed_, counted(std::ssize(items_), "input"));
    return failed_ > 0 ? kFailed : kDone;
  }

 private:
  struct Item {
    const InputSet* set;
    int64_t index;
  };

  void open() {
    if (!arguments_.dataset.dataset.empty())
      sets_ = open_dataset(arguments_.dataset, model_.info, model_.config, form_);
    else if (is_table_)
      sets_ = open_tables(arguments_.inputs, model_.info, conversions_);
    else
      sets_ = open_images(arguments_.inputs, form_);
  }

  // The batch as the model takes it; rows of damaged inputs are zeros, and their errors are set.
  BatchArrays read(int64_t begin, int64_t batch, std::vector<Prediction>& out) {
    const int64_t bytes =
        is_table_ ? std::ssize(model_.info.features) * static_cast<int64_t>(sizeof(float)) : form_.bytes();
    std::vector<std::byte> memory(static_cast<size_t>(bytes * batch));
    detail::parallel_indices(std::ssize(out), 4, [&](int64_t i) {
      const Item& item = items_[static_cast<size_t>(begin + i)];
      Prediction& each = out[static_cast<size_t>(i)];
      each = {.input = item.set->name(item.index), .label = item.set->label(item.index)};
      try {
        item.set->read(item.index, memory.data() + i * bytes, conversions_);
      } catch (const Error& error) {
        each.error = error.what();
      } catch (const IoError& error) {
        each.error = error.what();
      }
    });
    if (is_table_)
      return {{"features", detail::from_bytes(memory.data(), {f32, {batch, std::ssize(model_.info.features)}})}};
    Type type{u8, {batch, form_.rows, form_.cols}};
    if (form_.channels > 1) type.shape.push_back(form_.channels);
    return {{"images", detail::from_bytes(memory.data(), type)}};
  }

  std::vector<Prediction> predict(int64_t begin, int64_t batch, int64_t top) {
    std::vector<Prediction> out(static_cast<size_t>(std::min(batch, std::ssize(items_) - begin)));
    const Array outputs = predictor_.outputs(read(begin, batch, out));
    const bool classifies = model_.info.classes > 0;
    const std::vector<float> values = (classifies ? softmax(outputs) : outputs).to_vector<float>();
    const size_t width = classifies ? static_cast<size_t>(model_.info.classes) : 1;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!out[i].error.empty()) continue;
      const std::span<const float> row(values.data() + i * width, width);
      if (classifies)
        set_classes(out[i], row, top);
      else
        out[i].number = row[0];
    }
    return out;
  }

  void show(PredictionPrinter& printer, const Prediction& prediction) {
    printer.print(prediction);
    if (prediction.error.empty()) return;
    ++failed_;
    std::fflush(stdout);
    print_stderr("lockstep: predict: {}\n", prediction.error);
  }

  const PredictArguments& arguments_;
  const StoredModel model_;
  const ImageForm form_;
  const bool is_table_;
  const Predictor predictor_;
  Conversions conversions_;
  InputSets sets_;
  std::vector<Item> items_;
  int64_t failed_ = 0;
};

int run(const PredictArguments& arguments) {
  check_arguments(arguments);
  use_devices(arguments.devices);
  StoredModel model = load_stored_model("predict", arguments.run);
  if (model.info.kind == ModelInfo::Kind::text)
    throw_error("predict: {} is a language model; use `lockstep generate {} --prompt TEXT`", model.path, arguments.run);
  if (arguments.invert && model.info.kind == ModelInfo::Kind::table)
    throw UsageError("predict: --invert is for images, but the model takes tables");
  return PredictRun(arguments, std::move(model))();
}

}  // namespace

void add_predict_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("predict", "predict the classes of images, or the target of table rows");
  auto arguments = std::make_shared<PredictArguments>();
  add_run_argument(*command, arguments->run);
  command
      ->add_option("INPUT", arguments->inputs,
                   "PNG or JPEG images, folders of them, .npy files, or .csv files for a model of tables; -: an image, "
                   "or a list of paths, on standard input")
      ->type_name("FILE");
  command->add_option("--dataset", arguments->dataset.dataset, "predict the test set of a data set, by name or files")
      ->type_name("DATASET");
  command->add_option("--range", arguments->dataset.range, "with --dataset: only these examples, such as 0:10")
      ->type_name("BEGIN:END");
  command->add_option("--data-dir", arguments->dataset.data_dir, "with --dataset: the folder with its files")
      ->type_name("DIR");
  command->add_option("--top", arguments->top, "print the N most probable classes (default: 1)")
      ->type_name("N")
      ->check(integer_between(1, std::numeric_limits<int>::max()));
  command->add_flag("--invert", arguments->invert, "exchange dark and light, such as for black digits on white paper");
  command->add_option("-o,--output", arguments->format, "output format (default: text)")
      ->type_name("text|json|csv")
      ->check(one_of({"text", "json", "csv"}));
  command->add_option("--precision", arguments->precision, "compute type (default: that of the run)")
      ->type_name("float32|bfloat16|float16")
      ->check(one_of({"float32", "bfloat16", "float16"}));
  command->add_flag("--quiet", arguments->quiet, "do not print how inputs were converted");
  group_flags(*command, "Input", {"--dataset", "--range", "--data-dir", "--invert"});
  group_flags(*command, "Output", {"--output", "--top", "--quiet"});
  add_devices_flags(*command, arguments->devices);
  add_examples(*command, {"lockstep predict last photo.png --top 3", "lockstep predict run digits/ --invert -o json",
                          "lockstep predict run --dataset mnist --range 0:10"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
