// Functions on Values that create, move and rearrange elements without computing on them. Strict: no promotion, no
// implicit broadcasting. Each throws Error if its operands do not fit. A Builder belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "program/builder.h"

namespace lockstep {

// An array of one repeated value. A floating type rounds the value; for integers and bool it must be exact. For u64 it
// is the 64 bits. A complex array is real.
Value full(Builder&, Type, double value);
Value full(Builder&, Type, int64_t value);
inline Value full(Builder& b, Type type, int value) { return full(b, std::move(type), static_cast<int64_t>(value)); }

// The value of all elements of `x` if full made it (int64_t for integers and bool, else double), or null. The pointer
// is valid until the next equation is added.
const Attr* full_value(Value x);

// An array of a value in the form that full_value() returns.
Value full_of(Builder&, Type, Attr value);

// Arrays of one value with the type of `x`.
Value zeros_like(Value x);
Value ones_like(Value x);
Value full_like(Value x, double value);

// Counts 0, 1, 2, ... along dimension `dim`.
Value iota(Builder&, Type, int64_t dim);

// `x` repeated to shape `out`: dims[i] is the output dimension of operand dimension i. The dimensions increase,
// and their extents are equal.
Value broadcast(Value x, Shape out, std::vector<int64_t> dims);

// The same elements, in row-major order, with another shape.
Value reshape(Value x, Shape shape);

// Dimension i of the result is dimension permutation[i] of `x`.
Value transpose(Value x, std::vector<int64_t> permutation);

// x[starts[d] : limits[d] : strides[d]] for every dimension d; strides are positive, ranges are within `x`.
Value slice(Value x, std::vector<int64_t> starts, std::vector<int64_t> limits, std::vector<int64_t> strides);

// The elements in reverse order along `axes`.
Value reverse(Value x, std::vector<int64_t> axes);

// `x` with lo[d] copies of `value` before, hi[d] after and interior[d] between the elements of dimension d. Negative lo
// and hi cut elements off; interior is not negative. `value` is a scalar.
Value pad(Value x, Value value, std::vector<int64_t> lo, std::vector<int64_t> hi, std::vector<int64_t> interior);

// The operands concatenated along `axis`.
Value concatenate(const Values& operands, int64_t axis);

// The block of `sizes` elements of `x` that begins at `starts`, one i32 or i64 scalar per dimension. Starts are clamped
// so that the block fits.
Value dynamic_slice(Value x, const Values& starts, std::vector<int64_t> sizes);

// `x` with the block that begins at `starts` replaced by `update`; starts are clamped as in dynamic_slice.
Value update_slice(Value x, Value update, const Values& starts);

// `x`; no gradient flows through it.
Value stop_gradient(Value x);

}  // namespace lockstep
