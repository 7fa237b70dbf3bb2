// Data sets given by the paths of their files. Safe from any thread.
#pragma once

#include <string_view>

#include "lockstep/data.h"

namespace lockstep::detail {

// Loads "IMAGES,LABELS", of which the last tenth becomes the test set, or
// "TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,TEST_LABELS". Throws as load_idx_pair does, and Error when the two sets do not
// match each other.
Dataset load_paths(std::string_view name);
// The four paths. Throws Error for "IMAGES,LABELS".
DatasetFiles split_paths(std::string_view name);

}  // namespace lockstep::detail
