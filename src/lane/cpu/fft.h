// Fft: one-dimensional Fourier transforms of many lines on one CPU lane, in f32 or f64.
//
//   const Fft fft = Fft::prepare(FftKind::forward, 1000, DType::c64);
//   fft.run(pool, {.lines = 128, .inner = 1}, x, y);
//
// Transforms are not normalized: a forward and an inverse one multiply by n. Lengths of factors 2, 3, 4, 5 and 7 take
// Stockham's algorithm, one pass for each factor. Other lengths are a convolution with a chirp (Bluestein), by transforms
// of a power of two. Several lines are transformed side by side, so that every loop is over adjacent elements.
//
// Immutable: several threads may run the same Fft. Results do not depend on the number of threads, nor on the other
// lines.
#pragma once

#include <cstdint>
#include <memory>

#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// real_forward: n real numbers to n / 2 + 1 complex ones, the others being their conjugates; real_inverse: back.
enum class FftKind : uint8_t { forward, inverse, real_forward, real_inverse };

// Where lines are: element k of line l is at ((l / inner) * length + k) * inner + l % inner, for the length of a line in
// the array.
struct FftLines {
  int64_t lines = 1;
  int64_t inner = 1;
};

class Fft {
 public:
  // REQUIRES: n >= 1; dtype is c64 or c128.
  static Fft prepare(FftKind kind, int64_t n, DType dtype);

  // Transforms all lines. `out` may be `in` if a line has as many elements of the same size in both.
  void run(Pool& pool, FftLines where, const void* in, void* out) const;

 private:
  struct Plan;
  std::shared_ptr<const Plan> plan_;
};

}  // namespace lockstep
