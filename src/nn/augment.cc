#include "lockstep/augment.h"

#include <utility>

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/vmap.h"

namespace lockstep::nn {
namespace {

void check_augment(const Array& images, const Array& positions, const AugmentOptions& options) {
  if (images.rank() != 3 && images.rank() != 4)
    throw_error("nn::augment: images are {}; give [n, rows, cols] or [n, rows, cols, channels]",
                to_string(images.type()));
  if (!is_integer(positions.dtype()) || positions.shape() != Shape{images.shape(0)})
    throw_error("nn::augment: the positions of {} images are {}; give one integer for each: i32[{}]", images.shape(0),
                to_string(positions.type()), images.shape(0));
  if (options.crop < 0 || options.cutout < 0)
    throw_error("nn::augment: crop {} and cutout {}; they must not be negative", options.crop, options.cutout);
}

// Five random words for each example, u32 [5, n].
Array random_words(const Array& key, const Array& positions) {
  const auto words = [](const Array& base, const Array& position) {
    return random::bits(random::fold_in(base, position), {5});
  };
  return vmap(words, {.in_axes = {std::nullopt, 0}, .out_axes = 1})(key, positions);
}

// i32 [n, 1], below `limit`.
Array number_below(const Array& words, int64_t row, int64_t limit) {
  return expand_dims(astype(at(words, row) % limit, i32), 1);
}

// Whether a coordinate, i32 [n, extent], is within the image.
Array is_inside(const Array& place, int64_t extent) { return logical_and(place >= 0, place < extent); }

// Combines a factor of rows, [n, rows], with one of columns, [n, cols]: [n, rows, cols].
std::pair<Array, Array> as_grid(const Array& rows, const Array& cols) {
  return {expand_dims(rows, 2), expand_dims(cols, 1)};
}

}  // namespace

Array augment(const Operand& images, const Operand& key, const Operand& positions, const AugmentOptions& options) {
  check_augment(images, positions, options);
  if (options.crop == 0 && !options.flip && options.cutout == 0) return images;
  const int64_t n = images.shape(0), height = images.shape(1), width = images.shape(2);
  const Array words = random_words(key, positions);
  const Array row = expand_dims(arange(height), 0), col = expand_dims(arange(width), 0);  // [1, extent]

  // The place in the source of each row and column of the result.
  Array from_row = broadcast_to(row, {n, height}), from_col = broadcast_to(col, {n, width});
  if (options.flip) from_col = where((number_below(words, 2, 2)) == 1, width - 1 - col, col);
  if (options.crop > 0) {
    from_row = from_row + number_below(words, 0, 2 * options.crop + 1) - options.crop;
    from_col = from_col + number_below(words, 1, 2 * options.crop + 1) - options.crop;
  }
  const auto [grid_row, grid_col] = as_grid(clip(from_row, 0, height - 1), clip(from_col, 0, width - 1));
  const Array places = reshape(astype(grid_row * width + grid_col, u32), {n, height * width});
  const auto take_places = [](const Array& image, const Array& place) { return take(image, place); };
  const Array pixels = reshape(images, {n, height * width, -1});
  const Array moved = reshape(vmap(take_places)(pixels, places), images.shape());

  const auto [row_inside, col_inside] = as_grid(is_inside(from_row, height), is_inside(from_col, width));
  Array shown = logical_and(row_inside, col_inside);
  if (options.cutout > 0) {
    const Array first_row = number_below(words, 3, height) - options.cutout / 2;
    const Array first_col = number_below(words, 4, width) - options.cutout / 2;
    const auto [row_cut, col_cut] =
        as_grid(is_inside(row - first_row, options.cutout), is_inside(col - first_col, options.cutout));
    shown = logical_and(shown, logical_not(logical_and(row_cut, col_cut)));
  }
  if (options.crop == 0 && options.cutout == 0) return moved;
  return where(images.rank() == 4 ? expand_dims(shown, 3) : shown, moved, zeros({}, images.dtype()));
}

Array normalize(const Operand& images, const std::vector<double>& mean, const std::vector<double>& sd, DType dtype) {
  if (!is_floating(dtype)) throw_error("nn::normalize: the type is {}; give a floating type", name(dtype));
  const int64_t channels = images.rank() == 4 ? images.shape(3) : 1;
  const auto to_array = [&](const char* what, const std::vector<double>& values) {
    if (values.size() != 1 && static_cast<int64_t>(values.size()) != channels)
      throw_error("nn::normalize: {} has {} values for images {} with {} channel{}; give one, or one for each", what,
                  values.size(), to_string(images.type()), channels, channels == 1 ? "" : "s");
    const std::vector<float> numbers(values.begin(), values.end());
    return Array::from(numbers, values.size() == 1 ? Shape{} : Shape{channels});
  };
  for (const double value : sd)
    if (!(value > 0)) throw_error("nn::normalize: a standard deviation of {}; it must be positive", value);
  Array x = astype(images, f32) / 255.0f;
  if (!mean.empty()) x = x - to_array("mean", mean);
  if (!sd.empty()) x = x / to_array("sd", sd);
  return astype(x, dtype);
}

}  // namespace lockstep::nn
