// The data of a run: its training set, in memory or read as it goes, and its test set.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine.h"
#include "train/config.h"

namespace lockstep {

struct RunData {
  Loader train;
  ImageArrays test;
};

// Of each batch a process takes what its devices of the mesh compute. Throws Error when the batch or the files do not
// fit, IoError when no source has the data.
RunData open_data(const TrainConfig& config, const Mesh& mesh);

// Where the training images, training labels, test images and test labels of a run come from; empty when from no files.
std::vector<std::string> data_files(const TrainConfig& config);

}  // namespace lockstep
