// Augmentation of images inside the compiled step: random crops, flips and cutout, and normalization.
//
//   Array x = nn::augment(images, key, positions, {.crop = 4, .flip = true});
//   x = nn::normalize(x, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616});
//
// The random numbers of an example are a function of the key and the position of the example, so the result does not
// depend on batch sizes, devices or processes. Safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep::nn {

struct AugmentOptions {
  // Shift each image by up to this many pixels in each direction; zeros come in. The same as a crop from the image with
  // that much padding.
  int64_t crop = 0;
  // Reverse the columns with probability 1/2.
  bool flip = false;
  // Set a square with this side to zero. Its center is anywhere in the image, so that it may extend beyond.
  int64_t cutout = 0;
};

// images [n, rows, cols] or [n, rows, cols, channels], of any type -> the same type. `positions`, i32 or i64 [n], are the
// positions of the examples in the epoch, over all processes; their low 32 bits count. `key` should be another one in
// each epoch. Throws Error when the shapes or options are wrong.
Array augment(const Operand& images, const Operand& key, const Operand& positions, const AugmentOptions& options);

// (images / 255 - mean) / sd in a floating type. Means and deviations: one for all channels, or one for each channel of
// [n, rows, cols, channels]; none: 0 and 1. Throws Error for other numbers of them, and unless each sd is positive.
Array normalize(const Operand& images, const std::vector<double>& mean, const std::vector<double>& sd,
                DType dtype = f32);

}  // namespace lockstep::nn
