#include "train/run_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "data/dataset.h"
#include "lockstep/device_put.h"
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

LoaderOptions loader_options(const TrainConfig& config, const Mesh& mesh) {
  LoaderOptions out{.batch_size = config.batch_size, .seed = config.seed};
  // With micro-batches every process loads complete batches, because each micro-batch is sharded separately.
  if (process_count() > 1 && config.accumulate == 1)
    out.part = [sharding = NamedSharding(mesh, P(make_sharding_plan(config).data_axis))](int64_t n) {
      return process_range(sharding, n);
    };
  return out;
}

Loader resident_loader(ImageDataset train, const TrainConfig& config, const Mesh& mesh) {
  if (config.batch_size > train.count)
    throw SettingsError("batch_size",
                        fmt::format("train: batch_size is {}, but the training set has {} examples; use at most {}",
                                    config.batch_size, train.count, train.count));
  return Loader(std::move(train), loader_options(config, mesh));
}

RunData open(const TrainConfig& config, const Mesh& mesh) {
  DataOptions options{.dir = config.data_dir};
  options.progress = [&, announced = false](const DataEvent& event) mutable {
    if (!config.quiet && process_index() == 0) print_data_event(config.dataset, event, announced);
  };
  if (config.stream == "off" || (config.stream == "auto" && !is_too_large(config.dataset))) {
    Dataset data = load_dataset(config.dataset, options);
    return {resident_loader(std::move(data.train), config, mesh), to_arrays(std::move(data.test))};
  }
  const DatasetFiles files = dataset_files(config.dataset, options);
  Loader train(files.train, loader_options(config, mesh));
  ImageArrays test = to_arrays(load_idx_pair(files.test.images_path, files.test.labels_path));
  if (test.images.shape(1) != train.rows() || test.images.shape(2) != train.cols() || test.classes > train.classes())
    throw_error(
        "data: the test set {} has {} x {} images in {} classes, but the training set has {} x {} images in {}; use "
        "files of one data set",
        files.test.images_path, test.images.shape(1), test.images.shape(2), test.classes, train.rows(), train.cols(),
        train.classes());
  test.classes = train.classes();
  return {std::move(train), std::move(test)};
}

}  // namespace

RunData open_data(const TrainConfig& config, const Mesh& mesh) {
  // The first process may have to download the set. The others wait and, on the same host, find it in the cache.
  if (process_index() > 0) distributed::sync("data set");
  RunData data = open(config, mesh);
  if (process_index() == 0 && process_count() > 1) distributed::sync("data set");
  return data;
}

Loader open_shapes(const TrainConfig& config, const Mesh& mesh) {
  const std::vector<std::string> named = dataset_names();
  if (config.stream == "on" || std::find(named.begin(), named.end(), config.dataset) == named.end())
    return open_data(config, mesh).train;
  const detail::DatasetSpec& spec = detail::find_dataset(config.dataset);
  const Shape& shape = spec.files[0].shape;
  return resident_loader({.images = std::vector<uint8_t>(static_cast<size_t>(count(shape))),
                          .labels = std::vector<uint8_t>(static_cast<size_t>(shape[0])),
                          .count = shape[0],
                          .rows = shape[1],
                          .cols = shape[2],
                          .classes = spec.classes},
                         config, mesh);
}

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

}  // namespace lockstep
