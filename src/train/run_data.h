// The data of a run: its training set, in memory or streamed from disk, and its test set. Not thread-safe.
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

// Opens the data, downloading it if necessary. Each process loads the part of every batch that its devices compute.
// Throws Error when the batch size or the files do not fit, IoError when no source has the data.
RunData open_data(const TrainConfig& config, const Mesh& mesh);

// A loader with the shapes of the training set, for compiling the steps of a run. A named data set that stays in memory
// is neither read nor fetched: its images are zeros. Throws like open_data().
Loader open_shapes(const TrainConfig& config, const Mesh& mesh);

// The files of the training images, training labels, test images and test labels; empty for synthetic data.
std::vector<std::string> data_files(const TrainConfig& config);

}  // namespace lockstep
