// Sequences sampled from functions: interpolation, differences, convolution, integrals, polynomials. As in jax.numpy.
// Safe to call from any thread.
//
//   Array smooth = convolve(signal, full({5}, 0.2f), "same");
//   Array y = interp(0.5, times, values);
#pragma once

#include <concepts>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

struct InterpOptions {
  Array left = {}, right = {};  // outside of the points; undefined: the first and the last value
  double period = 0;            // 0: not periodic
};
// The piecewise linear function through the points (xp, fp), at x. xp must ascend.
Array interp(const Operand& x, const Operand& xp, const Operand& fp, const InterpOptions& options = {});

// The convolution or correlation of two vectors: "full" (m + n - 1 elements), "same" (of the longer vector's length) or
// "valid" (where they overlap completely). Throws Error for other modes and for empty vectors.
Array convolve(const Operand& a, const Operand& v, std::string_view mode = "full");
Array correlate(const Operand& a, const Operand& v, std::string_view mode = "valid");

struct DiffOptions {
  int64_t n = 1;                    // how often
  Array prepend = {}, append = {};  // joined to x along the axis first
};
// Differences of neighbours along an axis; of bools: whether they differ.
Array diff(const Operand& x, int64_t axis = -1, const DiffOptions& options = {});
// Differences of neighbours of the flattened array, with what is joined at both ends.
Array ediff1d(const Operand& x, const Operand& to_end = {}, const Operand& to_begin = {});
// The derivative along an axis from central differences; one-sided at the ends. `spacing` is a distance, or the vector
// of coordinates. Throws Error for fewer than two elements. Without an axis: of all axes.
Array gradient(const Operand& f, int64_t axis, const Operand& spacing = 1);
std::vector<Array> gradient(const Operand& f, const Operand& spacing = 1);
// A floating number is a distance, not an axis.
template <std::floating_point T>
std::vector<Array> gradient(const Operand& f, T spacing) {
  return gradient(f, Array(spacing));
}
// The integral along an axis by the trapezoidal rule, at distances dx or coordinates x.
Array trapezoid(const Operand& y, double dx = 1, int64_t axis = -1);
Array trapezoid(const Operand& y, const Operand& x, int64_t axis = -1);

struct UnwrapOptions {
  double period = 6.283185307179586;
  std::optional<double> discont = {};  // larger jumps are removed; default and least: half of the period
};
// Adds multiples of the period so that no jump along the axis exceeds half of it.
Array unwrap(const Operand& p, int64_t axis = -1, const UnwrapOptions& options = {});

// Polynomials as vectors of coefficients, the highest power first.
Array polyval(const Operand& p, const Operand& x);
Array polyadd(const Operand& a, const Operand& b);
Array polysub(const Operand& a, const Operand& b);
Array polymul(const Operand& a, const Operand& b);
Array polyder(const Operand& p, int64_t times = 1);
Array polyint(const Operand& p, int64_t times = 1, const Operand& constant = 0);

}  // namespace lockstep
