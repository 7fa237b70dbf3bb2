// Resizing of images and of other arrays, as jax.image does. Safe to call from any thread.
//
//   Array thumbnails = image::resize(images, {n, 32, 32, 3}, image::Method::linear);
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep::image {

// cubic is Keys' kernel; lanczos3 and lanczos5 are windowed sinc functions.
enum class Method : uint8_t { nearest, linear, cubic, lanczos3, lanczos5 };

// Resizes x to `shape`; dimensions whose extent stays are not touched. With `antialias`, shrinking averages over all
// elements. nearest keeps the element type; the other methods compute in floats.
Array resize(const Operand& x, const Shape& shape, Method method, bool antialias = true);

// Resamples `spatial_dims` of x to `shape`: element i of a dimension comes from (i + 0.5 - translation) / scale - 0.5.
// Places outside of x are zero. `scale` and `translation` have a number for each of spatial_dims. Not for nearest.
Array scale_and_translate(const Operand& x, const Shape& shape, const std::vector<int64_t>& spatial_dims,
                          const std::vector<double>& scale, const std::vector<double>& translation, Method method,
                          bool antialias = true);

}  // namespace lockstep::image
