// Pooling of images [n, h, w, c]. A thread computes kV adjacent channels of one pixel. Gradients are gathered: every
// pixel adds up the contributions of the windows over it, in the order of the windows.
#pragma once
#include <type_traits>

#include "elements.cuh"

namespace lockstep {

// S describes the pooling (pool_cuda.cc): images kH x kW, results kOH x kOW, windows kKH x kKW with strides kSH, kSW
// and padding kPH, kPW; kC is the number of vectors of channels. T is the element in memory, R in registers, Index
// the type of positions, Pos the (signed) type of coordinates.
template <class S>
struct Pool {
  using T = typename S::T;
  using R = typename S::R;
  using Index = typename S::Index;
  using Pos = typename S::Pos;
  static constexpr int kV = S::kV;
  static constexpr Pos kH = S::kH, kW = S::kW, kOH = S::kOH, kOW = S::kOW, kKH = S::kKH, kKW = S::kKW, kSH = S::kSH,
                       kSW = S::kSW, kPH = S::kPH, kPW = S::kPW;
  static constexpr Index kC = S::kC;
  struct alignas(kV * sizeof(T)) Pack {
    T v[kV];
  };

  // A vector of channels: number `at` of an array of images, at channels c of pixel (y, x) of image n.
  struct Pixel {
    Index at, c, x, y, n;
  };
  static Pixel pixel(Index at, Pos h, Pos w) {
    const Index pixel = at / kC;
    return {at, at % kC, pixel % Index(w), pixel / Index(w) % Index(h), pixel / (Index(w) * Index(h))};
  }
  static Pixel input_pixel(Index at) { return pixel(at, kH, kW); }
  static Pixel output_pixel(Index at) { return pixel(at, kOH, kOW); }
  // The first vector of the pixel's channels in its image, in the input and in the output.
  static Index input_base(const Pixel& p) { return p.n * Index(kH * kW) * kC + p.c; }
  static Index output_base(const Pixel& p) { return p.n * Index(kOH * kOW) * kC + p.c; }

  // The part of a window that is inside the image.
  struct Window {
    Pos top, bottom, left, right;
  };
  static Window window(Pos oy, Pos ox) {
    const Pos y0 = oy * kSH - kPH, x0 = ox * kSW - kPW;
    return {y0 < 0 ? 0 : y0, y0 + kKH < kH ? y0 + kKH : kH, x0 < 0 ? 0 : x0, x0 + kKW < kW ? x0 + kKW : kW};
  }

  static constexpr R least() {
    if constexpr (std::is_floating_point_v<R>)
      return -R(math::kInf);
    else
      return math::kLowest<R>;
  }
  // NaN beats all numbers.
  static bool beats(R candidate, R best) { return candidate > best || (candidate != candidate && best == best); }

  // The position of each channel's maximum of a window: the first of equal ones.
  static void maxima(const Pack* image, const Window& w, Index* place) {
    R best[kV];
    for (Pos y = w.top; y < w.bottom; ++y)
      for (Pos x = w.left; x < w.right; ++x) {
        const Index at = Index(y * kW + x) * kC;
        const Pack p = image[at];
        const bool first = y == w.top && x == w.left;
#pragma unroll
        for (int k = 0; k < kV; ++k)
          if (first || beats(load(p.v[k]), best[k])) {
            best[k] = load(p.v[k]);
            place[k] = at;
          }
      }
  }

  static void store(const R (&x)[kV], Pack* out, Index at) {
    Pack result;
#pragma unroll
    for (int k = 0; k < kV; ++k) result.v[k] = Store<T>::of(x[k]);
    out[at] = result;
  }

  // The largest element of each window.
  static void max(Index at, const Pack* in, Pack* out) {
    const Pixel own = output_pixel(at);
    const Window w = window(own.y, own.x);
    R best[kV];
#pragma unroll
    for (int k = 0; k < kV; ++k) best[k] = least();
    const Pack* image = in + input_base(own);
    for (Pos v = w.top; v < w.bottom; ++v)
      for (Pos u = w.left; u < w.right; ++u) {
        const Pack p = image[Index(v * kW + u) * kC];
#pragma unroll
        for (int k = 0; k < kV; ++k) best[k] = beats(load(p.v[k]), best[k]) ? load(p.v[k]) : best[k];
      }
    store(best, out, at);
  }

  // The elements of `from` at the positions of the maxima of `in`; zero for empty windows.
  static void pick(Index at, const Pack* in, const Pack* from, Pack* out) {
    const Pixel own = output_pixel(at);
    const Window w = window(own.y, own.x);
    Pack result{};
    if (w.top < w.bottom && w.left < w.right) {
      const Index first = input_base(own);
      Index place[kV];
      maxima(in + first, w, place);
#pragma unroll
      for (int k = 0; k < kV; ++k) result.v[k] = from[first + place[k]].v[k];
    }
    out[at] = result;
  }

