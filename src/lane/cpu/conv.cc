#include "lane/cpu/conv.h"

#include "base/check.h"
#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/cpu/columns.h"
#include "lane/cpu/conv_direct.h"
#include "lane/cpu/gemm_tile.h"

namespace lockstep {

namespace {

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A tile of the columns matrix takes about half of a 1 MiB second-level cache.
constexpr int64_t kConvTileBytes = int64_t{640} << 10;
constexpr int64_t kMaxTilePixels = 1024;
// Longer rows of the columns matrix are divided, so that a tile still has enough pixels for each use of the filter.
constexpr int64_t kMaxTileDepth = 1152;
// A tile's sums of the filter gradient, which each tile reads and writes, stay in the second-level cache.
constexpr int64_t kFilterSumBytes = int64_t{512} << 10;
// Divided columns are a multiple of this: of the panels of the kernels.
constexpr int64_t kDepthGrain = 96;
// The number of tasks to aim for, if tiles stay large enough; and of partial sums of the filter gradient at most.
constexpr int64_t kConvTasks = 32;
constexpr int64_t kEnoughPixels = 48;

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
  conv.choose_tiles();
  conv.direct_ = detail::is_direct(spec);
  const ConvSpec::Pair one{1, 1}, zero{0, 0};
  conv.columns_are_x_ =
      spec.kernel == one && spec.stride == one && spec.in_dilation == one && spec.pad_lo == zero && spec.pad_hi == zero;
  return conv;
}

namespace {

// Equal parts of at most `most` columns, multiples of the grain if there are several.
int64_t equal_parts(int64_t depth, int64_t most) {
  if (depth <= most) return std::max<int64_t>(depth, 1);
  return div_up(div_up(depth, div_up(depth, most)), kDepthGrain) * kDepthGrain;
}

// Equal tiles, so that the last one of an image is not much smaller.
int64_t equal_tiles(int64_t pixels, int64_t most) {
  return pixels > most ? div_up(pixels, div_up(pixels, most)) : most / pixels * pixels;
}

}  // namespace

void Conv::choose_tiles() {
  const int64_t pixels = std::max<int64_t>(pixels_, 1), all = spec_.batch * pixels,
                depth = std::max<int64_t>(depth_, 1);
  const int64_t element = kernel_ ? size_of(spec_.dtype) : spec_.dtype == DType::f64 ? 8 : 4;
  const auto most_pixels = [&](int64_t columns) {
    return std::clamp<int64_t>(kConvTileBytes / (columns * element), 16, kMaxTilePixels);
  };
  // OpenBLAS divides its products itself.
  tile_.depth = kernel_ ? equal_parts(depth, kMaxTileDepth) : depth;
  const int64_t most = most_pixels(tile_.depth),
                few = std::clamp(all / kConvTasks, std::min(kEnoughPixels, most), most);
  tile_.pixels = equal_tiles(pixels, tile_.depth < depth ? few : most);
  task_images_ = std::clamp<int64_t>(tile_.pixels / pixels, 1, std::max<int64_t>(1, 2 * spec_.batch / kConvTasks));
  if (!kernel_) task_images_ = 1;

  const int64_t sums = kFilterSumBytes / 4 / std::max<int64_t>(group_out_, 1);
  filter_tile_.depth = kernel_ ? equal_parts(depth, std::max(sums, kDepthGrain)) : depth;
  filter_tile_.pixels = equal_tiles(pixels, most_pixels(filter_tile_.depth));
  const int64_t tiles = std::max<int64_t>(1, div_up(spec_.batch * pixels_, filter_tile_.pixels));
  const int64_t chunks = div_up(kConvTasks, div_up(depth, filter_tile_.depth));
  chunk_pixels_ = div_up(tiles, std::min(chunks, tiles)) * filter_tile_.pixels;
}

// One run of a Conv in the dtype T, with a kernel of half_kernels() or with OpenBLAS.
template <class T, bool kByKernel>
class ConvRun {
 public:
  ConvRun(const Conv& conv, Pool& pool) : c_(conv), s_(conv.spec_), pool_(pool), columns_(conv.spec_, conv.out_) {}

