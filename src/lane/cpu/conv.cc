#include "lane/cpu/conv.h"

#include "base/check.h"
#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/cpu/columns.h"
#include "lane/cpu/gemm_tile.h"

namespace lockstep {

namespace {

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A tile of the columns matrix takes about half of a 1 MiB second-level cache.
constexpr int64_t kConvTileBytes = int64_t{640} << 10;
constexpr int64_t kMaxTilePixels = 1024;
// The maximum number of partial sums of the filter gradient.
constexpr int64_t kConvChunks = 32;

template <class F>
void dispatch_conv(DType dtype, F f) {
  with_dtype(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>))
      f(T{});
    else
      throw_error("convolution: arrays of dtype {}; convert them to a float type first", name(dtype));
  });
}

}  // namespace

Conv Conv::prepare(const ConvSpec& spec) {
  // Products have a row for each pixel, and a column for each output channel.
  return prepare(spec, gemm_kernel(spec.dtype, kMaxTilePixels, spec.out_channels / std::max<int64_t>(spec.groups, 1)));
}

Conv Conv::prepare(const ConvSpec& spec, const HalfKernel* kernel) {
  prepare_blas();
  LOCKSTEP_CHECK(!kernel || kernel->dtype == spec.dtype, "a kernel for another dtype");
  dispatch_conv(spec.dtype, [](auto) {});
  if (spec.groups < 1 || spec.in_channels % spec.groups != 0 || spec.out_channels % spec.groups != 0)
    throw_error("convolution: {} input and {} output channels in {} groups; both must be multiples of the groups",
                spec.in_channels, spec.out_channels, spec.groups);
  Conv conv;
  conv.spec_ = spec;
  conv.kernel_ = kernel;
  for (int d = 0; d < 2; ++d) {
    if (spec.stride[d] < 1 || spec.in_dilation[d] < 1 || spec.kernel_dilation[d] < 1)
      throw_error("convolution: stride {}, input dilation {} and kernel dilation {}; each must be at least 1",
                  spec.stride[d], spec.in_dilation[d], spec.kernel_dilation[d]);
    LOCKSTEP_CHECK(spec.in[d] >= 0 && spec.kernel[d] >= 0 && spec.batch >= 0, "a negative extent");
    const auto dilated = [](int64_t extent, int64_t by) { return extent == 0 ? 0 : (extent - 1) * by + 1; };
    const int64_t room = dilated(spec.in[d], spec.in_dilation[d]) + spec.pad_lo[d] + spec.pad_hi[d] -
                         dilated(spec.kernel[d], spec.kernel_dilation[d]);
    conv.out_[d] = room < 0 ? 0 : room / spec.stride[d] + 1;
  }
  conv.pixels_ = conv.out_[0] * conv.out_[1];
  conv.group_in_ = spec.in_channels / spec.groups;
  conv.group_out_ = spec.out_channels / spec.groups;
  conv.depth_ = spec.kernel[0] * spec.kernel[1] * conv.group_in_;
  const int64_t element = kernel ? size_of(spec.dtype) : spec.dtype == DType::f64 ? 8 : 4;
  const int64_t max_pixels =
      std::clamp<int64_t>(kConvTileBytes / (std::max<int64_t>(conv.depth_, 1) * element), 16, kMaxTilePixels);
  // Equal tiles, so that the last one of an image is not much smaller.
  const int64_t pixels = std::max<int64_t>(conv.pixels_, 1);
  conv.tile_pixels_ = pixels > max_pixels ? div_up(pixels, div_up(pixels, max_pixels)) : max_pixels / pixels * pixels;
  const int64_t all_tiles = std::max<int64_t>(1, div_up(spec.batch * conv.pixels_, conv.tile_pixels_));
  conv.chunk_pixels_ = div_up(all_tiles, std::min(kConvChunks, all_tiles)) * conv.tile_pixels_;
  const ConvSpec::Pair one{1, 1}, zero{0, 0};
  conv.columns_are_x_ =
      spec.kernel == one && spec.stride == one && spec.in_dilation == one && spec.pad_lo == zero && spec.pad_hi == zero;
  return conv;
}

