// Functions on Values that combine elements along dimensions. Strict: no promotion. A Builder belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "program/builder.h"

namespace lockstep {

// Combines the elements along `axes`, in any order, and removes those dimensions. bf16 and f16 are summed in f32. The
// result for no elements: sum 0, prod 1, max the lowest value (-inf), min the highest (inf), and true, or false. max
// and min propagate NaN.
Value reduce_sum(Value x, std::vector<int64_t> axes);
Value reduce_prod(Value x, std::vector<int64_t> axes);
Value reduce_max(Value x, std::vector<int64_t> axes);
Value reduce_min(Value x, std::vector<int64_t> axes);
// For booleans only.
Value reduce_and(Value x, std::vector<int64_t> axes);
Value reduce_or(Value x, std::vector<int64_t> axes);

// The i32 index of the greatest or least element along `axis`, which is removed and must not be empty. Among equal
// elements the first counts. The first NaN, if any, is the extreme.
Value argmax(Value x, int64_t axis);
Value argmin(Value x, int64_t axis);

// Running results along `axis`, each including its own element; from the last element backwards if `reverse`. Extremes
// propagate NaN. The gradient of an extreme goes to the element that first attained it.
Value cumsum(Value x, int64_t axis, bool reverse = false);
Value cumprod(Value x, int64_t axis, bool reverse = false);
Value cummax(Value x, int64_t axis, bool reverse = false);
Value cummin(Value x, int64_t axis, bool reverse = false);
// log(cumsum(exp(x))) without overflow, of floating elements.
Value cumlogsumexp(Value x, int64_t axis, bool reverse = false);

}  // namespace lockstep