  // A task is a tile of output pixels in one group: y = columns w.
  void forward(const T* x, const T* w, T* y, Epilogue epilogue) {
    const int64_t step = c_.tile_.pixels, pixels = s_.batch * c_.pixels_, tiles = div_up(pixels, step);
    if (pixels == 0 || s_.out_channels == 0) return;
    const Filter filter = prepare_filter(w, false);
    pool_.parallel_for(tiles * s_.groups, [&](int64_t task, int thread) {
      const int64_t g = task % s_.groups, first = task / s_.groups * step;
      const int64_t count = std::min(step, pixels - first);
      Tile tile{0, first, count, g * c_.group_out_, c_.group_out_, nullptr, s_.out_channels, thread};
      if (y) {
        tile.data = y + first * s_.out_channels + g * c_.group_out_;
      } else {
        tile.data = scratch<T>(thread, detail::kOutSlot, count * c_.group_out_);
        tile.ld = c_.group_out_;
      }
      forward_tile(x, filter, g, tile);
      if (epilogue) epilogue(tile);
    });
  }

  // A task is a few images: columns' gradient = dy w^T, tile by tile, added onto the images.
  void input_gradient(const T* dy, const T* w, T* dx) {
    const int64_t image = s_.in[0] * s_.in[1] * s_.in_channels;
    if (image == 0) return;
    const Filter filter = prepare_filter(w, true);
    const int64_t images = c_.task_images_;
    pool_.parallel_for(div_up(s_.batch, images), [&](int64_t task, int thread) {
      const int64_t n = task * images, count = std::min(images, s_.batch - n) * image;
      S* sums = reinterpret_cast<S*>(dx + n * image);
      if constexpr (kHalf) sums = scratch<S>(thread, detail::kSumSlot, count);
      std::fill_n(sums, count, S{0});
      for (int64_t g = 0; g < s_.groups; ++g)
        for (int64_t part = 0; part < filter.parts; ++part) add_columns_gradient(dy, filter, g, part, n, sums, thread);
      if constexpr (kHalf) detail::convert(sums, count, 1, count, dx + n * image, count);
    });
  }