// One run of a Conv in the dtype T, with a kernel of half_kernels() or with OpenBLAS.
template <class T, bool kByKernel>
class ConvRun {
 public:
  ConvRun(const Conv& conv, Pool& pool) : c_(conv), s_(conv.spec_), pool_(pool), columns_(conv.spec_, conv.out_) {}

  // A task is a tile of output pixels in one group: y = columns w.
  void forward(const T* x, const T* w, T* y, Epilogue epilogue) {
    const int64_t pixels = s_.batch * c_.pixels_, tiles = div_up(pixels, c_.tile_pixels_);
    if (pixels == 0 || s_.out_channels == 0) return;
    const Filter filter = prepare_filter(w, false);
    pool_.parallel_for(tiles * s_.groups, [&](int64_t task, int thread) {
      const int64_t g = task % s_.groups, first = task / s_.groups * c_.tile_pixels_;
      const int64_t count = std::min(c_.tile_pixels_, pixels - first);
      Tile tile{0, first, count, g * c_.group_out_, c_.group_out_, nullptr, s_.out_channels, thread};
      if (y) {
        tile.data = y + first * s_.out_channels + g * c_.group_out_;
      } else {
        tile.data = scratch<T>(thread, detail::kOutSlot, count * c_.group_out_);
        tile.ld = c_.group_out_;
      }
      const detail::Operand<E> columns =
          gather(x, g, first, count, thread, kByKernel ? detail::kBSlot : detail::kASlot);
      if constexpr (kByKernel && kHalf) {
        detail::multiply_half<T>(*c_.kernel_, pool_, thread, columns, of_group(filter, g), count, c_.group_out_,
                                 c_.depth_, {.rounded = tile.data, .rounded_ld = tile.ld});
      } else if constexpr (kHalf) {
        S* const sums = scratch<S>(thread, detail::kSumSlot, count * c_.group_out_);
        multiply(columns, of_group(filter, g), count, c_.group_out_, c_.depth_, false, sums, c_.group_out_, thread);
        detail::convert(sums, c_.group_out_, count, c_.group_out_, static_cast<T*>(tile.data), tile.ld);
      } else {
        multiply(columns, of_group(filter, g), count, c_.group_out_, c_.depth_, false, static_cast<S*>(tile.data),
                 tile.ld, thread);
      }
      if (epilogue) epilogue(tile);
    });
  }

  // A task is one image: columns' gradient = dy w^T, tile by tile, added onto the image.
  void input_gradient(const T* dy, const T* w, T* dx) {
    const int64_t image = s_.in[0] * s_.in[1] * s_.in_channels;
    if (image == 0) return;
    const Filter filter = prepare_filter(w, true);
    pool_.parallel_for(s_.batch, [&](int64_t n, int thread) {
      S* sums = reinterpret_cast<S*>(dx + n * image);
      if constexpr (kHalf) sums = scratch<S>(thread, detail::kSumSlot, image);
      std::fill_n(sums, image, S{0});
      const int64_t step = std::min(c_.tile_pixels_, c_.pixels_);
      for (int64_t first = 0; first < c_.pixels_ && c_.depth_ > 0; first += step) {
        const int64_t count = std::min(step, c_.pixels_ - first), pixel = n * c_.pixels_ + first;
        for (int64_t g = 0; g < s_.groups; ++g) {
          S* const columns = scratch<S>(thread, kByKernel ? detail::kBSlot : detail::kASlot, count * c_.depth_);
          multiply(outputs(dy, g, pixel, count, thread), of_group(filter, g), count, c_.depth_, c_.group_out_, false,
                   columns, c_.depth_, thread);
          columns_.scatter_add(columns, g, pixel, count, sums);
        }
      }
      if constexpr (kHalf) detail::convert(sums, image, 1, image, dx + n * image, image);
    });
  }

