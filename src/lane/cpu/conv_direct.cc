#include "lane/cpu/conv_direct.h"

#include <algorithm>

#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/cpu/conv_direct_loops.h"
#include "lane/cpu/gemm_tile.h"

namespace lockstep::detail {

extern const DirectConvTables kDirectConvBaseline;
#if defined(__x86_64__)
extern const DirectConvTables kDirectConvAvx2;
extern const DirectConvTables kDirectConvAvx512;
#endif

const DirectConvTables& direct_conv_tables() {
  static const DirectConvTables* const best = [] {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return &kDirectConvAvx512;
    if (__builtin_cpu_supports("avx2")) return &kDirectConvAvx2;
#endif
    return &kDirectConvBaseline;
  }();
  return *best;
}

namespace {

using Pair = ConvSpec::Pair;

// Products of larger groups are fast enough.
constexpr int64_t kMaxGroupProduct = 16;
// Multiply-adds of a task, about.
constexpr int64_t kTaskWork = int64_t{1} << 19;
// Partial sums of the filter's gradient at most.
constexpr int64_t kFilterChunks = 32;

int64_t ceil_div(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// The output positions of dimension d whose tap k is at a position in [0, in).
struct Span {
  int64_t begin, end;
};
Span outputs_of(const ConvSpec& s, Pair out, int d, int64_t k) {
  const int64_t shift = s.pad_lo[d] - k * s.kernel_dilation[d];
  return {std::max<int64_t>(ceil_div(shift, s.stride[d]), 0),
          std::min(floor_div(s.in[d] - 1 + shift, s.stride[d]) + 1, out[d])};
}

// The pixels [first, last) of an image of this width lie in these rows and columns.
struct Block {
  Span rows, columns;
};
Block block_of(int64_t first, int64_t last, int64_t width) {
  const int64_t top = first / width, bottom = (last - 1) / width;
  if (top == bottom) return {{top, top + 1}, {first % width, (last - 1) % width + 1}};
  return {{top, bottom + 1}, {0, width}};
}

// One run in the dtype T. `width` values of a pixel of x are multiplied with those of a tap: a value for each
// input channel of a group and each output channel, channel by channel.
template <class T>
class DirectRun {
 public:
  using S = Sum<T>;

  DirectRun(const ConvSpec& spec, Pair out, Pool& pool)
      : s_(spec),
        out_(out),
        pool_(pool),
        group_in_(spec.in_channels / spec.groups),
        group_out_(spec.out_channels / spec.groups),
        width_(group_in_ * spec.out_channels),
        taps_(spec.kernel[0] * spec.kernel[1]) {}

  void forward(const T* x, const T* w, T* y, Epilogue epilogue) {
    const int64_t pixels = out_[0] * out_[1], channels = s_.out_channels, step = task_pixels(pixels);
    const int64_t tiles = (pixels + step - 1) / step;
    const BufferPtr held = widened(w);
    const S* const filter = filter_of(w, held);
    pool_.parallel_for(pixels == 0 ? 0 : s_.batch * tiles, [&](int64_t task, int thread) {
      const int64_t n = task / tiles, first = task % tiles * step, last = std::min(first + step, pixels);
      const Places from = expanded_inputs(x + n * s_.in[0] * s_.in[1] * s_.in_channels, inputs_of(first, last), thread);
      T* to = y ? y + (n * pixels + first) * channels : scratch<T>(thread, kOutSlot, (last - first) * channels);
      Tile tile{0, n * pixels + first, last - first, 0, channels, to, channels, thread};
      for (int64_t p = first; p < last; ++p, to += channels) {
        const int64_t taps = list_inputs(p, from, filter, thread);
        dot(taps, to, thread);
      }
      if (epilogue) epilogue(tile);
    });
  }

  void input_gradient(const T* dy, const T* w, T* dx) {
    const int64_t pixels = s_.in[0] * s_.in[1], step = task_pixels(pixels), tiles = (pixels + step - 1) / step;
    const BufferPtr held = widened(w);
    const S* const filter = filter_of(w, held);
    pool_.parallel_for(pixels == 0 ? 0 : s_.batch * tiles, [&](int64_t task, int thread) {
      const int64_t n = task / tiles, first = task % tiles * step, last = std::min(first + step, pixels);
      const Places from =
          converted_outputs(dy + n * out_[0] * out_[1] * s_.out_channels, outputs_over(first, last), thread);
      for (int64_t p = first; p < last; ++p)
        gather_gradient(p, from, filter, dx + (n * pixels + p) * s_.in_channels, thread);
    });
  }

  // A task is a chunk of rows of outputs; the partial sums are then added in order.
  void filter_gradient(const T* x, const T* dy, T* dw) {
    const int64_t rows = s_.batch * out_[0], each = std::max<int64_t>((rows + kFilterChunks - 1) / kFilterChunks, 1);
    const int64_t chunks = (rows + each - 1) / each, size = taps_ * width_;
    const BufferPtr workspace = allocate(std::max<int64_t>(chunks, 1) * size * static_cast<int64_t>(sizeof(S)));
    S* const sums = workspace->as<S>();
    if (chunks == 0) std::fill_n(sums, size, S{0});
    pool_.parallel_for(chunks, [&](int64_t chunk, int thread) {
      S* const own = sums + chunk * size;
      std::fill_n(own, size, S{0});
      for (int64_t row = chunk * each; row < std::min(rows, (chunk + 1) * each); ++row)
        add_row(x, dy, row / out_[0], row % out_[0], own, thread);
    });
    pool_.parallel_range(size, 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t chunk = 1; chunk < chunks; ++chunk)
        for (int64_t i = begin; i < end; ++i) sums[i] += sums[chunk * size + i];
      for (int64_t i = begin; i < end; ++i) dw[i] = static_cast<T>(sums[i]);
    });
  }

