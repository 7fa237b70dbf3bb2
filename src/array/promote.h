// Conversions that functions on Arrays apply before they call the strict functions on Values: negative axes,
// element type promotion, broadcasting. `what`, the name of the function, begins every error. Pure functions
// of one thread's builder.
//
// Shapes are passed by value where equations are added: a reference to a Value's shape is invalid after the
// next equation.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "array/apply.h"
#include "lockstep/axes.h"
#include "program/builder.h"

namespace lockstep::detail {

// Converts `axis` to a non-negative axis. Throws Error when it is out of range for `shape`.
int64_t axis_of(const char* what, int64_t axis, const Shape& shape);
// Converts `axes` to non-negative axes, in ascending order. Throws Error also for an axis given twice.
std::vector<int64_t> axes_of(const char* what, const Axes& axes, const Shape& shape);
// The dimensions that are not in `axes`.
std::vector<int64_t> other_axes(int64_t rank, const std::vector<int64_t>& axes);

// The common shape of a broadcast. Throws Error when the shapes do not broadcast.
Shape broadcast_shape(const char* what, std::span<const Shape> shapes);

// Converts x to an element type; returns x itself if it has that type. To bool: nonzero is true.
Value convert(Value x, DType dtype);
// Returns the number. Throws Error when the integer type cannot represent it.
int64_t checked_integer(const char* what, int64_t number, DType dtype);
// Same for a real number, whose fraction is dropped.
int64_t checked_integer(const char* what, double number, DType dtype);
// to_floating: integers and bools become f32; complex numbers stay. to_number: bools become i32. The other two do the same to
// types.
Value to_floating(Value x);
Value to_number(Value x);
DType floating_of(DType dtype);
DType number_of(DType dtype);

// Broadcasts x to `shape` by NumPy's rules. Throws Error when it does not fit.
Value broadcast_value(const char* what, Value x, Shape shape);
// Converts all values to `dtype` and broadcasts them to their common shape.
Values promote_and_broadcast(const char* what, const Values& values, DType dtype);

// Restores the axes that a reduction of an array of `shape` removed: repeated to their old extent, or with
// extent 1.
Value repeat_along(Value reduced, Shape shape, const std::vector<int64_t>& axes);
Value keep_axes(Value reduced, Shape shape, const std::vector<int64_t>& axes);

// An axis as an index into a Shape.
inline size_t at_axis(int64_t axis) { return static_cast<size_t>(axis); }

// Integers as i32 or i64 without a change of their values; those of u64 beyond i64 become its greatest.
Value signed_integers(Value integers);
// Converts indices along an axis of `extent` to a type that counts all of its positions: i64 if the extent does not fit
// i32, else i32, i64 or u32. Negative indices count from the end. Throws Error unless they are integers.
Value wrap_indices(const char* what, Value indices, int64_t extent);

}  // namespace lockstep::detail
