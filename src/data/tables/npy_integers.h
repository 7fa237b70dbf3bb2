// Integers of .npy files, such as labels. Safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "data/tables/npy.h"

namespace lockstep::detail {

// Reads the class numbers of a file with one dimension. Throws Error when the file has other dimensions or elements, or a
// number below 0 or above 2^31 - 2.
std::vector<int32_t> read_npy_labels(const NpyFile& file);

}  // namespace lockstep::detail