  // A task is a chunk of output pixels in one part of the columns of one group. Each sums the filter's gradient
  // columns^T dy over its tiles. Then the partial sums are added in order.
  void filter_gradient(const T* x, const T* dy, T* dw) {
    const int64_t pixels = s_.batch * c_.pixels_, chunks = div_up(pixels, c_.chunk_pixels_);
    const int64_t group = c_.group_out_ * c_.depth_, parts = div_up(c_.depth_, c_.filter_tile_.depth);
    if (group == 0) return;
    const int64_t partials = std::max<int64_t>(chunks, 1);  // an empty batch sums to zeros
    const BufferPtr workspace = allocate(partials * s_.groups * group * static_cast<int64_t>(sizeof(S)));
    S* const sums = workspace->as<S>();  // [groups, chunks, depth, group_out], with OpenBLAS [.., group_out, depth]
    pool_.parallel_for(chunks * s_.groups * parts, [&](int64_t task, int thread) {
      const int64_t part = task % parts, chunk = task / parts;  // of all groups
      const int64_t begin = chunk % chunks * c_.chunk_pixels_, end = std::min(begin + c_.chunk_pixels_, pixels);
      const int64_t step = c_.filter_tile_.pixels;
      for (int64_t first = begin; first < end; first += step)
        sum_filter_gradient(x, dy, chunk / chunks, part, first, std::min(step, end - first), first > begin,
                            sums + chunk * group, thread);
    });
    // Rows of the filter, a few at a time.
    const int64_t step = std::max<int64_t>(16, 4096 / c_.group_out_);
    pool_.parallel_for(s_.groups * div_up(c_.depth_, step), [&](int64_t task, int) {
      const int64_t g = task % s_.groups, first = task / s_.groups * step, last = std::min(first + step, c_.depth_);
      S* const total = sums + g * partials * group;
      if (kByKernel)
        add_partials(total, 1, c_.depth_ * c_.group_out_, first * c_.group_out_, last * c_.group_out_, chunks);
      else
        add_partials(total, c_.group_out_, c_.depth_, first, last, chunks);
      const int64_t d_step = kByKernel ? c_.group_out_ : 1, o_step = kByKernel ? 1 : c_.depth_;
      for (int64_t d = first; d < last; ++d)
        for (int64_t o = 0; o < c_.group_out_; ++o)
          dw[d * s_.out_channels + g * c_.group_out_ + o] = static_cast<T>(total[d * d_step + o * o_step]);
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

  void multiply(const detail::GemmOperand<E>& a, const detail::Right<E>& b, int64_t m, int64_t n, int64_t k,
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

  // The filter [depth, out_channels], or its transpose, shared by all tasks: packed for the kernel, group by group and
  // in parts of tile_.depth, else converted to the type of the sums.
  struct Filter {
    BufferPtr holder;
    const E* values = nullptr;
    bool transposed = false;
    int64_t parts = 1, part_bytes = 0;
  };

  // The columns of a part.
  static detail::Columns::Range range(int64_t part, int64_t most, int64_t depth) {
    return {part * most, std::min(most, depth - part * most)};
  }

  // Computes the tile.data of a tile of y.
  void forward_tile(const T* x, const Filter& filter, int64_t g, const Tile& tile) {
    const int slot = kByKernel ? detail::kBSlot : detail::kASlot;
    auto* const out = static_cast<T*>(tile.data);
    if constexpr (kByKernel && kHalf) {
      if (filter.parts == 1) {
        const auto columns = gather(x, g, tile.row0, tile.rows, {0, c_.depth_}, tile.thread, slot);
        return detail::multiply_half<T>(*c_.kernel_, pool_, tile.thread, columns, of_part(filter, g, 0), tile.rows,
                                        c_.group_out_, c_.depth_, {.rounded = out, .rounded_ld = tile.ld});
      }
    }
    S* sums = reinterpret_cast<S*>(out);
    int64_t ld = tile.ld;
    if constexpr (kHalf) {
      sums = scratch<S>(tile.thread, detail::kSumSlot, tile.rows * c_.group_out_);
      ld = c_.group_out_;
    }
    for (int64_t part = 0; part < filter.parts; ++part) {
      const auto columns = range(part, c_.tile_.depth, c_.depth_);
      multiply(gather(x, g, tile.row0, tile.rows, columns, tile.thread, slot), of_part(filter, g, part), tile.rows,
               c_.group_out_, columns.count, part > 0, sums, ld, tile.thread);
    }
    if constexpr (kHalf) detail::convert(sums, ld, tile.rows, c_.group_out_, out, tile.ld);
  }

  // Adds the gradient of a part of the columns onto the images of a task, the first of which is image n. The order of
  // the sums does not depend on the tiles.
  void add_columns_gradient(const T* dy, const Filter& filter, int64_t g, int64_t part, int64_t n, S* sums,
                            int thread) {
    const auto columns = range(part, c_.tile_.depth, c_.depth_);
    const int64_t end = std::min(n + c_.task_images_, s_.batch) * c_.pixels_;
    for (int64_t first = n * c_.pixels_; first < end && columns.count > 0; first += c_.tile_.pixels) {
      const int64_t count = std::min(c_.tile_.pixels, end - first);
      S* const values = scratch<S>(thread, kByKernel ? detail::kBSlot : detail::kASlot, count * columns.count);
      multiply(outputs(dy, g, first, count, thread), of_part(filter, g, part), count, columns.count, c_.group_out_,
               false, values, columns.count, thread);
      columns_.scatter_add(values, g, first, count, columns, n, sums);
    }
  }

  // Computes a tile's share of a partial sum of the filter's gradient.
  void sum_filter_gradient(const T* x, const T* dy, int64_t g, int64_t part, int64_t first, int64_t count,
                           bool accumulate, S* sums, int thread) {
    const auto columns = range(part, c_.filter_tile_.depth, c_.depth_);
    detail::GemmOperand<E> left =
        gather(x, g, first, count, columns, thread, kByKernel ? detail::kSumSlot : detail::kASlot);
    detail::GemmOperand<E> right = outputs(dy, g, first, count, thread);
    if constexpr (kByKernel) {
      left.transposed = true;
      multiply(left, {right}, columns.count, c_.group_out_, count, accumulate, sums + columns.begin * c_.group_out_,
               c_.group_out_, thread);
    } else {
      // The wide orientation, which OpenBLAS packs best.
      right.transposed = true;
      multiply(right, {left}, c_.group_out_, c_.depth_, count, accumulate, sums, c_.depth_, thread);
    }
  }

  // Adds elements [first, last) of each of the rows of all partial sums to those of the first one.
  static void add_partials(S* total, int64_t rows, int64_t row, int64_t first, int64_t last, int64_t chunks) {
    for (int64_t r = 0; r < rows; ++r) {
      S* const sums = total + r * row;
      if (chunks == 0) std::fill(sums + first, sums + last, S{0});
      for (int64_t chunk = 1; chunk < chunks; ++chunk)
        for (int64_t d = first; d < last; ++d) sums[d] += sums[chunk * rows * row + d];
    }
  }

  Filter prepare_filter(const T* w, bool transposed) {
    Filter filter{{}, nullptr, transposed};
    const int64_t count = c_.depth_ * s_.out_channels;
    if constexpr (kByKernel) {
      filter.parts = std::max<int64_t>(1, div_up(c_.depth_, c_.tile_.depth));
      const int64_t most = std::min(c_.tile_.depth, c_.depth_);
      filter.part_bytes = transposed ? detail::packed_right_bytes(*c_.kernel_, most, c_.group_out_)
                                     : detail::packed_right_bytes(*c_.kernel_, c_.group_out_, most);
      filter.holder = allocate(s_.groups * filter.parts * filter.part_bytes);
      pool_.parallel_for(count > 0 ? s_.groups * filter.parts : 0, [&](int64_t task, int) {
        const auto [begin, depth] = range(task % filter.parts, c_.tile_.depth, c_.depth_);
        const T* const from = w + begin * s_.out_channels + task / filter.parts * c_.group_out_;
        detail::pack_right<T>(*c_.kernel_, {from, s_.out_channels, transposed}, transposed ? depth : c_.group_out_,
                              transposed ? c_.group_out_ : depth,
                              filter.holder->template as<char>() + task * filter.part_bytes);
      });
    } else if constexpr (kHalf) {
      filter.holder = allocate(count * static_cast<int64_t>(sizeof(S)));
      detail::convert(w, count, 1, count, filter.holder->template as<S>(), count);
      filter.values = filter.holder->template as<S>();
    } else {
      filter.values = w;
    }
    return filter;
  }

  detail::Right<E> of_part(const Filter& filter, int64_t g, int64_t part) const {
    if constexpr (kByKernel)
      return {{}, filter.holder->template as<char>() + (g * filter.parts + part) * filter.part_bytes};
    return {{filter.values + g * c_.group_out_, s_.out_channels, filter.transposed}};
  }

  detail::GemmOperand<E> gather(const T* x, int64_t g, int64_t first, int64_t count, detail::Columns::Range range,
                                int thread, int slot) {
    if constexpr (std::is_same_v<T, E>) {
      if (c_.columns_are_x_)
        return {x + first * s_.in_channels + g * c_.group_in_ + range.begin, s_.in_channels, false};
    }
    E* const columns = scratch<E>(thread, slot, count * range.count + detail::Columns::kSlack);
    columns_.gather(x, g, first, count, range, columns);
    return {columns, range.count, false};
  }

  // Rows of pixels of dy, the channels of one group.
  detail::GemmOperand<E> outputs(const T* dy, int64_t g, int64_t first, int64_t count, int thread) {
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
  if (direct_) return detail::direct_forward(spec_, out_, pool, x, w, y, epilogue);
  run_conv(*this, kernel_, pool, [&]<class T>(auto run, T) {
    run.forward(static_cast<const T*>(x), static_cast<const T*>(w), static_cast<T*>(y), epilogue);
  });
}

void Conv::input_gradient(Pool& pool, const void* dy, const void* w, void* dx) const {
  if (direct_) return detail::direct_input_gradient(spec_, out_, pool, dy, w, dx);
  run_conv(*this, kernel_, pool, [&]<class T>(auto run, T) {
    run.input_gradient(static_cast<const T*>(dy), static_cast<const T*>(w), static_cast<T*>(dx));
  });
}

void Conv::filter_gradient(Pool& pool, const void* x, const void* dy, void* dw) const {
  if (direct_) return detail::direct_filter_gradient(spec_, out_, pool, x, dy, dw);
  run_conv(*this, kernel_, pool, [&]<class T>(auto run, T) {
    run.filter_gradient(static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(dw));
  });
}

}  // namespace lockstep