 private:
  static constexpr bool kHalf = is_half<T>;

  // Pixels of a block of an image: `width` values of pixel (row, column) begin at values + (row - top) * row_step +
  // (column - left) * pixel_step.
  struct Places {
    const S* values;
    int64_t top, left, row_step, pixel_step;
    const S* at(int64_t row, int64_t column) const {
      return values + (row - top) * row_step + (column - left) * pixel_step;
    }
  };

  template <class X>
  X* scratch(int thread, int slot, int64_t count) {
    return static_cast<X*>(pool_.scratch(thread, slot, count * static_cast<int64_t>(sizeof(X))));
  }

  bool is_plain() const { return group_in_ == 1 && group_out_ == 1; }

  int64_t task_pixels(int64_t pixels) const {
    return std::clamp<int64_t>(kTaskWork / std::max<int64_t>(taps_ * width_, 1), 1, std::max<int64_t>(pixels, 1));
  }

  // The filter in the type of the sums: itself, or a copy.
  BufferPtr widened(const T* w) const {
    if constexpr (!kHalf) return nullptr;
    const int64_t size = taps_ * width_;
    BufferPtr held = allocate(size * static_cast<int64_t>(sizeof(S)));
    convert(w, size, 1, size, held->as<S>(), size);
    return held;
  }
  const S* filter_of(const T* w, const BufferPtr& held) const {
    if constexpr (kHalf)
      return held->template as<S>();
    else
      return w;
  }

  // The inputs that outputs [first, last) of an image read, and the outputs that inputs [first, last) are read by.
  Block inputs_of(int64_t first, int64_t last) const {
    const Block block = block_of(first, last, out_[1]);
    const auto span = [&](int d, Span o) -> Span {
      const int64_t low = o.begin * s_.stride[d] - s_.pad_lo[d],
                    high = (o.end - 1) * s_.stride[d] - s_.pad_lo[d] + (s_.kernel[d] - 1) * s_.kernel_dilation[d];
      const int64_t begin = std::clamp<int64_t>(low, 0, s_.in[d]);
      return {begin, std::clamp<int64_t>(high + 1, begin, s_.in[d])};
    };
    return {span(0, block.rows), span(1, block.columns)};
  }
  Block outputs_over(int64_t first, int64_t last) const {
    const Block block = block_of(first, last, s_.in[1]);
    const auto span = [&](int d, Span in) -> Span {
      const int64_t reach = (s_.kernel[d] - 1) * s_.kernel_dilation[d];
      const int64_t begin = std::clamp<int64_t>(ceil_div(in.begin + s_.pad_lo[d] - reach, s_.stride[d]), 0, out_[d]);
      return {begin, std::clamp<int64_t>(floor_div(in.end - 1 + s_.pad_lo[d], s_.stride[d]) + 1, begin, out_[d])};
    };
    return {span(0, block.rows), span(1, block.columns)};
  }

