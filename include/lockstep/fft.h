// Fourier transforms, as jax.numpy.fft.
//
//   Array spectrum = fft::rfft(signal);                       // c64[..., n / 2 + 1]
//   Array smooth = fft::irfft(spectrum * filter, signal.shape(-1));
//
// n, s: the lengths of the transformed axes; input that is shorter gets zeros at the end, longer input is cut. Axes are
// the last ones unless given. Norm: `backward` divides the inverse transforms by the number of points, `forward` the
// forward ones, `ortho` both by its square root. f64 and c128 give c128 (f64), all other types c64 (f32). Lengths are
// factored into 2, 3, 4, 5 and 7; others take Bluestein's algorithm, so that every length takes O(n log n). Transforms
// are differentiable and batched by vmap; transformed axes are not sharded. Throws Error for an axis that is out of range
// or given twice, for a length below 1, and for complex input of rfft. Safe to call from any thread.
#pragma once

#include <optional>

#include "lockstep/array.h"
#include "lockstep/axes.h"
#include "lockstep/operand.h"

namespace lockstep::fft {

enum class Norm : uint8_t { backward, ortho, forward };

using Length = std::optional<int64_t>;
using Lengths = std::optional<Shape>;

// Along one axis. irfft and hfft give n real elements, by default 2 (m - 1) for m elements of the spectrum.
Array fft(const Operand& x, Length n = {}, int64_t axis = -1, Norm norm = Norm::backward);
Array ifft(const Operand& x, Length n = {}, int64_t axis = -1, Norm norm = Norm::backward);
Array rfft(const Operand& x, Length n = {}, int64_t axis = -1, Norm norm = Norm::backward);
Array irfft(const Operand& x, Length n = {}, int64_t axis = -1, Norm norm = Norm::backward);
// The transform of a signal with Hermitian symmetry, which has a real spectrum, and its inverse.
Array hfft(const Operand& x, Length n = {}, int64_t axis = -1, Norm norm = Norm::backward);
Array ihfft(const Operand& x, Length n = {}, int64_t axis = -1, Norm norm = Norm::backward);

// Along two axes. Of rfft2 and rfftn, the last axis is the one that is halved.
Array fft2(const Operand& x, const Lengths& s = {}, const Shape& axes = {-2, -1}, Norm norm = Norm::backward);
Array ifft2(const Operand& x, const Lengths& s = {}, const Shape& axes = {-2, -1}, Norm norm = Norm::backward);
Array rfft2(const Operand& x, const Lengths& s = {}, const Shape& axes = {-2, -1}, Norm norm = Norm::backward);
Array irfft2(const Operand& x, const Lengths& s = {}, const Shape& axes = {-2, -1}, Norm norm = Norm::backward);

// Along any axes: by default the last ones, as many as `s` has lengths; without `s`, all.
using TransformedAxes = std::optional<Shape>;
Array fftn(const Operand& x, const Lengths& s = {}, const TransformedAxes& axes = {}, Norm norm = Norm::backward);
Array ifftn(const Operand& x, const Lengths& s = {}, const TransformedAxes& axes = {}, Norm norm = Norm::backward);
Array rfftn(const Operand& x, const Lengths& s = {}, const TransformedAxes& axes = {}, Norm norm = Norm::backward);
Array irfftn(const Operand& x, const Lengths& s = {}, const TransformedAxes& axes = {}, Norm norm = Norm::backward);

// Moves the zero frequency to the middle of the axes (all by default), and back.
Array fftshift(const Operand& x, const Axes& axes = {});
Array ifftshift(const Operand& x, const Axes& axes = {});

// The frequencies of the elements of fft and rfft for n samples that are `d` apart: f32, in cycles per unit of d.
Array fftfreq(int64_t n, double d = 1.0, SourceLine at = SourceLine::here());
Array rfftfreq(int64_t n, double d = 1.0, SourceLine at = SourceLine::here());

}  // namespace lockstep::fft
