// Convolution and pooling of images [n, h, w, c], and of arrays with one or three spatial dimensions. Safe to call from
// any thread.
//
//   Array y = relu(conv2d(x, w, {.stride = 2}));   // padding "SAME" by default
//   Array z = max_pool(y);                         // windows of 2 x 2
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/array.h"
#include "lockstep/operand.h"
#include "lockstep/windows.h"

namespace lockstep {

// Height and width: one number for both, or one each.
struct Extent2d {
  Extent2d(int64_t both) : height(both), width(both) {}  // NOLINT: reads as an argument
  Extent2d(int64_t h, int64_t w) : height(h), width(w) {}

  int64_t height, width;
};

// The padding around an image:
//   "VALID"  none
//   "SAME"   so much that the result has ceil(extent / stride) rows and columns; an odd row or column goes to the end
//   1                               that much on all sides
//   {1, 2}                          so much above and below, and left and right
//   {{top, bottom}, {left, right}}  explicit widths
struct Padding2d {
  enum class Kind : uint8_t { valid, same, explicit_widths };

  // Throws Error for any other name.
  template <detail::PaddingName T>
  Padding2d(const T& name, SourceLine at = SourceLine::here())  // NOLINT: reads as an argument
      : Padding2d(std::string_view(name), at, 0) {}
  template <detail::PaddingNumber T>
  Padding2d(T all) : Padding2d(PaddingWidths(all), PaddingWidths(all)) {}  // NOLINT
  Padding2d(PaddingWidths rows, PaddingWidths columns)
      : kind(Kind::explicit_widths), widths{rows.before, rows.after, columns.before, columns.after} {}

  Kind kind = Kind::valid;
  std::array<int64_t, 4> widths = {0, 0, 0, 0};

 private:
  Padding2d(std::string_view name, SourceLine at, int);
};

struct Conv2dOptions {
  Extent2d stride = 1;
  Padding2d padding = "SAME";
  Extent2d dilation = 1;  // distance between the taps of a filter
  int64_t groups = 1;     // channels are divided into groups; each filter sees the channels of one group
};

// Cross-correlates x [n, h, w, c] with filters w [kh, kw, c / groups, co]; filters are not flipped. Returns
// [n, oh, ow, co]. Throws Error when the shapes do not fit.
Array conv2d(const Operand& x, const Operand& w, const Conv2dOptions& options = {});

struct ConvOptionsNd {
  WindowExtents stride = 1;
  WindowPadding padding = "SAME";
  WindowExtents dilation = 1;
  int64_t groups = 1;
};

// The same in one dimension, x [n, w, c] and w [kw, c / groups, co]; and in three, x [n, d, h, w, c] and
// w [kd, kh, kw, c / groups, co].
Array conv1d(const Operand& x, const Operand& w, const ConvOptionsNd& options = {});
Array conv3d(const Operand& x, const Operand& w, const ConvOptionsNd& options = {});

// Convolves each channel with its own filters: x [n, spatial..., c] and w [windows..., 1, c * m] to
// [n, out..., c * m], in one to three dimensions. Filters m * i to m * i + m - 1 are those of channel i. `groups` is
// ignored.
Array depthwise_conv(const Operand& x, const Operand& w, const ConvOptionsNd& options = {});

// What the dimensions of lhs, rhs and the result are. A letter each: N (batch), C (channels), O and I (output and input
// channels of rhs), and any other letters for the spatial dimensions, the same in all three. Empty: "NCHW", "OIHW",
// "NCHW" and the like, as in JAX.
struct ConvDimensionNumbers {
  std::string lhs, rhs, out;
};

struct ConvGeneralOptions {
  WindowExtents window_strides = 1;
  WindowPadding padding = "VALID";
  WindowExtents lhs_dilation = 1;  // distance between the elements of lhs, with zeros between them
  WindowExtents rhs_dilation = 1;  // distance between the taps of a filter
  int64_t feature_group_count = 1;
  int64_t batch_group_count = 1;  // the batch is divided into groups; each convolves with its share of the filters
  ConvDimensionNumbers dimension_numbers = {};
};

// Cross-correlates lhs with the filters rhs in zero to three spatial dimensions. Throws Error when the shapes do not
// fit.
Array conv_general_dilated(const Operand& lhs, const Operand& rhs, const ConvGeneralOptions& options = {});

// The same with the default dimension numbers.
Array conv(const Operand& lhs, const Operand& rhs, const WindowExtents& window_strides, const WindowPadding& padding);
Array conv_with_general_padding(const Operand& lhs, const Operand& rhs, const WindowExtents& window_strides,
                                const WindowPadding& padding, const WindowExtents& lhs_dilation = 1,
                                const WindowExtents& rhs_dilation = 1);

struct ConvTransposeOptions {
  WindowExtents rhs_dilation = 1;
  ConvDimensionNumbers dimension_numbers = {};  // empty: "NHWC", "HWIO", "NHWC" and the like, as in JAX
  bool transpose_kernel = false;  // flips the filter and exchanges its channels: the gradient of a convolution by lhs
};

// The transposed convolution, which multiplies extents by `strides`: a convolution of lhs with zeros between its
// elements. Explicit padding is that of this convolution.
Array conv_transpose(const Operand& lhs, const Operand& rhs, const WindowExtents& strides, const WindowPadding& padding,
                     const ConvTransposeOptions& options = {});

// The elements that a convolution reads, as channels: those of the input come first, then the elements of the window in
// row-major order. The result has the dimensions of dimension_numbers.out; rhs only names the order of the spatial
// dimensions. Group counts must be 1.
Array conv_general_dilated_patches(const Operand& lhs, const std::vector<int64_t>& filter_shape,
                                   const ConvGeneralOptions& options = {});

// A convolution with different filters at each place: rhs [I = channels * windows, O] for each place of the result, in
// the order of dimension_numbers.rhs. Default dimension numbers: "NCHW", "OIHW", "NCHW" and the like. lhs_dilation and
// group counts must be 1.
Array conv_general_dilated_local(const Operand& lhs, const Operand& rhs, const std::vector<int64_t>& filter_shape,
                                 const ConvGeneralOptions& options = {});

// For x [n, spatial..., c] with one to three spatial dimensions. A window of several numbers says how many there are;
// dimensions before them are batches.
struct PoolOptions {
  WindowExtents window = 2;
  WindowExtents stride = 0;  // 0: the size of the window
  WindowPadding padding = "VALID";
  bool count_padding = true;  // avg_pool divides by the window size; false: by the number of elements in the image
};

// The maximum, the minimum and the mean over each window of each channel.
Array max_pool(const Operand& x, const PoolOptions& options = {});
Array min_pool(const Operand& x, const PoolOptions& options = {});
Array avg_pool(const Operand& x, const PoolOptions& options = {});

}  // namespace lockstep
