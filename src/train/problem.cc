#include "train/problem.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "data/dataset.h"
#include "data/image_stream.h"
#include "lockstep/distributed.h"

namespace lockstep {
namespace {

// Whether the training images, given as raw files, need more than half of the machine's memory.
bool is_too_large(const std::string& dataset) {
  if (std::count(dataset.begin(), dataset.end(), ',') != 3) return false;
  const std::string images = dataset_files(dataset).train.images_path;
  if (images.ends_with(".gz") || !FileSystem::real().exists(images)) return false;
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return FileSystem::real().size(images) > memory / 2;
}

// Prints notes, and a line before the first download: a slow network should not look like a hang.
void print_data_event(const std::string& dataset, const DataEvent& event, bool& announced) {
  if (event.kind == DataEvent::Kind::note) print_stderr("lockstep: {}\n", event.text);
  if (event.kind != DataEvent::Kind::receiving || announced) return;
  announced = true;
  print_stderr("lockstep: fetching {} from {}\n", dataset, printable(event.source));
}

// The files of training images, training labels, test images and test labels; empty for synthetic data.
std::vector<std::string> data_files(const TrainConfig& config) {
  if (config.dataset == "synthetic") return {};
  std::vector<std::string> out;
  if (config.dataset.find(',') != std::string::npos) {
    std::istringstream paths(config.dataset);
    for (std::string path; std::getline(paths, path, ',');) out.push_back(path);
    if (out.size() == 2) out.insert(out.end(), {out[0], out[1]});  // the test set is the last part of both files
    return out;
  }
  const std::string folder = config.data_dir.empty() ? detail::cache_folder(config.dataset, {}) : config.data_dir;
  for (const detail::FileSpec& file : detail::find_dataset(config.dataset).files)
    out.push_back(folder.empty() ? file.name : folder + "/" + file.name);
  return out;
}

// The sets of a run and the shape of their images.
struct ImageSets {
  SourcePtr train, test;
  ImageShape shape;
};

ImageSets resident_sets(Dataset data, const TrainConfig& config) {
  const std::vector<std::string> files = data_files(config);
  const ImageFiles train = files.empty() ? ImageFiles{} : ImageFiles{files[0], files[1]};
  const ImageFiles test = files.empty() ? ImageFiles{} : ImageFiles{files[2], files[3]};
  const ImageShape shape{data.train.rows, data.train.cols, data.train.classes};
  return {image_source(std::move(data.train), train), image_source(std::move(data.test), test), shape};
}

DataOptions data_options(const TrainConfig& config) {
  DataOptions options{.dir = config.data_dir};
  options.progress = [&config, announced = false](const DataEvent& event) mutable {
    if (!config.quiet && process_index() == 0) print_data_event(config.dataset, event, announced);
  };
  return options;
}

ImageSets open_images(const TrainConfig& config) {
  const DataOptions options = data_options(config);
  if (config.stream == "off" || (config.stream == "auto" && !is_too_large(config.dataset)))
    return resident_sets(load_dataset(config.dataset, options), config);
  const DatasetFiles files = dataset_files(config.dataset, options);
  const detail::ImageStream train(files.train, FileSystem::real());
  ImageDataset test = load_idx_pair(files.test.images_path, files.test.labels_path);
  if (test.rows != train.rows() || test.cols != train.cols() || test.classes > train.classes())
    throw_error(
        "data: the test set {} has {} x {} images in {} classes, but the training set has {} x {} images in {}; use "
        "files of one data set",
        files.test.images_path, test.rows, test.cols, test.classes, train.rows(), train.cols(), train.classes());
  return {image_source(files.train), image_source(std::move(test), files.test),
          {train.rows(), train.cols(), train.classes()}};
}

Task image_task_of(const TrainConfig& config, const ImageShape& shape) {
  return image_task(find_model(config.model, shape, config.dropout), {.label_smoothing = config.label_smoothing,
                                                                      .pixel_mean = config.pixel_mean,
                                                                      .pixel_sd = config.pixel_sd});
}

Problem image_problem(const TrainConfig& config, ImageSets sets) {
  return {.task = image_task_of(config, sets.shape), .train = std::move(sets.train), .test = std::move(sets.test)};
}

// The test set of a data set, or all examples of a pair of files.
ImageDataset load_test_set(const TrainConfig& config, const EvalRequest& request) {
  const std::string& dataset = request.dataset;
  const size_t comma = dataset.find(',');
  if (comma != dataset.npos && dataset.find(',', comma + 1) == dataset.npos)
    return load_idx_pair(dataset.substr(0, comma), dataset.substr(comma + 1));
  // The data folder of the run is used only for the data set of the run.
  const std::string& dir = request.data_dir.empty() && dataset.empty() ? config.data_dir : request.data_dir;
  return load_dataset(dataset.empty() ? config.dataset : dataset, {.dir = dir}).test;
}

}  // namespace

Problem builtin_problem(const TrainConfig& config) { return image_problem(config, open_images(config)); }

Problem builtin_problem_shapes(const TrainConfig& config) {
  const std::vector<std::string> named = dataset_names();
  if (config.stream == "on" || std::find(named.begin(), named.end(), config.dataset) == named.end())
    return builtin_problem(config);
  const detail::DatasetSpec& spec = detail::find_dataset(config.dataset);
  const auto zeros = [&](size_t images) {
    const Shape& shape = spec.files[images].shape;
    return ImageDataset{.images = std::vector<uint8_t>(static_cast<size_t>(count(shape))),
                        .labels = std::vector<uint8_t>(static_cast<size_t>(shape[0])),
                        .count = shape[0],
                        .rows = shape[1],
                        .cols = shape[2],
                        .classes = spec.classes};
  };
  return image_problem(config, resident_sets({zeros(0), zeros(2)}, config));
}

Problem builtin_eval_problem(const TrainConfig& config, const EvalRequest& request) {
  ImageDataset test = load_test_set(config, request);
  if (test.classes > request.classes)
    throw_error("eval: the data has {} classes but the model has {}; select the model's data set with --dataset",
                test.classes, request.classes);
  test.classes = request.classes;
  const ImageShape shape{test.rows, test.cols, test.classes};
  return {.task = image_task_of(config, shape), .train = nullptr, .test = image_source(std::move(test))};
}

Problem open_problem(const ProblemFactory& make, const TrainConfig& config) {
  if (process_index() > 0) distributed::sync("data set");
  Problem problem = make(config);
  if (process_index() == 0 && process_count() > 1) distributed::sync("data set");
  return problem;
}

}  // namespace lockstep
