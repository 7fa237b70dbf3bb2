#include "lane/cpu/window.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/dispatch.h"
#include "lane/cpu/gemm_tile.h"

namespace lockstep {

namespace {

using detail::Sum;

// The type in which elements of a dtype are compared.
template <class T>
using Order = std::conditional_t<is_half<T>, float, T>;

template <class T>
constexpr T lowest() {
  if constexpr (std::is_floating_point_v<T>)
    return -std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::lowest();
}

template <class T>
bool beats(T candidate, T best) {
  if constexpr (std::is_floating_point_v<T>)
    return candidate > best || (candidate != candidate && best == best);
  else
    return candidate > best;
}

// The part of a window inside the image: rows [top, bottom), columns [left, right).
struct View {
  int64_t top, bottom, left, right;
};

View view(const WindowSpec& s, int64_t oy, int64_t ox) {
  const int64_t y0 = oy * s.stride[0] - s.pad_lo[0], x0 = ox * s.stride[1] - s.pad_lo[1];
  return {std::max<int64_t>(y0, 0), std::min(y0 + s.window[0], s.in[0]), std::max<int64_t>(x0, 0),
          std::min(x0 + s.window[1], s.in[1])};
}

// Calls f(offset of the pixel in its image) for the pixels of a window, in row-major order.
template <class F>
void for_each_pixel(const WindowSpec& s, const View& v, F f) {
  for (int64_t y = v.top; y < v.bottom; ++y)
    for (int64_t x = v.left; x < v.right; ++x) f((y * s.in[1] + x) * s.channels);
}

template <class F>
void dispatch(const char* what, const WindowSpec& spec, F f) {
  for (const int64_t stride : spec.stride)
    if (stride < 1) throw_error("{}: a stride of {}; it must be at least 1", what, stride);
  with_dtype(spec.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool> || is_converted_integer<T>)
      throw_error("{}: an array of dtype {}; convert it to i32, i64 or a float first", what, name(spec.dtype));
    else
      f(T{});
  });
}

// One call in the dtype T.
template <class T>
class WindowRun {
 public:
  WindowRun(Pool& pool, const WindowSpec& spec) : pool_(pool), s_(spec), out_(spec.out()) {}

  void max(const T* x, T* y) {
    for_each_window(
        [&](const T* image, const View& v, T* to, int thread) {
          Order<T>* const best = scratch<Order<T>>(thread, 0);
          std::fill_n(best, s_.channels, lowest<Order<T>>());
          for_each_pixel(s_, v, [&](int64_t pixel) {
            for (int64_t c = 0; c < s_.channels; ++c) {
              const Order<T> value = image[pixel + c];
              best[c] = beats(value, best[c]) ? value : best[c];
            }
          });
          for (int64_t c = 0; c < s_.channels; ++c) to[c] = static_cast<T>(best[c]);
        },
        x, y);
  }

  void pick(const T* x, const T* v, T* y) {
    check_positions();
    for_each_window(
        [&](const T* image, const View& window, T* to, int thread) {
          if (empty(window)) {
            std::fill_n(to, s_.channels, T{});
            return;
          }
          const T* const from = v + (image - x) + corner(window);
          const int32_t* const place = find_maxima(image, window, thread);
          for (int64_t c = 0; c < s_.channels; ++c) to[c] = from[place[c] + c];
        },
        x, y);
  }

  void max_gradient(const T* x, const T* dy, T* dx, Epilogue epilogue) {
    check_positions();
    for_each_image(dx, epilogue, [&](int64_t n, Sum<T>* sums, int thread) {
      const T* const image = x + n * in_size();
      const T* from = dy + n * out_size();
      for (int64_t oy = 0; oy < out_[0]; ++oy)
        for (int64_t ox = 0; ox < out_[1]; ++ox, from += s_.channels) {
          const View window = view(s_, oy, ox);
          if (empty(window)) continue;
          const int32_t* const place = find_maxima(image, window, thread);
          Sum<T>* const to = sums + corner(window);
          for (int64_t c = 0; c < s_.channels; ++c) {
            Sum<T>& sum = to[place[c] + c];
            sum = static_cast<Sum<T>>(sum + static_cast<Sum<T>>(from[c]));
          }
        }
    });
  }

  void sum(const T* x, T* y) {
    for_each_window(
        [&](const T* image, const View& v, T* to, int thread) {
          Sum<T>* const sums = scratch<Sum<T>>(thread, 0);
          std::fill_n(sums, s_.channels, Sum<T>{0});
          for_each_pixel(s_, v, [&](int64_t pixel) { add(image + pixel, sums); });
          for (int64_t c = 0; c < s_.channels; ++c) to[c] = static_cast<T>(sums[c]);
        },
        x, y);
  }

  void sum_gradient(const T* dy, T* dx) {
    for_each_image(dx, {}, [&](int64_t n, Sum<T>* sums, int) {
      const T* from = dy + n * out_size();
      for (int64_t oy = 0; oy < out_[0]; ++oy)
        for (int64_t ox = 0; ox < out_[1]; ++ox, from += s_.channels)
          for_each_pixel(s_, view(s_, oy, ox), [&](int64_t pixel) { add(from, sums + pixel); });
    });
  }

 private:
  int64_t in_size() const { return s_.in[0] * s_.in[1] * s_.channels; }
  int64_t out_size() const { return out_[0] * out_[1] * s_.channels; }

  // Scratch for a value per channel; slot 0 or 1.
  template <class E>
  E* scratch(int thread, int slot) {
    return static_cast<E*>(pool_.scratch(thread, detail::kASlot + slot, s_.channels * static_cast<int64_t>(sizeof(E))));
  }

