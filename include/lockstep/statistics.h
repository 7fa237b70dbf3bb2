// Statistics: quantiles, reductions that ignore NaN, averages with weights, covariances; and orders of several keys. As
// in jax.numpy. Safe to call from any thread.
//
//   Array m = median(x, 0);
//   Array q = quantile(x, array({0.1f, 0.9f}), -1, {.method = "nearest"});
#pragma once

#include <concepts>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/axes.h"
#include "lockstep/operand.h"
#include "lockstep/reduce.h"

namespace lockstep {

// ---- Quantiles.

struct QuantileOptions {
  std::string_view method = "linear";  // "lower", "higher", "midpoint", "nearest", "inverted_cdf"
  bool keepdims = false;
};
// The q-quantiles, 0 <= q <= 1, of the elements along the axes; q is a scalar or a vector, whose dimension comes first
// in the result. Integers become f32. NaN propagates; the nan forms ignore it. Throws Error for an unknown method and
// for no elements.
Array quantile(const Operand& x, const Operand& q, const Axes& axes = {}, QuantileOptions = {});
Array nanquantile(const Operand& x, const Operand& q, const Axes& axes = {}, QuantileOptions = {});
// The same with q in percent.
Array percentile(const Operand& x, const Operand& q, const Axes& axes = {}, QuantileOptions = {});
Array nanpercentile(const Operand& x, const Operand& q, const Axes& axes = {}, QuantileOptions = {});
// The 0.5-quantiles.
Array median(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array nanmedian(const Operand& x, const Axes& axes = {}, ReduceOptions = {});

// ---- Reductions that ignore NaN. Of no numbers: 0 (sum), 1 (prod), else NaN.

Array nansum(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array nanprod(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array nanmax(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array nanmin(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array nanmean(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
Array nanvar(const Operand& x, const Axes& axes = {}, VarianceOptions = {});
Array nanstd(const Operand& x, const Axes& axes = {}, VarianceOptions = {});
// -1 of no numbers.
Array nanargmax(const Operand& x, std::optional<int64_t> axis = {}, ReduceOptions = {});
Array nanargmin(const Operand& x, std::optional<int64_t> axis = {}, ReduceOptions = {});
Array nancumsum(const Operand& x, int64_t axis);
Array nancumprod(const Operand& x, int64_t axis);

// ---- Other reductions.

// The mean with these weights, of x's shape or one for each position of a single axis; {average, sum of the weights}.
Array average(const Operand& x, const Axes& axes = {});
Array average(const Operand& x, const Axes& axes, const Operand& weights);
std::pair<Array, Array> average_and_weight(const Operand& x, const Axes& axes, const Operand& weights);
// The greatest less the least element.
Array ptp(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
// The number of nonzero elements, i32.
Array count_nonzero(const Operand& x, const Axes& axes = {}, ReduceOptions = {});
// {mean, variance} in one call.
std::pair<Array, Array> mean_and_var(const Operand& x, const Axes& axes = {}, VarianceOptions = {});

// Options without axes: nansum(x, {.keepdims = true}), nanvar(x, {.ddof = 1}).
#define LOCKSTEP_OPTIONS_ALONE(function, Struct)      \
  template <std::same_as<Struct> Options = Struct>    \
  Array function(const Operand& x, Options options) { \
    return function(x, {}, options);                  \
  }
LOCKSTEP_OPTIONS_ALONE(median, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nanmedian, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nansum, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nanprod, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nanmax, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nanmin, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nanmean, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nanvar, VarianceOptions)
LOCKSTEP_OPTIONS_ALONE(nanstd, VarianceOptions)
LOCKSTEP_OPTIONS_ALONE(nanargmax, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(nanargmin, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(ptp, ReduceOptions)
LOCKSTEP_OPTIONS_ALONE(count_nonzero, ReduceOptions)
#undef LOCKSTEP_OPTIONS_ALONE

struct CovarianceOptions {
  bool rowvar = true;                // rows are variables and columns observations
  bool bias = false;                 // divide by the number of observations n, not by n - 1
  std::optional<int64_t> ddof = {};  // instead of `bias`: divide by n - ddof
  Array fweights = {};               // how often each observation counts: integers
  Array aweights = {};               // the importance of each observation
};
// The covariances of the variables in x (and y), and their correlation coefficients.
Array cov(const Operand& x, const CovarianceOptions& options = {});
Array cov(const Operand& x, const Operand& y, const CovarianceOptions& options = {});
Array corrcoef(const Operand& x, bool rowvar = true);
Array corrcoef(const Operand& x, const Operand& y, bool rowvar = true);

// ---- Orders.

// The i32 indices that sort by several keys: the last is the primary one. Stable.
Array lexsort(const Operands& keys, int64_t axis = -1);
// The element that sorting would put at position `kth` of the axis is there; none before it is greater, none after it
// is less. NaN is greatest. argpartition: the i32 indices.
Array partition(const Operand& x, int64_t kth, int64_t axis = -1);
Array argpartition(const Operand& x, int64_t kth, int64_t axis = -1);

}  // namespace lockstep
