// apply(): implements functions on Arrays by functions on Values. In a trace, the equations are recorded.
// Otherwise they form a small program that runs immediately; its plan is cached. Safe to call from any
// thread.
#pragma once

#include "array/eager_calls.h"
#include "array/node.h"
#include "array/trace.h"
#include "lane/function_ref.h"
#include "program/builder.h"

namespace lockstep::detail {

// The common element type of the arguments. Numbers (`x + 2`, `x * 0.5f`) adapt to arrays: an integer or bool
// number takes the array's type; a floating number takes a floating array's type and promotes integer arrays
// to f32. A complex number makes the result complex: c128 with f64 and c128, otherwise c64.
DType common_dtype(std::span<const Array> args);

// Calls f(builder, values) with one value per argument and returns its results. Numbers become constants of
// `literal_dtype`, or of their own type if absent. Throws Error for an empty array; `what` names the function
// in errors.
using Body = FunctionRef<Values(Builder&, const Values&)>;
Arrays apply(const char* what, std::span<const Array> args, std::optional<DType> literal_dtype, Body,
             const CallKey& key = {});

// Same for one result. With a key, a call outside of traces with operands of the same types as before takes as long as a call
// of a compiled function: neither is f called, nor a program made. REQUIRES: nothing but the key and the types, shardings and
// numbers of the arguments decides about the equations.
Array apply1(const char* what, std::initializer_list<Array> args, FunctionRef<Value(Builder&, const Values&)>,
             std::optional<DType> literal_dtype = {}, const CallKey& key = {});

// Runs a program without captures on concrete arguments. Its plan is cached by the program's content.
Arrays run_now(const Program&, std::span<const Array> args);

}  // namespace lockstep::detail
