#include "train/problem.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "data/share.h"
#include "lockstep/distributed.h"
#include "lockstep/image_data.h"
#include "lockstep/table_data.h"
#include "lockstep/text_data.h"
#include "train/gpt_settings.h"

namespace lockstep {
namespace {

// Prints notes, and a line before the first download: a slow network should not look like a hang.
std::function<void(const DataEvent&)> data_progress(const TrainConfig& config) {
  return [dataset = config.dataset, quiet = config.quiet, announced = false](const DataEvent& event) mutable {
    if (quiet || process_index() != 0) return;
    if (event.kind == DataEvent::Kind::note) print_stderr("lockstep: {}\n", event.text);
    if (event.kind != DataEvent::Kind::receiving || std::exchange(announced, true)) return;
    print_stderr("lockstep: fetching {} from {}\n", dataset, printable(event.source));
  };
}

ImageDataOptions image_options(const TrainConfig& config) {
  return {.dataset = config.dataset,
          .data_dir = config.data_dir,
          .stream = config.stream,
          .validation = config.validation,
          .rows = config.image_size,
          .cols = config.image_size,
          .progress = data_progress(config)};
}

ImageShape image_shape(const ImageData& data) {
  return {data.shape[0], data.shape[1], data.classes, data.shape.size() > 2 ? data.shape[2] : 1};
}

Task image_task_of(const TrainConfig& config, const ImageShape& shape) {
  const Model model =
      find_model(config.model, shape,
                 {.dropout = config.dropout, .layers = config.layers, .heads = config.heads, .width = config.width});
  return image_task(model, {.label_smoothing = config.label_smoothing,
                            .pixel_mean = config.pixel_mean,
                            .pixel_sd = config.pixel_sd,
                            .augment = {.crop = config.crop, .flip = config.flip, .cutout = config.cutout}});
}

Problem image_problem(const TrainConfig& config, const ImageData& data) {
  return {.task = image_task_of(config, image_shape(data)),
          .train = data.train,
          .validation = data.validation,
          .test = data.test,
          .files = {{kModelFile, to_json(image_info(image_shape(data), data.class_names))}}};
}

Problem text_problem(const TrainConfig& config) {
  TextDataOptions options{.dataset = config.dataset,
                          .tokenizer = config.tokenizer,
                          .vocabulary = config.vocabulary,
                          .seed = config.seed,
                          .stream = config.stream,
                          .data = {.dir = config.data_dir, .progress = data_progress(config)}};
  if (options.tokenizer.empty() && !config.dataset.starts_with("tokens:"))
    options.tokenizer = config.size.empty() || config.size.starts_with("char") ? "chars" : "gpt2";
  if (const std::optional<double> share = detail::parse_share(config.validation))
    options.validation = *share;
  else if (!config.validation.empty())
    options.dataset += "," + config.validation;
  // The context does not depend on the vocabulary, which is not known yet.
  options.context = gpt_config_of(config, std::max<int64_t>(config.vocabulary, 1)).context;
  const TextData data = open_text_data(options);
  Problem out{.task = language_task(gpt_config_of(config, data.vocabulary), {.bytes_per_token = data.bytes_per_token}),
              .train = data.train,
              .validation = data.validation};
  if (data.tokenizer) out.files = {{"tokenizer.json", data.tokenizer->to_json()}};
  return out;
}

Task table_task_of(const TrainConfig& config, const ModelInfo& info) {
  const std::vector<int64_t> hidden =
      config.model == "mlp1024" ? std::vector<int64_t>{1024, 1024} : std::vector<int64_t>{256, 128};
  return table_task(config.model, {.classes = info.classes,
                                   .means = info.means,
                                   .deviations = info.deviations,
                                   .target_mean = info.target_mean,
                                   .target_deviation = info.target_deviation,
                                   .hidden = hidden,
                                   .label_smoothing = config.label_smoothing,
                                   .dropout = config.dropout});
}

Problem table_problem(const TrainConfig& config) {
  if (!config.model.starts_with("mlp"))
    throw_error("data: {} is a table, and model {} needs images; choose model mlp", config.dataset, config.model);
  const TableData data =
      open_table_data({.dataset = config.dataset, .target = config.target, .validation = config.validation});
  const ModelInfo info = table_info(data);
  return {.task = table_task_of(config, info),
          .train = data.train,
          .validation = data.validation,
          .test = data.test,
          .files = {{kModelFile, to_json(info)}}};
}

// The test set of a table, for a model that was trained on the same columns.
Problem table_eval_problem(const TrainConfig& config, const ModelInfo& info) {
  const TableData data =
      open_table_data({.dataset = config.dataset, .target = config.target, .validation = config.validation});
  if (info.kind != ModelInfo::Kind::table || data.features != std::ssize(info.features) ||
      (data.classes > 0) != (info.classes > 0))
    throw_error(
        "eval: {} is a table of {} features and {}, which the model of the run does not take; select the "
        "model's data set with --dataset",
        config.dataset, data.features, data.classes > 0 ? "a category" : "a number");
  if (data.classes > info.classes || (!info.class_names.empty() && data.class_names != info.class_names))
    throw_error("eval: the classes of {} are not those of the training set; give a table with the same classes",
                config.dataset);
  return {.task = table_task_of(config, info), .train = nullptr, .validation = data.validation, .test = data.test};
}

// The images that an evaluation uses, and their shape.
struct EvalImages {
  SourcePtr set;
  ImageShape shape;
};

// The test set of a data set, or its validation set if it has none; all images of a pair of IDX files.
EvalImages open_eval_images(const TrainConfig& config, bool use_all) {
  const size_t comma = config.dataset.find(',');
  if (use_all && comma != std::string::npos && config.dataset.find(',', comma + 1) == std::string::npos &&
      config.dataset.find(':') == std::string::npos) {
    ImageDataset all = load_idx_pair(config.dataset.substr(0, comma), config.dataset.substr(comma + 1));
    const ImageShape shape{all.rows, all.cols, all.classes, all.channels};
    return {image_source(std::move(all)), shape};
  }
  const ImageData data = open_image_data(image_options(config));
  return {data.test ? data.test : data.validation, image_shape(data)};
}

}  // namespace

Problem builtin_problem(const TrainConfig& config) {
  if (is_text_dataset(config.dataset)) return text_problem(config);
  if (is_image_data(config.dataset)) return image_problem(config, open_image_data(image_options(config)));
  return table_problem(config);
}

Problem builtin_problem_shapes(const TrainConfig& config) {
  if (!is_image_data(config.dataset)) return builtin_problem(config);
  ImageDataOptions options = image_options(config);
  options.only_shapes = true;
  return image_problem(config, open_image_data(options));
}

ModelInfo builtin_image_info(const TrainConfig& config) {
  ImageDataOptions options = image_options(config);
  options.only_shapes = true;
  const ImageData data = open_image_data(options);
  return image_info(image_shape(data), data.class_names);
}

Task task_of(const TrainConfig& config, const ModelInfo& info) {
  if (info.kind == ModelInfo::Kind::table) return table_task_of(config, info);
  LOCKSTEP_CHECK(info.kind == ModelInfo::Kind::images, "a language model has its settings");
  return image_task_of(config, {info.rows, info.cols, info.classes, info.channels});
}

Problem builtin_eval_problem(const TrainConfig& config, const EvalRequest& request) {
  TrainConfig own = config;
  if (!request.dataset.empty()) {
    own.dataset = request.dataset;
    own.data_dir.clear();  // the data folder of the run is used only for the data set of the run
    own.validation.clear();
  }
  if (!request.data_dir.empty()) own.data_dir = request.data_dir;
  if (!request.tokenizer.empty() && is_text_dataset(own.dataset) && !own.dataset.starts_with("tokens:"))
    own.tokenizer = request.tokenizer;
  if (is_text_dataset(own.dataset)) return builtin_problem(own);
  if (!is_image_data(own.dataset)) return table_eval_problem(own, request.info);
  EvalImages images = open_eval_images(own, !request.dataset.empty());
  if (images.shape.classes > request.info.classes)
    throw_error("eval: the data has {} classes but the model has {}; select the model's data set with --dataset",
                images.shape.classes, request.info.classes);
  images.shape.classes = request.info.classes;
  return {.task = image_task_of(own, images.shape), .train = nullptr, .test = images.set};
}

Problem open_problem(const ProblemFactory& make, const TrainConfig& config) {
  if (process_index() > 0) distributed::sync("data set");
  Problem problem = make(config);
  if (process_index() == 0 && process_count() > 1) distributed::sync("data set");
  return problem;
}

}  // namespace lockstep
