// apply(): how functions on Arrays are written with functions on Values. While the thread traces, the equations go into
// the trace; otherwise they become a small program that runs at once, its plan kept for the next time.
#pragma once

#include "array/node.h"
#include "array/trace.h"
#include "lane/function_ref.h"
#include "program/builder.h"

namespace lockstep::detail {

// The element type in which the arguments meet. Numbers (`x + 2`, `x * 0.5f`) give way to arrays: an integer or bool
// number takes any array's type, a floating number takes a floating array's type and makes integers f32.
DType common_dtype(std::span<const Array> args);

// f(builder, values) with one value per argument; numbers become constants of `literal_dtype` (absent: of their own
// type).
using Body = FunctionRef<Values(Builder&, const Values&)>;
Arrays apply(const char* what, std::span<const Array> args, std::optional<DType> literal_dtype, Body);

// The one-result form.
Array apply1(const char* what, std::initializer_list<Array> args, FunctionRef<Value(Builder&, const Values&)>,
             std::optional<DType> literal_dtype = {});

// Runs a closed program on concrete arguments; its plan is kept by content.
Arrays run_now(const Program&, std::span<const Array> args);

}  // namespace lockstep::detail
