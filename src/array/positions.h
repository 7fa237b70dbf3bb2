// Positions in a sorted vector. Safe to call from any thread.
#pragma once

#include "lockstep/array.h"

namespace lockstep::detail {

// For each number the i32 count of elements of the ascending vector `sorted` that are less than it; or not greater, if
// `right`. By binary search.
Array positions_in(const Array& sorted, const Array& numbers, bool right);

}  // namespace lockstep::detail