  // A task is a chunk of output pixels in one group. Each sums dw^T = dy^T columns (the wide orientation, which packs
  // best) over its tiles. Then the partial sums are added in order and transposed.
  void filter_gradient(const T* x, const T* dy, T* dw) {
    const int64_t pixels = s_.batch * c_.pixels_, chunks = div_up(pixels, c_.chunk_pixels_);
    const int64_t part = c_.group_out_ * c_.depth_,
                  parts = std::max<int64_t>(chunks, 1);  // an empty batch sums to zeros
    if (part == 0) return;
    const BufferPtr workspace = allocate(parts * s_.groups * part * static_cast<int64_t>(sizeof(S)));
    S* const partial = workspace->as<S>();  // [groups, chunks, group_out, depth]
    pool_.parallel_for(chunks * s_.groups, [&](int64_t task, int thread) {
      const int64_t g = task / chunks, begin = task % chunks * c_.chunk_pixels_;
      const int64_t end = std::min(begin + c_.chunk_pixels_, pixels);
      for (int64_t first = begin; first < end; first += c_.tile_pixels_) {
        const int64_t count = std::min(c_.tile_pixels_, end - first);
        const auto columns = gather(x, g, first, count, thread, kByKernel ? detail::kSumSlot : detail::kASlot);
        detail::Operand<E> left = outputs(dy, g, first, count, thread);
        left.transposed = true;
        multiply(left, {columns}, c_.group_out_, c_.depth_, count, first > begin, partial + task * part, c_.depth_,
                 thread);
      }
    });
    // Rows of the filter, a few at a time.
    const int64_t step = std::max<int64_t>(16, 4096 / c_.group_out_);
    pool_.parallel_for(s_.groups * div_up(c_.depth_, step), [&](int64_t task, int) {
      const int64_t g = task % s_.groups, first = task / s_.groups * step, last = std::min(first + step, c_.depth_);
      S* const total = partial + g * parts * part;
      for (int64_t o = 0; o < c_.group_out_; ++o) {
        S* const sums = total + o * c_.depth_;
        if (chunks == 0) std::fill(sums + first, sums + last, S{0});
        for (int64_t chunk = 1; chunk < chunks; ++chunk)
          for (int64_t d = first; d < last; ++d) sums[d] += sums[chunk * part + d];
      }
      for (int64_t d = first; d < last; ++d)
        for (int64_t o = 0; o < c_.group_out_; ++o)
          dw[d * s_.out_channels + g * c_.group_out_ + o] = static_cast<T>(total[o * c_.depth_ + d]);
    });
  }

 private:
  using S = detail::Sum<T>;
  // The element type of the products' operands.
  using E = std::conditional_t<kByKernel, T, S>;
  static constexpr bool kHalf = is_half<T>;

  template <class X>
  X* scratch(int thread, int slot, int64_t count) {
    return static_cast<X*>(pool_.scratch(thread, slot, count * static_cast<int64_t>(sizeof(X))));
  }

  void multiply(const detail::Operand<E>& a, const detail::Right<E>& b, int64_t m, int64_t n, int64_t k,
                bool accumulate, S* c, int64_t ldc, int thread) {
    if constexpr (kByKernel) {
      detail::multiply_half<T>(*c_.kernel_, pool_, thread, a, b, m, n, k,
                               {.sums = c, .ld = ldc, .accumulate = accumulate});
    } else if (k > 0) {
      blas_gemm(a.transposed, b.stored.transposed, m, n, k, a.data, a.ld, b.stored.data, b.stored.ld, accumulate, c,
                ldc);
    } else if (!accumulate) {
      for (int64_t row = 0; row < m; ++row) std::fill_n(c + row * ldc, n, S{0});
    }
  }

  // The filter [depth, out_channels], or its transpose, shared by all tasks: packed group by group for the kernel, else
  // converted to the type of the sums.
  struct Filter {
    BufferPtr holder;
    const E* values = nullptr;
    bool transposed = false;
    int64_t group_bytes = 0;
  };

