// What load_dataset, dataset_files, fetch_dataset and verify_dataset do, with every outside thing passed in: the data
// set's description, the sources to ask and the file system. Safe from any thread, given sources of its own.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "data/catalog.h"
#include "data/source.h"
#include "lockstep/data.h"

namespace lockstep::detail {

struct DataWorld {
  const DatasetSpec& spec;
  Sources sources;  // asked in order for what is not in the folder or cache
  FileSystem& files = FileSystem::real();
};

Dataset load(DataWorld& world, const DataOptions& options);
std::string fetch(DataWorld& world, const DataOptions& options);
DatasetFiles locate(DataWorld& world, const DataOptions& options);
std::vector<DataCheck> verify(DataWorld& world, const DataOptions& options);

// Throws Error, speaking for `op`, unless these are the shapes of a pair of images and labels with some pixels.
void check_pair(std::string_view op, const std::string& images_path, const Shape& images,
                const std::string& labels_path, const Shape& labels);

// The folder of a data set in the cache; empty when there is no home to put it in.
std::string cache_folder(const std::string& dataset, const DataOptions& options);

}  // namespace lockstep::detail