  // A block of an image in the type of the sums; each of the values of a pixel is repeated for the output channels of
  // its group.
  Places expanded_inputs(const T* image, const Block& block, int thread) {
    if constexpr (!kHalf)
      if (is_plain()) return {image, 0, 0, s_.in[1] * width_, width_};
    const int64_t columns = block.columns.end - block.columns.begin;
    S* const values = scratch<S>(thread, kASlot, (block.rows.end - block.rows.begin) * columns * width_);
    S* to = values;
    for (int64_t row = block.rows.begin; row < block.rows.end; ++row)
      for (int64_t column = block.columns.begin; column < block.columns.end; ++column, to += width_)
        expand(image + (row * s_.in[1] + column) * s_.in_channels, to);
    return {values, block.rows.begin, block.columns.begin, columns * width_, width_};
  }
  void expand(const T* pixel, S* to) const {
    if (is_plain()) {
      for (int64_t c = 0; c < width_; ++c) to[c] = static_cast<S>(pixel[c]);
      return;
    }
    for (int64_t i = 0; i < group_in_; ++i)
      for (int64_t g = 0; g < s_.groups; ++g)
        for (int64_t j = 0; j < group_out_; ++j) *to++ = static_cast<S>(pixel[g * group_in_ + i]);
  }
  Places converted_outputs(const T* image, const Block& block, int thread) {
    const int64_t channels = s_.out_channels;
    if constexpr (!kHalf) {
      return {image, 0, 0, out_[1] * channels, channels};
    } else {
      const int64_t columns = block.columns.end - block.columns.begin, rows = block.rows.end - block.rows.begin;
      S* const values = scratch<S>(thread, kASlot, rows * columns * channels);
      for (int64_t row = 0; row < rows; ++row)
        convert(image + ((block.rows.begin + row) * out_[1] + block.columns.begin) * channels, columns * channels, 1,
                columns * channels, values + row * columns * channels, columns * channels);
      return {values, block.rows.begin, block.columns.begin, columns * channels, channels};
    }
  }

  // Lists of the operands of dot(): pixels first, then rows of the filter.
  const S** lists(int thread) { return scratch<const S*>(thread, kBSlot, 2 * taps_ * group_in_); }

  // Lists what output pixel p is the sum of; returns the number of products.
  int64_t list_inputs(int64_t p, const Places& from, const S* filter, int thread) {
    const int64_t channels = s_.out_channels;
    const S** const pixel = lists(thread);
    const S** const weight = pixel + taps_ * group_in_;
    const int64_t y0 = p / out_[1] * s_.stride[0] - s_.pad_lo[0], x0 = p % out_[1] * s_.stride[1] - s_.pad_lo[1];
    int64_t n = 0;
    for (int64_t a = 0; a < s_.kernel[0]; ++a) {
      const int64_t row = y0 + a * s_.kernel_dilation[0];
      if (row < 0 || row >= s_.in[0]) continue;
      for (int64_t b = 0; b < s_.kernel[1]; ++b) {
        const int64_t column = x0 + b * s_.kernel_dilation[1];
        if (column < 0 || column >= s_.in[1]) continue;
        for (int64_t i = 0; i < group_in_; ++i, ++n) {
          pixel[n] = from.at(row, column) + i * channels;
          weight[n] = filter + (a * s_.kernel[1] + b) * width_ + i * channels;
        }
      }
    }
    return n;
  }

  // Computes a pixel of y, or of dx if each group has one channel, from the lists.
  void dot(int64_t taps, T* to, int thread) {
    const S* const* const pixel = lists(thread);
    if constexpr (kHalf) {
      S* const sums = scratch<S>(thread, kSumSlot, s_.out_channels);
      loops_.dot(pixel, pixel + taps_ * group_in_, taps, s_.out_channels, sums);
      for (int64_t o = 0; o < s_.out_channels; ++o) to[o] = static_cast<T>(sums[o]);
    } else {
      loops_.dot(pixel, pixel + taps_ * group_in_, taps, s_.out_channels, to);
    }
  }

  // The position of the output that reads position `at` with tap k; -1 if there is none.
  int64_t reader(int d, int64_t at, int64_t k) const {
    const int64_t place = at + s_.pad_lo[d] - k * s_.kernel_dilation[d];
    if (s_.stride[d] == 1) return place < out_[d] ? std::max<int64_t>(place, -1) : -1;  // without divisions
    if (place < 0 || place % s_.stride[d] != 0 || place / s_.stride[d] >= out_[d]) return -1;
    return place / s_.stride[d];
  }

