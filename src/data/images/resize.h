// Resizing of images. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image_codec.h"

namespace lockstep::detail {

// Scales the largest centered part that has the proportions of rows x cols to that size, with bilinear interpolation.
// A pixel of a smaller result is the weighted mean of all pixels that it covers, so that nothing aliases. An image of
// that size is returned as it is. REQUIRES: rows and cols are positive.
DecodedImage resize_and_crop(DecodedImage image, int64_t rows, int64_t cols);

}  // namespace lockstep::detail
