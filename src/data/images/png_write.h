// Writes images as PNG files. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image_codec.h"

namespace lockstep::detail {

// The bytes of a PNG file with 8 bits per channel. REQUIRES: 1 or 3 channels, and as many pixels as the size says.
std::vector<uint8_t> to_png(const DecodedImage& image);

}  // namespace lockstep::detail
