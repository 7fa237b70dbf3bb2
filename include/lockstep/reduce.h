// Functions that combine the elements along axes: all of them, one, or a list. bf16 and f16 are summed in f32. Safe
// from any thread.
//
// Options may also come without axes: var(x, {.ddof = 1}). Those overloads are templates, so that sum(x, {}) and
// sum(x, {0, 1}) are axes.
#pragma once

#include <concepts>
#include <optional>

#include "lockstep/array.h"
#include "lockstep/axes.h"

namespace lockstep {

struct ReduceOptions {
  bool keepdims = false;  // reduced dimensions stay, with extent 1
};

// bool and u8 are added up and multiplied in i32.
Array sum(const Array& x, const Axes& axes = {}, ReduceOptions = {});
Array prod(const Array& x, const Axes& axes = {}, ReduceOptions = {});
// NaN is handed on. Error when there is nothing to choose from. Equal extremes share the gradient.
Array max(const Array& x, const Axes& axes = {}, ReduceOptions = {});
Array min(const Array& x, const Axes& axes = {}, ReduceOptions = {});
// Of two, element by element: maximum and minimum.
template <class T>
requires(std::is_floating_point_v<T> || std::is_same_v<T, Array>) Array max(const Array& x, const T& other)
= delete;
template <class T>
requires(std::is_floating_point_v<T> || std::is_same_v<T, Array>) Array min(const Array& x, const T& other)
= delete;
// Is any, are all elements not zero?
Array any(const Array& x, const Axes& axes = {}, ReduceOptions = {});
Array all(const Array& x, const Axes& axes = {}, ReduceOptions = {});
// Integers become f32.
Array mean(const Array& x, const Axes& axes = {}, ReduceOptions = {});

template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array sum(const Array& x, Options options) {
  return sum(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array prod(const Array& x, Options options) {
  return prod(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array max(const Array& x, Options options) {
  return max(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array min(const Array& x, Options options) {
  return min(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array any(const Array& x, Options options) {
  return any(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array all(const Array& x, Options options) {
  return all(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array mean(const Array& x, Options options) {
  return mean(x, {}, options);
}

struct VarianceOptions {
  bool keepdims = false;
  int64_t ddof = 0;  // the divisor is the number of elements less this
};
Array var(const Array& x, const Axes& axes = {}, VarianceOptions = {});
Array standard_deviation(const Array& x, const Axes& axes = {}, VarianceOptions = {});

template <std::same_as<VarianceOptions> Options = VarianceOptions>
Array var(const Array& x, Options options) {
  return var(x, {}, options);
}
template <std::same_as<VarianceOptions> Options = VarianceOptions>
Array standard_deviation(const Array& x, Options options) {
  return standard_deviation(x, {}, options);
}

// The i32 index of the first extreme along an axis, or in row-major order without one.
Array argmax(const Array& x, std::optional<int64_t> axis = {}, ReduceOptions = {});
Array argmin(const Array& x, std::optional<int64_t> axis = {}, ReduceOptions = {});
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array argmax(const Array& x, Options options) {
  return argmax(x, {}, options);
}
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array argmin(const Array& x, Options options) {
  return argmin(x, {}, options);
}

// Running sums, from the far end when `reverse`. bool and u8 become i32.
Array cumsum(const Array& x, int64_t axis, bool reverse = false);

// log(sum(exp(x))) without overflow.
Array logsumexp(const Array& x, const Axes& axes = {}, ReduceOptions = {});
template <std::same_as<ReduceOptions> Options = ReduceOptions>
Array logsumexp(const Array& x, Options options) {
  return logsumexp(x, {}, options);
}
// exp(x) / sum(exp(x)), and its logarithm, without overflow.
Array softmax(const Array& x, const Axes& axes = -1);
Array log_softmax(const Array& x, const Axes& axes = -1);

}  // namespace lockstep
