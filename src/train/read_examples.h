// Reads single examples of a data set into host memory. Safe from any thread.
#pragma once

#include <span>

#include "lockstep/source.h"

namespace lockstep {

// The fields of these examples of the first epoch, with one row for each. Throws IoError when a file cannot be read.
// REQUIRES: 0 <= example < source.count().
BatchArrays read_examples(const Source& source, std::span<const int64_t> examples);

}  // namespace lockstep