  // Computes pixel p of dx.
  void gather_gradient(int64_t p, const Places& from, const S* filter, T* to, int thread) {
    const S** const sent = lists(thread);
    const S** const weight = sent + taps_ * group_in_;
    int64_t n = 0;
    for (int64_t a = 0; a < s_.kernel[0]; ++a) {
      const int64_t row = reader(0, p / s_.in[1], a);
      if (row < 0) continue;
      for (int64_t b = 0; b < s_.kernel[1]; ++b) {
        const int64_t column = reader(1, p % s_.in[1], b);
        if (column < 0) continue;
        sent[n] = from.at(row, column);
        weight[n++] = filter + (a * s_.kernel[1] + b) * width_;
      }
    }
    if (is_plain()) return dot(n, to, thread);
    S* const sums = scratch<S>(thread, kSumSlot, s_.out_channels);
    for (int64_t i = 0; i < group_in_; ++i) {
      loops_.dot(sent, weight, n, s_.out_channels, sums);
      for (int64_t g = 0; g < s_.groups; ++g) {
        S sum{0};
        for (int64_t j = 0; j < group_out_; ++j) sum += sums[g * group_out_ + j];
        to[g * group_in_ + i] = static_cast<T>(sum);
      }
      for (int64_t t = 0; t < n; ++t) weight[t] += s_.out_channels;
    }
  }

  // Adds the products of a row of outputs of image n to the filter's gradient.
  void add_row(const T* x, const T* dy, int64_t n, int64_t oy, S* sums, int thread) {
    const int64_t channels = s_.out_channels, first = oy * out_[1];
    if (out_[1] == 0) return;
    const T* const row_of_dy = dy + (n * out_[0] * out_[1] + first) * channels;
    const Places from =
        expanded_inputs(x + n * s_.in[0] * s_.in[1] * s_.in_channels, inputs_of(first, first + out_[1]), thread);
    const S* sent;
    if constexpr (kHalf) {
      S* const wide = scratch<S>(thread, kBSlot, out_[1] * channels);
      convert(row_of_dy, out_[1] * channels, 1, out_[1] * channels, wide, out_[1] * channels);
      sent = wide;
    } else {
      sent = row_of_dy;
    }
    for (int64_t a = 0; a < s_.kernel[0]; ++a) {
      const int64_t row = oy * s_.stride[0] - s_.pad_lo[0] + a * s_.kernel_dilation[0];
      if (row < 0 || row >= s_.in[0]) continue;
      for (int64_t b = 0; b < s_.kernel[1]; ++b) {
        const Span o = outputs_of(s_, out_, 1, b);
        if (o.begin >= o.end) continue;
        const S* const pixel = from.at(row, o.begin * s_.stride[1] - s_.pad_lo[1] + b * s_.kernel_dilation[1]);
        for (int64_t i = 0; i < group_in_; ++i)
          loops_.add_products(pixel + i * channels, s_.stride[1] * from.pixel_step, sent + o.begin * channels, channels,
                              o.end - o.begin, channels, sums + (a * s_.kernel[1] + b) * width_ + i * channels);
      }
    }
  }

  const ConvSpec& s_;
  const Pair out_;
  Pool& pool_;
  const int64_t group_in_, group_out_, width_, taps_;
  const DirectConvLoops<S>& loops_ = direct_conv_loops<S>();
};

template <class F>
void run_direct(const ConvSpec& spec, Pair out, Pool& pool, F f) {
  with_dtype(spec.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) f(DirectRun<T>(spec, out, pool), T{});
  });
}

}  // namespace

bool is_direct(const ConvSpec& s) {
  return s.groups > 1 && s.in_dilation == Pair{1, 1} && s.in_channels > 0 && s.out_channels > 0 &&
         s.in_channels / s.groups * (s.out_channels / s.groups) <= kMaxGroupProduct;
}

void direct_forward(const ConvSpec& spec, Pair out, Pool& pool, const void* x, const void* w, void* y,
                    Epilogue epilogue) {
  run_direct(spec, out, pool, [&]<class T>(auto run, T) {
    run.forward(static_cast<const T*>(x), static_cast<const T*>(w), static_cast<T*>(y), epilogue);
  });
}

void direct_input_gradient(const ConvSpec& spec, Pair out, Pool& pool, const void* dy, const void* w, void* dx) {
  run_direct(spec, out, pool, [&]<class T>(auto run, T) {
    run.input_gradient(static_cast<const T*>(dy), static_cast<const T*>(w), static_cast<T*>(dx));
  });
}

void direct_filter_gradient(const ConvSpec& spec, Pair out, Pool& pool, const void* x, const void* dy, void* dw) {
  run_direct(spec, out, pool, [&]<class T>(auto run, T) {
    run.filter_gradient(static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(dw));
  });
}

}  // namespace lockstep::detail
