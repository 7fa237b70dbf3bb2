// Complex numbers: arrays of std::complex<float> (c64) and std::complex<double> (c128), which need #include <complex>.
//
//   Array z = complex(x, y);                       // x + iy
//   Array w = z * std::complex<double>(0, 1);      // C++ numbers take the element type of z
//   Array power = square(abs(w));                  // f32: abs(), real(), imag() and angle() are real
//
// Arithmetic, ==, where(), exp, log, sqrt, sin, cos, tanh, pow, sums, products, einsum and everything that moves
// elements take complex arrays. Functions that order numbers (max, sort, <, floor) do not: they throw Error.
//
// Gradients follow JAX's convention: for a real loss of z = x + iy, grad is dL/dx - i dL/dy, so that gradient descent
// subtracts its conjugate. Pure functions, safe from any thread.
#pragma once

#include <concepts>

#include "lockstep/array.h"
#include "lockstep/dtype.h"
#include "lockstep/operand.h"

namespace lockstep {

namespace detail {
// std::complex<Part>. Its header is not included here, because it is large.
template <class T, class Part>
concept ComplexOf = ComplexNumber<T> && std::same_as<typename T::value_type, Part>;
}  // namespace detail

template <detail::ComplexOf<float> T>
struct DTypeOf<T> {
  static constexpr DType value = DType::c64;
};
template <detail::ComplexOf<double> T>
struct DTypeOf<T> {
  static constexpr DType value = DType::c128;
};

// re + i im, of equal shapes after broadcasting. Integers become f32; the result is c64, or c128 for f64.
Array complex(const Operand& re, const Operand& im);

// The parts. Of real arrays: the array itself, and zeros.
Array real(const Operand& x);
Array imag(const Operand& x);

// The complex conjugate; real arrays are their own.
Array conj(const Operand& x);
inline Array conjugate(const Operand& x) { return conj(x); }

// The angle in radians, from -pi to pi: atan2(imag, real). Of real arrays: 0, or pi for negative elements.
Array angle(const Operand& x);

// Whether elements have an imaginary part that is not zero (is zero), as bool.
Array iscomplex(const Operand& x);
Array isreal(const Operand& x);
// Whether the element type is complex.
inline bool iscomplexobj(const Operand& x) { return is_complex(x.dtype()); }

}  // namespace lockstep
