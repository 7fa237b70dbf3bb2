// Separable interpolation: first all rows become narrower or wider, then all columns. Weights are a triangle around the
// center of a result pixel, as wide as the pixel is in the source, at least one source pixel to each side.
#include "data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::detail {
namespace {

// The source elements of one result element, with weights that add up to 1.
struct Taps {
  int64_t begin = 0;
  std::vector<float> weights;
};

// Taps for `count` result elements that cover [begin, begin + extent) of `size` source elements.
std::vector<Taps> make_taps(int64_t size, double begin, double extent, int64_t count) {
  const double step = extent / static_cast<double>(count), reach = std::max(step, 1.0);
  std::vector<Taps> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    Taps& taps = out[static_cast<size_t>(i)];
    const double center = begin + (static_cast<double>(i) + 0.5) * step;
    const int64_t low = std::max<int64_t>(0, static_cast<int64_t>(std::floor(center - reach + 0.5)));
    const int64_t high = std::min(size, static_cast<int64_t>(std::floor(center + reach + 0.5)));
    taps.begin = std::min(low, size - 1);
    double sum = 0;
    std::vector<double> weights;
    for (int64_t at = taps.begin; at < std::max(high, taps.begin + 1); ++at) {
      weights.push_back(std::max(0.0, 1 - std::abs((static_cast<double>(at) + 0.5 - center) / reach)));
      sum += weights.back();
    }
    for (const double weight : weights)
      taps.weights.push_back(static_cast<float>(sum > 0 ? weight / sum : 1.0 / static_cast<double>(weights.size())));
  }
  return out;
}

uint8_t to_byte(float value) { return static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f)); }

// Rows [first, last) of the image, each with taps.size() pixels.
std::vector<float> scale_rows(const DecodedImage& image, const std::vector<Taps>& taps, int64_t first, int64_t last) {
  const int64_t channels = image.channels;
  std::vector<float> out(static_cast<size_t>(last - first) * taps.size() * static_cast<size_t>(channels));
  float* to = out.data();
  for (int64_t row = first; row < last; ++row) {
    const uint8_t* line = image.pixels.data() + row * image.cols * channels;
    for (const Taps& each : taps) {
      for (int64_t c = 0; c < channels; ++c) {
        const uint8_t* from = line + each.begin * channels + c;
        float sum = 0;
        for (size_t k = 0; k < each.weights.size(); ++k, from += channels) sum += each.weights[k] * *from;
        *to++ = sum;
      }
    }
  }
  return out;
}

// Combines rows of `width` values; row 0 of `rows` is row `first` of the taps.
std::vector<uint8_t> scale_cols(const std::vector<float>& rows, int64_t width, const std::vector<Taps>& taps,
                                int64_t first) {
  std::vector<uint8_t> out;
  out.reserve(taps.size() * static_cast<size_t>(width));
  std::vector<float> sums(static_cast<size_t>(width));
  for (const Taps& each : taps) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (size_t k = 0; k < each.weights.size(); ++k) {
      const float weight = each.weights[k];
      const float* from = rows.data() + (each.begin - first + static_cast<int64_t>(k)) * width;
      for (size_t x = 0; x < sums.size(); ++x) sums[x] += weight * from[x];
    }
    for (const float sum : sums) out.push_back(to_byte(sum));
  }
  return out;
}

}  // namespace

DecodedImage resize_and_crop(DecodedImage image, int64_t rows, int64_t cols) {
  if (image.rows == rows && image.cols == cols) return image;
  const double height = static_cast<double>(image.rows), width = static_cast<double>(image.cols);
  // Source pixels per result pixel: the smaller ratio, so that the part fits into the image.
  const double scale = std::min(height / static_cast<double>(rows), width / static_cast<double>(cols));
  const double used_rows = scale * static_cast<double>(rows), used_cols = scale * static_cast<double>(cols);
  const std::vector<Taps> down = make_taps(image.rows, (height - used_rows) / 2, used_rows, rows);
  const std::vector<Taps> across = make_taps(image.cols, (width - used_cols) / 2, used_cols, cols);
  const int64_t first = down.front().begin, last = down.back().begin + std::ssize(down.back().weights);
  const std::vector<float> narrow = scale_rows(image, across, first, last);
  return {.rows = rows,
          .cols = cols,
          .channels = image.channels,
          .pixels = scale_cols(narrow, cols * image.channels, down, first)};
}

}  // namespace lockstep::detail
