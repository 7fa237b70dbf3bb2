// Writes a data cache with synthetic images in the format of MNIST, for programs that train on MNIST by default.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "data/idx.h"
#include "lockstep/data.h"

namespace lockstep {

// Writes the image and label files of `set`, repeated `times` times.
inline void write_set(const std::string& folder, const std::string& prefix, const ImageDataset& set, int64_t times) {
  const auto write = [&](const std::string& name, const Shape& shape, const std::vector<uint8_t>& values) {
    std::vector<uint8_t> bytes = idx_header(shape);
    for (int64_t i = 0; i < times; ++i) bytes.insert(bytes.end(), values.begin(), values.end());
    FileSystem::real().write(folder + "/" + prefix + name, bytes);
  };
  write("-images-idx3-ubyte", {set.count * times, set.rows, set.cols}, set.images);
  write("-labels-idx1-ubyte", {set.count * times}, set.labels);
}

inline void write_mnist_cache(const std::string& folder) {
  FileSystem::real().make_dirs(folder + "/mnist");
  const Dataset small = synthetic_digits(6000, 1000);
  write_set(folder + "/mnist", "train", small.train, 10);
  write_set(folder + "/mnist", "t10k", small.test, 10);
}

}  // namespace lockstep
