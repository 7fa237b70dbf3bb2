// A tile of lines is loaded into separate arrays of real and imaginary parts, with element k of line b at k * width + b.
// Between passes it is in one of two such arrays. The inverse transform is the forward one with real and imaginary parts
// exchanged.
#include "lane/cpu/fft.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

#if defined(__clang__)
#define LOCKSTEP_FFT_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_FFT_VECTORIZE _Pragma("GCC ivdep")
#endif

namespace lockstep {
namespace {

constexpr int64_t kFftTileBytes = 512 * 1024;  // of both arrays of a tile
constexpr int64_t kFftWidth = 16;              // lines side by side, at most
constexpr int64_t kFftGrain = 16384;           // elements of a task, at least

// The complex number e^(-2 pi i k / n), with k reduced first: the angle is as exact as a double.
std::complex<double> root_of_unity(int64_t k, int64_t n) {
  const double angle = -2.0 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

// The real and the imaginary parts of a tile.
template <class R>
struct Parts {
  R* re;
  R* im;
};

// One pass: sub-transforms of length r, for `left` = r m elements still to be transformed and `stride` elements side by
// side. Reads element q + stride (p + m k), writes q + stride (r p + j).
struct FftPass {
  int radix;
  int64_t m;
};

template <class R>
struct Twiddles {
  std::vector<R> re, im;  // by pass, then p, then j = 1 to r - 1: e^(-2 pi i j p / (r m))
};

// b[j] = sum over k of a[k] e^(-2 pi i j k / kR), for odd kR: a[k] and a[kR - k] share their products.
template <int kR, class R>
[[gnu::always_inline]] inline void small_transform(const R (&re)[kR], const R (&im)[kR], R (&to_re)[kR], R (&to_im)[kR],
                                                   const R (&cosine)[kR], const R (&sine)[kR]) {
  constexpr int kHalf = (kR - 1) / 2;
  R plus_re[kHalf], plus_im[kHalf], minus_re[kHalf], minus_im[kHalf];
  R sum_re = re[0], sum_im = im[0];
  for (int k = 0; k < kHalf; ++k) {
    plus_re[k] = re[k + 1] + re[kR - 1 - k];
    plus_im[k] = im[k + 1] + im[kR - 1 - k];
    minus_re[k] = re[k + 1] - re[kR - 1 - k];
    minus_im[k] = im[k + 1] - im[kR - 1 - k];
    sum_re += plus_re[k];
    sum_im += plus_im[k];
  }
  to_re[0] = sum_re;
  to_im[0] = sum_im;
  for (int j = 1; j <= kHalf; ++j) {
    R even_re = re[0], even_im = im[0], odd_re = 0, odd_im = 0;
    for (int k = 0; k < kHalf; ++k) {
      const int at = j * (k + 1) % kR;
      even_re += cosine[at] * plus_re[k];
      even_im += cosine[at] * plus_im[k];
      odd_re += sine[at] * minus_im[k];
      odd_im -= sine[at] * minus_re[k];
    }
    to_re[j] = even_re + odd_re;
    to_im[j] = even_im + odd_im;
    to_re[kR - j] = even_re - odd_re;
    to_im[kR - j] = even_im - odd_im;
  }
}
template <class R>
[[gnu::always_inline]] inline void small_transform(const R (&re)[2], const R (&im)[2], R (&to_re)[2], R (&to_im)[2],
                                                   const R (&)[2], const R (&)[2]) {
  to_re[0] = re[0] + re[1];
  to_im[0] = im[0] + im[1];
  to_re[1] = re[0] - re[1];
  to_im[1] = im[0] - im[1];
}
template <class R>
[[gnu::always_inline]] inline void small_transform(const R (&re)[4], const R (&im)[4], R (&to_re)[4], R (&to_im)[4],
                                                   const R (&)[4], const R (&)[4]) {
  const R a_re = re[0] + re[2], a_im = im[0] + im[2], b_re = re[0] - re[2], b_im = im[0] - im[2];
  const R c_re = re[1] + re[3], c_im = im[1] + im[3], d_re = re[1] - re[3], d_im = im[1] - im[3];
  to_re[0] = a_re + c_re;
  to_im[0] = a_im + c_im;
  to_re[1] = b_re + d_im;
  to_im[1] = b_im - d_re;
  to_re[2] = a_re - c_re;
  to_im[2] = a_im - c_im;
  to_re[3] = b_re - d_im;
  to_im[3] = b_im + d_re;
}

template <int kR, class R>
void run_pass(int64_t m, int64_t stride, Parts<R> x, Parts<R> y, const R* w_re, const R* w_im) {
  R cosine[kR], sine[kR];
  for (int k = 0; k < kR; ++k) {
    const std::complex<double> root = root_of_unity(k, kR);
    cosine[k] = static_cast<R>(root.real());
    sine[k] = static_cast<R>(-root.imag());
  }
  for (int64_t p = 0; p < m; ++p, w_re += kR - 1, w_im += kR - 1) {
    R t_re[kR], t_im[kR];
    for (int j = 1; j < kR; ++j) {
      t_re[j] = w_re[j - 1];
      t_im[j] = w_im[j - 1];
    }
    const R *from_re = x.re + p * stride, *from_im = x.im + p * stride;
    R *to_re = y.re + p * kR * stride, *to_im = y.im + p * kR * stride;
    LOCKSTEP_FFT_VECTORIZE
    for (int64_t q = 0; q < stride; ++q) {
      R re[kR], im[kR], b_re[kR], b_im[kR];
      for (int k = 0; k < kR; ++k) {
        re[k] = from_re[q + m * stride * k];
        im[k] = from_im[q + m * stride * k];
      }
      small_transform(re, im, b_re, b_im, cosine, sine);
      to_re[q] = b_re[0];
      to_im[q] = b_im[0];
      for (int j = 1; j < kR; ++j) {
        to_re[q + stride * j] = b_re[j] * t_re[j] - b_im[j] * t_im[j];
        to_im[q + stride * j] = b_re[j] * t_im[j] + b_im[j] * t_re[j];
      }
    }
  }
}

// The passes for a length of factors 2, 3, 5 and 7; empty for other lengths and for 1.
std::vector<FftPass> passes_of(int64_t n) {
  std::vector<FftPass> passes;
  for (const int radix : {4, 2, 3, 5, 7})
    for (; n % radix == 0; n /= radix) passes.push_back({radix, n / radix});
  return n == 1 ? passes : std::vector<FftPass>();
}

// A transform of a length of small factors.
template <class R>
class SmoothFft {
 public:
  explicit SmoothFft(int64_t n) : n_(n), passes_(passes_of(n)) {
    LOCKSTEP_CHECK(n == 1 || !passes_.empty(), "a length of {}", n);
    for (const FftPass& pass : passes_)
      for (int64_t p = 0; p < pass.m; ++p)
        for (int j = 1; j < pass.radix; ++j) {
          const std::complex<double> root = root_of_unity(j * p, pass.radix * pass.m);
          twiddles_.re.push_back(static_cast<R>(root.real()));
          twiddles_.im.push_back(static_cast<R>(root.imag()));
        }
  }

  int64_t size() const { return n_; }

  // Transforms `width` lines in x, with y as scratch memory. Returns where the result is: x or y.
  Parts<R> run(Parts<R> x, Parts<R> y, int64_t width) const {
    const R *w_re = twiddles_.re.data(), *w_im = twiddles_.im.data();
    int64_t stride = width;
    for (const auto [radix, m] : passes_) {
      switch (radix) {
        case 2:
          run_pass<2, R>(m, stride, x, y, w_re, w_im);
          break;
        case 3:
          run_pass<3, R>(m, stride, x, y, w_re, w_im);
          break;
        case 4:
          run_pass<4, R>(m, stride, x, y, w_re, w_im);
          break;
        case 5:
          run_pass<5, R>(m, stride, x, y, w_re, w_im);
          break;
        default:
          run_pass<7, R>(m, stride, x, y, w_re, w_im);
      }
      w_re += m * (radix - 1);
      w_im += m * (radix - 1);
      stride *= radix;
      std::swap(x, y);
    }
    return x;
  }

 private:
  int64_t n_;
  std::vector<FftPass> passes_;
  Twiddles<R> twiddles_;
};

// The smallest power of two that is at least n.
int64_t power_of_two(int64_t n) {
  int64_t size = 1;
  while (size < n) size *= 2;
  return size;
}

// A transform of any length: X[k] = c[k] sum over j of (x[j] c[j]) conj(c[k - j]) with c[k] = e^(-pi i k^2 / n).
template <class R>
class ChirpFft {
 public:
  explicit ChirpFft(int64_t n) : n_(n), smooth_(power_of_two(2 * n - 1)), chirp_(make_chirp(n)) {
    const int64_t m = smooth_.size();
    // The transform of conj(c), which is even, divided by m: in double, whatever R is.
    std::vector<double> re(static_cast<size_t>(m)), im(re.size()), to_re(re.size()), to_im(re.size());
    for (int64_t k = 0; k < n; ++k)
      for (const int64_t at : {k, (m - k) % m}) {
        re[static_cast<size_t>(at)] = chirp_[static_cast<size_t>(k)].real() / static_cast<double>(m);
        im[static_cast<size_t>(at)] = -chirp_[static_cast<size_t>(k)].imag() / static_cast<double>(m);
      }
    const Parts<double> found = SmoothFft<double>(m).run({re.data(), im.data()}, {to_re.data(), to_im.data()}, 1);
    filter_re_.assign(found.re, found.re + m);
    filter_im_.assign(found.im, found.im + m);
  }

  int64_t size() const { return smooth_.size(); }

  // As SmoothFft::run(); x has size() rows.
  Parts<R> run(Parts<R> x, Parts<R> y, int64_t width) const {
    multiply_chirp(x, width);
    std::fill(x.re + n_ * width, x.re + size() * width, R(0));
    std::fill(x.im + n_ * width, x.im + size() * width, R(0));
    Parts<R> found = smooth_.run(x, y, width);
    Parts<R> other = found.re == x.re ? y : x;
    for (int64_t k = 0; k < size(); ++k) {
      const R c = filter_re_[static_cast<size_t>(k)], s = filter_im_[static_cast<size_t>(k)];
      multiply_row(found, k * width, width, c, s);
    }
    // The inverse transform: with the parts exchanged.
    found = smooth_.run({found.im, found.re}, {other.im, other.re}, width);
    found = {found.im, found.re};
    multiply_chirp(found, width);
    return found;
  }

 private:
  static std::vector<std::complex<double>> make_chirp(int64_t n) {
    std::vector<std::complex<double>> chirp;
    int64_t square = 0;  // k^2 modulo 2 n
    for (int64_t k = 0; k < n; ++k) {
      chirp.push_back(root_of_unity(square, 2 * n));
      square = (square + 2 * k + 1) % (2 * n);
    }
    return chirp;
  }

  static void multiply_row(Parts<R> x, int64_t begin, int64_t width, R c, R s) {
    LOCKSTEP_FFT_VECTORIZE
    for (int64_t i = begin; i < begin + width; ++i) {
      const R re = x.re[i], im = x.im[i];
      x.re[i] = re * c - im * s;
      x.im[i] = re * s + im * c;
    }
  }
  void multiply_chirp(Parts<R> x, int64_t width) const {
    for (int64_t k = 0; k < n_; ++k) {
      const std::complex<double> c = chirp_[static_cast<size_t>(k)];
      multiply_row(x, k * width, width, static_cast<R>(c.real()), static_cast<R>(c.imag()));
    }
  }

  int64_t n_;
  SmoothFft<R> smooth_;
  std::vector<std::complex<double>> chirp_;
  std::vector<R> filter_re_, filter_im_;
};

// Runs one kind of transform for a type.
template <class R>
class FftOf {
 public:
  FftOf(FftKind kind, int64_t n) : kind_(kind), n_(n) {
    if (n == 1 || !passes_of(n).empty())
      smooth_.emplace(n);
    else
      chirp_.emplace(n);
    rows_ = smooth_ ? n : chirp_->size();
  }

  void run(Pool& pool, FftLines where, const void* in, void* out) const {
    // Two arrays of complex numbers for each line.
    const int64_t line = rows_ * static_cast<int64_t>(4 * sizeof(R));
    const int64_t width = std::clamp<int64_t>(kFftTileBytes / line, 1, kFftWidth);
    const int64_t tiles = (where.lines + width - 1) / width;
    const int64_t grain = std::max<int64_t>(1, kFftGrain / (rows_ * width));
    pool.parallel_range(tiles, grain, [&](int64_t begin, int64_t end, int thread) {
      auto* memory = static_cast<R*>(pool.scratch(thread, 4, line * width));
      for (int64_t tile = begin; tile < end; ++tile)
        run_tile(where, tile * width, std::min(width, where.lines - tile * width), in, out, memory);
    });
  }

 private:
  using C = std::complex<R>;

  int64_t in_length() const { return kind_ == FftKind::real_inverse ? n_ / 2 + 1 : n_; }
  int64_t out_length() const { return kind_ == FftKind::real_forward ? n_ / 2 + 1 : n_; }

  static int64_t position(FftLines where, int64_t line, int64_t length) {
    return line / where.inner * length * where.inner + line % where.inner;
  }

  void run_tile(FftLines where, int64_t first, int64_t width, const void* in, void* out, R* memory) const {
    const int64_t area = rows_ * width;
    Parts<R> x{memory, memory + area}, y{memory + 2 * area, memory + 3 * area};
    for (int64_t b = 0; b < width; ++b) load(where, first + b, in, x, b, width);
    const bool inverse = kind_ == FftKind::inverse || kind_ == FftKind::real_inverse;
    if (inverse) x = {x.im, x.re}, y = {y.im, y.re};
    Parts<R> found = smooth_ ? smooth_->run(x, y, width) : chirp_->run(x, y, width);
    if (inverse) found = {found.im, found.re};
    for (int64_t b = 0; b < width; ++b) store(where, first + b, found, b, width, out);
  }

  void load(FftLines where, int64_t line, const void* in, Parts<R> x, int64_t b, int64_t width) const {
    const int64_t at = position(where, line, in_length());
    if (kind_ == FftKind::real_forward) {
      const R* from = static_cast<const R*>(in) + at;
      for (int64_t k = 0; k < n_; ++k) {
        x.re[k * width + b] = from[k * where.inner];
        x.im[k * width + b] = R(0);
      }
      return;
    }
    const C* from = static_cast<const C*>(in) + at;
    for (int64_t k = 0; k < in_length(); ++k) {
      x.re[k * width + b] = from[k * where.inner].real();
      x.im[k * width + b] = from[k * where.inner].imag();
    }
    if (kind_ != FftKind::real_inverse) return;
    // The spectrum of real numbers: its first element, and the middle one, are real, and the rest mirrors.
    x.im[b] = R(0);
    if (n_ % 2 == 0) x.im[n_ / 2 * width + b] = R(0);
    for (int64_t k = n_ / 2 + 1; k < n_; ++k) {
      x.re[k * width + b] = x.re[(n_ - k) * width + b];
      x.im[k * width + b] = -x.im[(n_ - k) * width + b];
    }
  }

  void store(FftLines where, int64_t line, Parts<R> found, int64_t b, int64_t width, void* out) const {
    const int64_t at = position(where, line, out_length());
    if (kind_ == FftKind::real_inverse) {
      R* to = static_cast<R*>(out) + at;
      for (int64_t k = 0; k < n_; ++k) to[k * where.inner] = found.re[k * width + b];
      return;
    }
    C* to = static_cast<C*>(out) + at;
    for (int64_t k = 0; k < out_length(); ++k)
      to[k * where.inner] = C(found.re[k * width + b], found.im[k * width + b]);
  }

  FftKind kind_;
  int64_t n_;
  std::optional<SmoothFft<R>> smooth_;
  std::optional<ChirpFft<R>> chirp_;
  int64_t rows_;
};

}  // namespace

struct Fft::Plan {
  std::variant<FftOf<float>, FftOf<double>> of;
};

Fft Fft::prepare(FftKind kind, int64_t n, DType dtype) {
  LOCKSTEP_CHECK(n >= 1 && is_complex(dtype), "a transform of {} elements of {}", n, name(dtype));
  Fft fft;
  if (dtype == DType::c64)
    fft.plan_ = std::make_shared<const Plan>(Plan{FftOf<float>(kind, n)});
  else
    fft.plan_ = std::make_shared<const Plan>(Plan{FftOf<double>(kind, n)});
  return fft;
}

void Fft::run(Pool& pool, FftLines where, const void* in, void* out) const {
  std::visit([&](const auto& of) { of.run(pool, where, in, out); }, plan_->of);
}

}  // namespace lockstep
