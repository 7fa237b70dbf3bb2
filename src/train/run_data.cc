#include "train/run_data.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"

namespace lockstep {
namespace {

// Do the training images of four raw files fill more than half of the machine's memory?
bool too_large(const std::string& dataset) {
  if (std::count(dataset.begin(), dataset.end(), ',') != 3) return false;
  const std::string images = dataset_files(dataset).train.images_path;
  if (images.ends_with(".gz") || !FileSystem::real().exists(images)) return false;
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return FileSystem::real().size(images) > memory / 2;
}

}  // namespace

RunData open_data(const TrainConfig& config) {
  DataOptions options{.dir = config.data_dir};
  if (config.quiet) options.progress = [](const DataEvent&) {};
  const LoaderOptions loading{.batch_size = config.batch_size, .seed = config.seed};
  if (config.stream == "off" || (config.stream == "auto" && !too_large(config.dataset))) {
    Dataset data = load_dataset(config.dataset, options);
    return {Loader(std::move(data.train), loading), to_arrays(std::move(data.test))};
  }
  const DatasetFiles files = dataset_files(config.dataset, options);
  Loader train(files.train, loading);
  ImageArrays test = to_arrays(load_idx_pair(files.test.images_path, files.test.labels_path));
  if (test.images.shape(1) != train.rows() || test.images.shape(2) != train.cols() || test.classes > train.classes())
    throw_error(
        "data: the test set {} has images of {} x {} in {} classes, and the training set {} x {} in {}; they belong "
        "to different data sets",
        files.test.images_path, test.images.shape(1), test.images.shape(2), test.classes, train.rows(), train.cols(),
        train.classes());
  test.classes = train.classes();
  return {std::move(train), std::move(test)};
}

}  // namespace lockstep
