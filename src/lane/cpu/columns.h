// The columns matrix of a convolution (im2col), tile by tile: gathers windows into rows, and adds rows back onto the
// image. Immutable; safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lane/cpu/conv.h"

namespace lockstep::detail {

// Row p of the matrix belongs to output pixel p, counted through all images; its columns are [kernel y, kernel x,
// channel of the group]. Columns at padding, or in the gaps of a dilated image, are zero.
class Columns {
 public:
  Columns(const ConvSpec& spec, ConvSpec::Pair out) : s_(spec), out_(out), channels_(spec.in_channels / spec.groups) {}

  // The number of elements after the rows that gather() may overwrite.
  static constexpr int64_t kSlack = 8;

  // A part of the columns.
  struct Range {
    int64_t begin, count;
  };

  // Gathers some columns of rows [first, first + count) of group g from x into `to`, densely.
  template <class T, class S>
  void gather(const T* x, int64_t g, int64_t first, int64_t count, Range columns, S* to) const {
    const int64_t end = s_.batch * s_.in[0] * s_.in[1] * s_.in_channels;
    walk_columns(g, first, count, columns, [&](int64_t pixel, int64_t run) {
      // A short run is copied fastest as a fixed number of elements; the next run overwrites the excess.
      if (pixel < 0) {
        if (run <= kSlack)
          std::fill_n(to, kSlack, S());
        else
          std::fill_n(to, run, S());
      } else if (run <= kSlack && pixel + kSlack <= end) {
        copy(x + pixel, kSlack, to);
      } else {
        copy(x + pixel, run, to);
      }
      to += run;
    });
  }

  // The reverse: adds them to images, of which image n begins at *images. REQUIRES: no pixel is of an earlier image.
  template <class S>
  void scatter_add(const S* from, int64_t g, int64_t first, int64_t count, Range columns, int64_t n, S* images) const {
    const int64_t origin = n * s_.in[0] * s_.in[1] * s_.in_channels;
    walk_columns(g, first, count, columns, [&](int64_t pixel, int64_t run) {
      if (pixel >= 0) {
        S* const target = images + (pixel - origin);
        for (int64_t i = 0; i < run; ++i) target[i] += from[i];
      }
      from += run;
    });
  }

 private:
  template <class T, class S>
  static void copy(const T* from, int64_t count, S* to) {
    if constexpr (std::is_same_v<T, S>) {
      // For a few elements a call of memcpy costs more than the copy.
      if (count > 16) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
        return;
      }
    }
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<S>(from[i]);
  }

  // The image row or column at a window position; -1 for padding or a gap.
  int64_t source(int d, int64_t out, int64_t k) const {
    const int64_t at = out * s_.stride[d] + k * s_.kernel_dilation[d] - s_.pad_lo[d];
    if (s_.in_dilation[d] == 1) return at >= 0 && at < s_.in[d] ? at : -1;  // the usual case, without a division
    if (at < 0 || at % s_.in_dilation[d] != 0) return -1;
    return at / s_.in_dilation[d] < s_.in[d] ? at / s_.in_dilation[d] : -1;
  }

  // Calls run(offset in x or -1, length) for the contiguous runs of some columns of the rows, in order.
  template <class Run>
  void walk_columns(int64_t g, int64_t first, int64_t count, Range columns, Run run) const {
    const int64_t all = s_.kernel[0] * s_.kernel[1] * channels_, end = columns.begin + columns.count;
    if (columns.count == all) return walk(g, first, count, run);
    int64_t at = 0;
    walk(g, first, count, [&](int64_t pixel, int64_t length) {
      const int64_t from = std::max(columns.begin, at), to = std::min(end, at + length);
      if (from < to) run(pixel < 0 ? pixel : pixel + (from - at), to - from);
      at = at + length == all ? 0 : at + length;
    });
  }

  // The same for all columns.
  template <class Run>
  void walk(int64_t g, int64_t first, int64_t count, Run run) const {
    const bool contiguous_rows = s_.groups == 1 && s_.in_dilation[1] == 1 && s_.kernel_dilation[1] == 1;
    const int64_t row = s_.in[1] * s_.in_channels, width = s_.kernel[1];
    int64_t ox = first % out_[1], oy = first / out_[1] % out_[0], n = first / (out_[0] * out_[1]);
    for (int64_t p = 0; p < count; ++p) {
      // The window's columns [left, right) are inside the image.
      const int64_t x0 = ox * s_.stride[1] - s_.pad_lo[1];
      const int64_t left = std::clamp<int64_t>(-x0, 0, width), right = std::clamp(s_.in[1] - x0, left, width);
      for (int64_t ky = 0; ky < s_.kernel[0]; ++ky) {
        const int64_t iy = source(0, oy, ky);
        const int64_t base = (n * s_.in[0] + iy) * row + g * channels_;
        if (iy < 0) {
          run(-1, width * channels_);
        } else if (contiguous_rows) {
          if (left > 0) run(-1, left * channels_);
          if (right > left) run(base + (x0 + left) * channels_, (right - left) * channels_);
          if (right < width) run(-1, (width - right) * channels_);
        } else {
          for (int64_t kx = 0; kx < width; ++kx) {
            const int64_t ix = source(1, ox, kx);
            run(ix < 0 ? -1 : base + ix * s_.in_channels, channels_);
          }
        }
      }
      if (++ox == out_[1]) {
        ox = 0;
        if (++oy == out_[0]) oy = 0, ++n;
      }
    }
  }

  const ConvSpec& s_;
  ConvSpec::Pair out_;
  int64_t channels_;
};

}  // namespace lockstep::detail