  // The sum of each window.
  static void sum(Index at, const Pack* in, Pack* out) {
    const Pixel own = output_pixel(at);
    const Window w = window(own.y, own.x);
    R sum[kV] = {};
    const Pack* image = in + input_base(own);
    for (Pos v = w.top; v < w.bottom; ++v)
      for (Pos u = w.left; u < w.right; ++u) {
        const Pack p = image[Index(v * kW + u) * kC];
#pragma unroll
        for (int k = 0; k < kV; ++k) sum[k] = math::add(sum[k], R(load(p.v[k])));
      }
    store(sum, out, at);
  }

  // Calls each(v, u) for the windows over a pixel, in order.
  template <class Each>
  static void windows_over(const Pixel& own, const Each& each) {
    const Pos py = Pos(own.y) + kPH, px = Pos(own.x) + kPW;
    const Pos first_y = py < kKH ? 0 : (py - kKH) / kSH + 1, first_x = px < kKW ? 0 : (px - kKW) / kSW + 1;
    const Pos last_y = py / kSH < kOH ? py / kSH : kOH - 1, last_x = px / kSW < kOW ? px / kSW : kOW - 1;
    for (Pos v = first_y; v <= last_y; ++v)
      for (Pos u = first_x; u <= last_x; ++u) each(v, u);
  }

  // The gradient of sum().
  static void sum_grad(Index at, const Pack* dy, Pack* out) {
    const Pixel own = input_pixel(at);
    R sum[kV] = {};
    const Pack* sent = dy + output_base(own);
    windows_over(own, [&](Pos v, Pos u) {
      const Pack p = sent[Index(v * kOW + u) * kC];
#pragma unroll
      for (int k = 0; k < kV; ++k) sum[k] = math::add(sum[k], R(load(p.v[k])));
    });
    store(sum, out, at);
  }

  // The gradient of max(): sets `sum` to that of the pixel.
  static void max_grad_sum(const Pixel& pixel, const Pack* in, const Pack* dy, R (&sum)[kV]) {
    const Pack* sent = dy + output_base(pixel);
    const Pack* image = in + input_base(pixel);
    const Index own = Index(pixel.y * Index(kW) + pixel.x) * kC;
    windows_over(pixel, [&](Pos v, Pos u) {
      Index place[kV];
      maxima(image, window(v, u), place);
      const Pack p = sent[Index(v * kOW + u) * kC];
#pragma unroll
      for (int k = 0; k < kV; ++k)
        if (place[k] == own) sum[k] = math::add(sum[k], R(load(p.v[k])));
    });
  }
  static void max_grad(Index at, const Pack* in, const Pack* dy, Pack* out) {
    R sum[kV] = {};
    max_grad_sum(input_pixel(at), in, dy, sum);
    store(sum, out, at);
  }
  // The same followed by an epilogue (epilogue.cuh).
  template <class Read, class Reader, class Finish>
  static void max_grad_finish(Index at, const Pack* in, const Pack* dy, const Reader& read, const Finish& finish) {
    R sum[kV] = {};
    max_grad_sum(input_pixel(at), in, dy, sum);
    Read given;
    read(at, given);
    finish(at, sum[0], given);
  }

  // The same if windows tile the image: one thread per window, which writes all of its elements.
  static void max_grad_tiles(Index at, const Pack* in, const Pack* dy, Pack* out) {
    const Pixel pixel = output_pixel(at);
    const Window w = window(pixel.y, pixel.x);
    const Index first = input_base(pixel);
    Index place[kV];
    maxima(in + first, w, place);
    const Pack p = dy[at];
#pragma unroll
    for (Pos v = 0; v < kKH; ++v)
#pragma unroll
      for (Pos u = 0; u < kKW; ++u) {
        const Index own = Index((w.top + v) * kW + w.left + u) * kC;
        Pack result;
#pragma unroll
        for (int k = 0; k < kV; ++k)
          result.v[k] = Store<T>::of(place[k] == own ? math::add(R(0), R(load(p.v[k]))) : R(0));
        out[first + own] = result;
      }
  }
  // The same followed by an epilogue, whose loads are issued before the search for the maxima.
  template <class Read, class Reader, class Finish>
  static void max_grad_tiles_finish(Index at, const Pack* in, const Pack* dy, const Reader& read,
                                    const Finish& finish) {
    const Pixel pixel = output_pixel(at);
    const Window w = window(pixel.y, pixel.x);
    const Index first = input_base(pixel);
    Read given[kKH * kKW];
#pragma unroll
    for (Pos v = 0; v < kKH; ++v)
#pragma unroll
      for (Pos u = 0; u < kKW; ++u) read(first + Index((w.top + v) * kW + w.left + u) * kC, given[v * kKW + u]);
    Index place[1];
    maxima(in + first, w, place);
    const R sent = math::add(R(0), R(load(dy[at].v[0])));
#pragma unroll
    for (Pos v = 0; v < kKH; ++v)
#pragma unroll
      for (Pos u = 0; u < kKW; ++u) {
        const Index own = Index((w.top + v) * kW + w.left + u) * kC;
        finish(first + own, place[0] == own ? sent : R(0), given[v * kKW + u]);
      }
  }
};

}  // namespace lockstep
