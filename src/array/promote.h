// What the kind functions on Arrays do before they call the strict ones on Values: axes counted from the
// back, element types and shapes that meet. Errors begin with `what`, the name of the function. Shapes come
// by value where equations are added: the shape of a Value lives only until the next one.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "array/apply.h"
#include "lockstep/axes.h"
#include "program/builder.h"

namespace lockstep::detail {

// `axis` counted from the front. Throws Error when an array of this shape has none such.
int64_t axis_of(const char* what, int64_t axis, const Shape& shape);
// The axes counted from the front, ascending. Throws Error when one is named twice.
std::vector<int64_t> axes_of(const char* what, const Axes& axes, const Shape& shape);
// The dimensions that are not in `axes`.
std::vector<int64_t> other_axes(int64_t rank, const std::vector<int64_t>& axes);

// The shape to which all these broadcast.
Shape broadcast_shape(const char* what, std::span<const Shape> shapes);

// x converted, itself when it has that type already. To bool: not zero.
Value convert(Value x, DType dtype);
// The number itself. Throws Error unless this integer type has it.
int64_t checked_integer(const char* what, int64_t number, DType dtype);
// A real number without its fraction, likewise.
int64_t checked_integer(const char* what, double number, DType dtype);
// Integers and bools as f32; bools as i32.
Value to_floating(Value x);
Value to_number(Value x);
DType floating_of(DType dtype);
DType number_of(DType dtype);

// x repeated to `shape` by NumPy's rules.
Value broadcast_value(const char* what, Value x, Shape shape);
// All in one element type and shape.
Values promote_and_broadcast(const char* what, const Values& values, DType dtype);

// A reduction of an array of `shape` over `axes`, repeated along them again, or with them as dimensions of 1.
Value repeat_along(Value reduced, Shape shape, const std::vector<int64_t>& axes);
Value keep_axes(Value reduced, Shape shape, const std::vector<int64_t>& axes);

// The place in a list of extents.
inline size_t at_axis(int64_t axis) { return static_cast<size_t>(axis); }

// The position along an axis of `extent`, in i32, i64 or u32, negative positions counted from the end.
Value wrap_indices(const char* what, Value indices, int64_t extent);

}  // namespace lockstep::detail
