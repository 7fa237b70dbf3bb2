// Reductions along axes: all (the default), one, or a list.
//
//   Array m = mean(x);                               // a scalar
//   Array s = sum(x, {0, 1}, {.keepdims = true});
//   Array v = var(x, {.ddof = 1});                   // options without axes
//   Array p = sum(x, 1, {.where = x > 0});           // of some elements
//
// bf16 and f16 accumulate in f32. The overloads that take options without axes are templates, so that sum(x,
// {}) and sum(x, {0, 1}) are read as axes. Safe to call from any thread.
#pragma once

#include <concepts>
#include <optional>

#include "lockstep/array.h"
#include "lockstep/axes.h"
#include "lockstep/operand.h"

namespace lockstep {

struct ReduceOptions {
  bool keepdims = false;  // keep reduced dimensions, with extent 1
  Array where = {};       // reduce only elements where this is true; it broadcasts to x. Undefined: all elements
  Array initial = {};     // a scalar that takes part in the reduction: sum, prod, max, min
};

// Sum and product. bool is computed in i32 and u8 in u32. A sum of more than 2^31 - 1 bools is an i64.
Array sum(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array prod(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
// Maximum and minimum. NaN propagates. Throw Error for an empty dimension, and for `where`, without `initial`. Equal
// extremes share the gradient.
Array max(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array min(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
// Deleted: for the larger or smaller of two arrays use maximum() and minimum().
template <class T>
requires(std::is_floating_point_v<T> || std::is_same_v<T, Array>) Array max(const Array& x, const T& other)
= delete;
template <class T>
requires(std::is_floating_point_v<T> || std::is_same_v<T, Array>) Array min(const Array& x, const T& other)
= delete;
// Whether any element, or every element, is nonzero.
Array any(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array all(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
// The mean. Integers become f32.
Array mean(const Operand& x, const Axes& axes = {}, ReduceOptions = {});

template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array sum(const Operand& x, Options options) {
  return sum(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array prod(const Operand& x, Options options) {
  return prod(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array max(const Operand& x, Options options) {
  return max(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array min(const Operand& x, Options options) {
  return min(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array any(const Operand& x, Options options) {
  return any(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array all(const Operand& x, Options options) {
  return all(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array mean(const Operand& x, Options options) {
  return mean(x, {}, options);
}

struct VarianceOptions {
  bool keepdims = false;
  int64_t ddof = 0;  // the divisor is the number of elements minus ddof
  Array where = {};  // as in ReduceOptions
};
Array var(const Operand& x, const Axes& axes = {}, VarianceOptions = {});
Array standard_deviation(const Operand& x, const Axes& axes = {}, VarianceOptions = {});

template <std::same_as<VarianceOptions> Options = VarianceOptions>
Array var(const Operand& x, Options options) {
  return var(x, {}, options);
}
template <std::same_as<VarianceOptions> Options = VarianceOptions>
Array standard_deviation(const Operand& x, Options options) {
  return standard_deviation(x, {}, options);
}

// The i32 index of the first maximum or minimum along an axis; without an axis, in row-major order.
Array argmax(const Operand& x, std::optional<int64_t> axis = {}, ReduceOptions = {});
Array argmin(const Operand& x, std::optional<int64_t> axis = {}, ReduceOptions = {});
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array argmax(const Operand& x, Options options) {
  return argmax(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array argmin(const Operand& x, Options options) {
  return argmin(x, {}, options);
}

// Cumulative sum, product, maximum, minimum and log(cumsum(exp(x))) along an axis, from the end if `reverse`; without
// an axis, of the flattened array. bool becomes i32, or i64 along more than 2^31 - 1 elements. NaN propagates. The gradient of an extreme goes to the element
// that first attained it.
Array cumsum(const Operand& x, int64_t axis, bool reverse = false);
Array cumprod(const Operand& x, int64_t axis, bool reverse = false);
Array cummax(const Operand& x, int64_t axis, bool reverse = false);
Array cummin(const Operand& x, int64_t axis, bool reverse = false);
Array cumlogsumexp(const Operand& x, int64_t axis, bool reverse = false);
Array cumsum(const Operand& x);
Array cumprod(const Operand& x);

struct LogsumexpOptions {
  bool keepdims = false;
  Array where = {};  // as in ReduceOptions
  Array b = {};      // factors of the exponentials, which broadcast with x
};
// log(sum(exp(x))) without overflow; log(sum(b * exp(x))).
Array logsumexp(const Operand& x, const Axes& axes = {}, LogsumexpOptions = {});
template <std::same_as<LogsumexpOptions> Options = LogsumexpOptions>
Array logsumexp(const Operand& x, Options options) {
  return logsumexp(x, {}, options);
}
// exp(x) / sum(exp(x)), and its logarithm, without overflow.
Array softmax(const Operand& x, const Axes& axes = -1);
Array log_softmax(const Operand& x, const Axes& axes = -1);

}  // namespace lockstep
