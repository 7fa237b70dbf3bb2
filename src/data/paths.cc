#include "data/paths.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/split_list.h"

namespace lockstep::detail {
namespace {

int largest(const std::vector<uint8_t>& labels) { return *std::max_element(labels.begin(), labels.end()); }

// Splits off the last tenth, at least one image, as the test set.
Dataset split_off_test(ImageDataset all, const std::string& images_path, const std::string& labels_path) {
  if (all.count < 2) throw_error("data: {} has one image; a training and a test set need at least two", images_path);
  const int64_t test = std::max<int64_t>(1, all.count / 10), train = all.count - test;
  const int64_t pixels = all.rows * all.cols * all.channels;
  Dataset data{.train = std::move(all), .test = {}};
  data.test = {.images = {data.train.images.begin() + train * pixels, data.train.images.end()},
               .labels = {data.train.labels.begin() + train, data.train.labels.end()},
               .count = test,
               .rows = data.train.rows,
               .cols = data.train.cols,
               .channels = data.train.channels,
               .classes = data.train.classes};
  data.train.images.resize(static_cast<size_t>(train * pixels));
  data.train.labels.resize(static_cast<size_t>(train));
  data.train.count = train;
  if (const int test_largest = largest(data.test.labels), train_largest = largest(data.train.labels);
      test_largest > train_largest)
    throw_error(
        "data: the last tenth of {}, the test set, has label {}, but the rest has only labels up to {}; the examples "
        "seem to be sorted: shuffle them, or give a separate test set: "
        "TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,TEST_LABELS",
        labels_path, test_largest, train_largest);
  return data;
}

// The two or four paths of a name.
std::vector<std::string> checked_paths(std::string_view name) {
  std::vector<std::string> paths = split_list(name, ',');
  const bool empty = std::any_of(paths.begin(), paths.end(), [](const std::string& path) { return path.empty(); });
  if (empty || (paths.size() != 2 && paths.size() != 4))
    throw_error(
        "data: \"{}\" has {} paths{}; give IDX files as IMAGES,LABELS or TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,"
        "TEST_LABELS",
        name, paths.size(), empty ? ", some of them empty" : "");
  return paths;
}

}  // namespace

DatasetFiles split_paths(std::string_view name) {
  const std::vector<std::string> paths = checked_paths(name);
  if (paths.size() == 2)
    throw_error(
        "data: \"{}\" has no test set, and a streamed set cannot be split; give four files: "
        "TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,TEST_LABELS",
        name);
  return {{paths[0], paths[1]}, {paths[2], paths[3]}};
}

Dataset load_paths(std::string_view name) {
  const std::vector<std::string> paths = checked_paths(name);
  ImageDataset train = load_idx_pair(paths[0], paths[1]);
  if (paths.size() == 2) return split_off_test(std::move(train), paths[0], paths[1]);

  ImageDataset test = load_idx_pair(paths[2], paths[3]);
  if (train.channels != test.channels)
    throw_error("data: the images of {} have {} channels, but those of {} have {}; use images of one kind", paths[0],
                train.channels, paths[2], test.channels);
  if (train.rows != test.rows || train.cols != test.cols)
    throw_error(
        "data: the images of {} have {} x {} pixels, but those of {} have {} x {}; use images of one size for training "
        "and test",
        paths[0], train.rows, train.cols, paths[2], test.rows, test.cols);
  if (test.classes > train.classes)
    throw_error(
        "data: {} has label {}, but the training labels of {} go up to {}; the test set must not have classes without "
        "training examples: check the order of the files",
        paths[3], test.classes - 1, paths[1], train.classes - 1);
  test.classes = train.classes;
  return {.train = std::move(train), .test = std::move(test)};
}

}  // namespace lockstep::detail
