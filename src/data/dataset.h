// The implementation of load_dataset, dataset_files, fetch_dataset and verify_dataset, with all dependencies passed in,
// so that tests can replace them. Safe from any thread if each thread has its own DataEnvironment.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "data/catalog.h"
#include "data/data_source.h"
#include "lockstep/data.h"

namespace lockstep::detail {

struct DataEnvironment {
  const DatasetSpec& spec;
  DataSources sources;  // tried in order for files that are not in the folder or cache
  FileSystem& files = FileSystem::real();
};

// The contents of all files, from options.dir or else from the cache, where they are fetched if missing.
std::vector<FileContents> read_files(DataEnvironment& env, const DataOptions& options);
Dataset load(DataEnvironment& env, const DataOptions& options);
std::string fetch(DataEnvironment& env, const DataOptions& options);
DatasetFiles locate(DataEnvironment& env, const DataOptions& options);
std::vector<DataCheck> verify(DataEnvironment& env, const DataOptions& options);

// Throws Error unless these are shapes of matching, non-empty images and labels. Messages start with `op`.
void check_pair(std::string_view op, const std::string& images_path, const Shape& images,
                const std::string& labels_path, const Shape& labels);

// The folder of a data set in the cache; empty if no environment variable gives a location for the cache.
std::string cache_folder(const std::string& dataset, const DataOptions& options);

}  // namespace lockstep::detail
