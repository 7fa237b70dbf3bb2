// Elementwise functions on Values. Strict: all operands of a call have equal types (except select's predicate); nothing
// is promoted or broadcast. Each throws Error if its operands do not fit. A Builder belongs to one thread.
#pragma once

#include "ops/shape_ops.h"
#include "program/builder.h"
#include "program/op.h"

namespace lockstep {

// One function per line of elementwise.def: neg(x), add(a, b), lt(a, b), ...
#define LOCKSTEP_UNARY(name, ...) Value name(Value x);
#define LOCKSTEP_BINARY(name, ...) Value name(Value a, Value b);
#define UNARY LOCKSTEP_UNARY
#define PREDICATE LOCKSTEP_UNARY
#define BINARY LOCKSTEP_BINARY
#define COMPARE LOCKSTEP_BINARY
#include "ops/elementwise.def"
#undef LOCKSTEP_UNARY
#undef LOCKSTEP_BINARY

// predicate[i] ? a[i] : b[i].
Value select(Value predicate, Value a, Value b);

// Floats are truncated to integers and clamped to their range, NaN becomes 0; integers wrap; to bool is "not zero".
// Complex numbers lose their imaginary part; real numbers get the imaginary part 0.
Value cast(Value x, DType dtype);

// The same bits under another dtype of the same width, 32 or 64 bits. Not complex.
Value bitcast(Value x, DType dtype);

inline Value operator-(Value x) { return neg(x); }
inline Value operator+(Value a, Value b) { return add(a, b); }
inline Value operator-(Value a, Value b) { return sub(a, b); }
inline Value operator*(Value a, Value b) { return mul(a, b); }
inline Value operator/(Value a, Value b) { return div(a, b); }
inline Value operator+(Value a, double b) { return add(a, full_like(a, b)); }
inline Value operator-(Value a, double b) { return sub(a, full_like(a, b)); }
inline Value operator*(Value a, double b) { return mul(a, full_like(a, b)); }
inline Value operator/(Value a, double b) { return div(a, full_like(a, b)); }
inline Value operator+(double a, Value b) { return add(full_like(b, a), b); }
inline Value operator-(double a, Value b) { return sub(full_like(b, a), b); }
inline Value operator*(double a, Value b) { return mul(full_like(b, a), b); }
inline Value operator/(double a, Value b) { return div(full_like(b, a), b); }

// The cost of an elementwise op, in additions. REQUIRES: op.loop.
int elementwise_cost(const Op& op);

// The `value` attribute of an equation that makes a constant of one repeated element; null for any other equation.
const Attr* constant_value(const Eqn* eqn);

// Writes one element of a constant in register format: bf16 and f16 as f32, i8, i16 and u16 as i32. At most 16 bytes.
void encode_element(const Attr& value, DType dtype, void* element);
// A constant of a type that is not complex from one element in register format.
Value decode_element(const void* element, Builder& builder, const Type& type);

}  // namespace lockstep