  Filter prepare_filter(const T* w, bool transposed) {
    Filter filter{{}, nullptr, transposed, 0};
    const int64_t count = c_.depth_ * s_.out_channels;
    if constexpr (kByKernel) {
      const int64_t k = transposed ? c_.group_out_ : c_.depth_, cols = transposed ? c_.depth_ : c_.group_out_;
      filter.group_bytes = detail::packed_right_bytes(*c_.kernel_, cols, k);
      filter.holder = allocate(s_.groups * filter.group_bytes);
      for (int64_t g = 0; g < s_.groups && count > 0; ++g)
        detail::pack_right<T>(*c_.kernel_, {w + g * c_.group_out_, s_.out_channels, transposed}, cols, k,
                              filter.holder->template as<char>() + g * filter.group_bytes);
    } else if constexpr (kHalf) {
      filter.holder = allocate(count * static_cast<int64_t>(sizeof(S)));
      detail::convert(w, count, 1, count, filter.holder->template as<S>(), count);
      filter.values = filter.holder->template as<S>();
    } else {
      filter.values = w;
    }
    return filter;
  }

  detail::Right<E> of_group(const Filter& filter, int64_t g) const {
    if constexpr (kByKernel) return {{}, filter.holder->template as<char>() + g * filter.group_bytes};
    return {{filter.values + g * c_.group_out_, s_.out_channels, filter.transposed}};
  }

  detail::Operand<E> gather(const T* x, int64_t g, int64_t first, int64_t count, int thread, int slot) {
    if constexpr (std::is_same_v<T, E>) {
      if (c_.columns_are_x_) return {x + first * s_.in_channels + g * c_.group_in_, s_.in_channels, false};
    }
    E* const columns = scratch<E>(thread, slot, count * c_.depth_ + detail::Columns::kSlack);
    columns_.gather(x, g, first, count, columns);
    return {columns, c_.depth_, false};
  }

  // Rows of pixels of dy, the channels of one group.
  detail::Operand<E> outputs(const T* dy, int64_t g, int64_t first, int64_t count, int thread) {
    const T* const from = dy + first * s_.out_channels + g * c_.group_out_;
    if constexpr (std::is_same_v<T, E>) {
      return {from, s_.out_channels, false};
    } else {
      S* const wide = scratch<S>(thread, detail::kBSlot, count * c_.group_out_);
      detail::convert(from, s_.out_channels, count, c_.group_out_, wide, c_.group_out_);
      return {wide, c_.group_out_, false};
    }
  }

  const Conv& c_;
  const ConvSpec& s_;
  Pool& pool_;
  detail::Columns columns_;
};

// Calls f(run, zero of the dtype) for the run of a Conv.
template <class F>
void run_conv(const Conv& conv, const HalfKernel* kernel, Pool& pool, F f) {
  dispatch_conv(conv.spec().dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, double>) {
      if (kernel) return f(ConvRun<T, true>(conv, pool), zero);
    }
    f(ConvRun<T, false>(conv, pool), zero);
  });
}

void Conv::forward(Pool& pool, const void* x, const void* w, void* y, Epilogue epilogue) const {
  run_conv(*this, kernel_, pool, [&]<class T>(auto run, T) {
    run.forward(static_cast<const T*>(x), static_cast<const T*>(w), static_cast<T*>(y), epilogue);
  });
}

void Conv::input_gradient(Pool& pool, const void* dy, const void* w, void* dx) const {
  run_conv(*this, kernel_, pool, [&]<class T>(auto run, T) {
    run.input_gradient(static_cast<const T*>(dy), static_cast<const T*>(w), static_cast<T*>(dx));
  });
}

void Conv::filter_gradient(Pool& pool, const void* x, const void* dy, void* dw) const {
  run_conv(*this, kernel_, pool, [&]<class T>(auto run, T) {
    run.filter_gradient(static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(dw));
  });
}

}  // namespace lockstep