  void add(const T* from, Sum<T>* to) const {
    for (int64_t c = 0; c < s_.channels; ++c) to[c] = static_cast<Sum<T>>(to[c] + static_cast<Sum<T>>(from[c]));
  }

  static bool empty(const View& v) { return v.top >= v.bottom || v.left >= v.right; }

  // The offset of a window's first pixel in its image.
  int64_t corner(const View& v) const { return (v.top * s_.in[1] + v.left) * s_.channels; }

  // Throws Error if find_maxima() cannot count the elements from the first to the last pixel of a window.
  void check_positions() const {
    const int64_t rows = std::min(s_.window[0], s_.in[0]),
                  pixels = (rows - 1) * s_.in[1] + std::min(s_.window[1], s_.in[1]);
    if (pixels * s_.channels > INT32_MAX)
      throw_error("max_pool: a window of {} rows of {} x {} elements is too long for i32 positions; split the images",
                  rows, s_.in[1], s_.channels);
  }

  // The offset of each channel's maximum from the window's first pixel. 32 bits, as wide as a float, so that the loop
  // over the channels is vectorized.
  const int32_t* find_maxima(const T* image, const View& v, int thread) {
    Order<T>* const best = scratch<Order<T>>(thread, 0);
    int32_t* const place = scratch<int32_t>(thread, 1);
    const int64_t first = corner(v);
    for (int64_t c = 0; c < s_.channels; ++c) best[c] = image[first + c];
    std::fill_n(place, s_.channels, 0);
    for_each_pixel(s_, v, [&](int64_t pixel) {
      const auto here = static_cast<int32_t>(pixel - first);
      for (int64_t c = 0; c < s_.channels; ++c) {
        const Order<T> value = image[pixel + c];
        const bool better = beats(value, best[c]);
        best[c] = better ? value : best[c];
        place[c] = better ? here : place[c];
      }
    });
    return place;
  }

  // Calls f(image, part of the window inside it, destination of the result, thread) for every output pixel; a task is a
  // row of them.
  template <class F>
  void for_each_window(F f, const T* x, T* y) {
    const int64_t row = out_[1] * s_.channels;
    if (row == 0) return;
    pool_.parallel_range(
        s_.batch * out_[0], std::max<int64_t>(1, 8192 / row), [&](int64_t begin, int64_t end, int thread) {
          for (int64_t i = begin; i < end; ++i)
            for (int64_t ox = 0; ox < out_[1]; ++ox)
              f(x + i / out_[0] * in_size(), view(s_, i % out_[0], ox), y + i * row + ox * s_.channels, thread);
        });
  }

  // Calls f(image number, its sums, thread) with zeroed sums, then stores them in dx and passes them to the epilogue,
  // if these are given. A task is an image, since windows may overlap.
  template <class F>
  void for_each_image(T* dx, Epilogue epilogue, F f) {
    if (in_size() == 0) return;
    const auto whole = [&]<class E>(int thread, int slot, E) {
      return static_cast<E*>(pool_.scratch(thread, slot, in_size() * static_cast<int64_t>(sizeof(E))));
    };
    pool_.parallel_for(s_.batch, [&](int64_t n, int thread) {
      T* const image = dx ? dx + n * in_size() : whole(thread, detail::kOutSlot, T{});
      Sum<T>* sums = reinterpret_cast<Sum<T>*>(image);
      if constexpr (is_half<T>) sums = whole(thread, detail::kSumSlot, Sum<T>{});
      std::fill_n(sums, in_size(), Sum<T>{0});
      f(n, sums, thread);
      if constexpr (is_half<T>) detail::convert(sums, in_size(), 1, in_size(), image, in_size());
      const int64_t pixels = s_.in[0] * s_.in[1];
      if (epilogue)
        epilogue({.row0 = n * pixels,
                  .rows = pixels,
                  .cols = s_.channels,
                  .data = image,
                  .ld = s_.channels,
                  .thread = thread});
    });
  }

  Pool& pool_;
  const WindowSpec& s_;
  WindowSpec::Pair out_;
};

}  // namespace

WindowSpec::Pair WindowSpec::out() const {
  Pair extents{};
  for (int d = 0; d < 2; ++d) {
    const int64_t room = in[d] + pad_lo[d] + pad_hi[d] - window[d];
    extents[d] = room < 0 ? 0 : room / stride[d] + 1;
  }
  return extents;
}

void max_pool(Pool& pool, const WindowSpec& spec, const void* x, void* y) {
  dispatch("max_pool", spec, [&](auto zero) {
    using T = decltype(zero);
    WindowRun<T>(pool, spec).max(static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void max_pool_gradient(Pool& pool, const WindowSpec& spec, const void* x, const void* dy, void* dx, Epilogue epilogue) {
  dispatch("max_pool_gradient", spec, [&](auto zero) {
    using T = decltype(zero);
    WindowRun<T>(pool, spec)
        .max_gradient(static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(dx), epilogue);
  });
}

void max_pool_pick(Pool& pool, const WindowSpec& spec, const void* x, const void* v, void* y) {
  dispatch("max_pool_pick", spec, [&](auto zero) {
    using T = decltype(zero);
    WindowRun<T>(pool, spec).pick(static_cast<const T*>(x), static_cast<const T*>(v), static_cast<T*>(y));
  });
}

void sum_pool(Pool& pool, const WindowSpec& spec, const void* x, void* y) {
  dispatch("sum_pool", spec, [&](auto zero) {
    using T = decltype(zero);
    WindowRun<T>(pool, spec).sum(static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void sum_pool_gradient(Pool& pool, const WindowSpec& spec, const void* dy, void* dx) {
  dispatch("sum_pool_gradient", spec, [&](auto zero) {
    using T = decltype(zero);
    WindowRun<T>(pool, spec).sum_gradient(static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace lockstep
