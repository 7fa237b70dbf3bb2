// Conv: two-dimensional convolution on one CPU lane, forward and both gradients. Images are NHWC, filters HWIO.
//
//   const Conv conv = Conv::prepare({.batch = 128, .in = {14, 14}, .in_channels = 32, .out_channels = 64,
//                                    .kernel = {5, 5}, .pad_lo = {2, 2}, .pad_hi = {2, 2}});
//   conv.forward(pool, x, w, y);
//
// Every direction is a matrix product over the columns matrix (im2col: one row per output pixel with the values of its
// window), of which only tiles that fit the cache are materialized: some pixels, and of long rows some columns. A
// prepared Conv is immutable; several threads may run it at the same time. Results do not depend on the number of
// threads: the tiles and the order of all sums depend on the shape alone.
#pragma once

#include <array>
#include <cstdint>

#include "lane/cpu/gemm_half.h"
#include "lane/cpu/tile.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// Pairs are height and width.
struct ConvSpec {
  using Pair = std::array<int64_t, 2>;

  DType dtype = DType::f32;  // of all arrays: a float; bf16 and f16 are summed in f32 and rounded once
  int64_t batch = 1;
  Pair in{};                // extents of the input images [batch, in, in_channels]
  int64_t in_channels = 1;  // summed over all groups
  int64_t out_channels = 1;
  Pair kernel{};  // the filter is [kernel, in_channels / groups, out_channels]
  Pair stride{1, 1};
  Pair pad_lo{0, 0}, pad_hi{0, 0};  // zeros around the (dilated) image; negative: cropped
  Pair in_dilation{1, 1};           // distance between the image's pixels, with zeros between them
  Pair kernel_dilation{1, 1};
  int64_t groups = 1;  // group g maps the g-th share of the input channels to the g-th share of the output channels
};

class Conv {
 public:
  // Throws Error if the dtype is not a float, the channels are not multiples of the groups, or a stride or dilation is
  // below 1.
  static Conv prepare(const ConvSpec& spec);
  // The same with a given kernel of that dtype; null: OpenBLAS, after a conversion of 16-bit floats to f32.
  static Conv prepare(const ConvSpec& spec, const HalfKernel* kernel);

  // Computes y[batch, out, out_channels]. The epilogue, if given, gets tiles of [pixels of all images, output channels
  // of one group or of all]. If y is null, only the epilogue gets the result.
  void forward(Pool& pool, const void* x, const void* w, void* y, Epilogue epilogue = {}) const;

  // Computes dx, the gradient with respect to x, from dy of y's shape.
  void input_gradient(Pool& pool, const void* dy, const void* w, void* dx) const;

  // Computes dw, the gradient with respect to w.
  void filter_gradient(Pool& pool, const void* x, const void* dy, void* dw) const;

  const ConvSpec& spec() const { return spec_; }
  // Extents of the output images; 0 if the window does not fit.
  ConvSpec::Pair out() const { return out_; }

 private:
  ConvSpec spec_;
  const HalfKernel* kernel_ = nullptr;
  ConvSpec::Pair out_{};
  int64_t pixels_ = 0;     // of one output image
  int64_t group_in_ = 0;   // input channels of a group
  int64_t group_out_ = 0;  // output channels of a group
  int64_t depth_ = 0;      // columns of the columns matrix: kernel height x width x group_in_
  // Tiles of the columns matrix have at most this many rows (output pixels) and columns.
  struct TileSize {
    int64_t pixels = 0, depth = 0;
  };
  TileSize tile_;         // of the result and of the input's gradient
  TileSize filter_tile_;  // of the filter's gradient
  int64_t chunk_pixels_ =
      0;                     // output pixels summed into one partial filter gradient, a multiple of filter_tile_.pixels
  int64_t task_images_ = 1;  // images per task of the input's gradient
  bool direct_ = false;      // computed by conv_direct.h
  bool columns_are_x_ = false;  // a window of one pixel: the columns matrix is x itself

  void choose_tiles();

  template <class T, bool kByKernel>
  friend class ConvRun;
};

}  // namespace lockstep
