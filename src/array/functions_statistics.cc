#include "lockstep/statistics.h"

#include <algorithm>
#include <limits>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/arrange.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/linalg.h"
#include "lockstep/matrices.h"
#include "lockstep/numeric.h"
#include "lockstep/rearrange.h"
#include "ops/dims.h"
#include "ops/index_ops.h"

namespace lockstep {
namespace {

using detail::at_axis;
using detail::axes_of;
using detail::axis_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool has_nan(const Array& x) { return is_floating(x.dtype()); }
Array floating_numbers(const Array& x) { return is_floating(x.dtype()) ? x : astype(x, f32); }

// Percent of x as fractions, with the digits of x.
Array fraction_of(const Array& q, const Array& x) {
  return (x.dtype() == f64 ? astype(q, f64) : floating_numbers(q)) / 100;
}

// x with the axes joined into a last dimension.
Array lines_of(const char* what, const Array& x, const Axes& axes) {
  const std::vector<int64_t> over = axes_of(what, axes, x.shape());
  std::vector<int64_t> order = detail::other_axes(x.rank(), over);
  Shape shape = without(x.shape(), over);
  int64_t n = 1;
  for (int64_t axis : over) n *= x.shape(axis);
  order.insert(order.end(), over.begin(), over.end());
  shape.push_back(n);
  return reshape(transpose(x, order), shape);
}

// The reduced axes as dimensions of extent 1, behind `leading` dimensions.
Array with_axes(const char* what, const Array& reduced, const Array& x, const Axes& axes, int64_t leading) {
  Shape shape(reduced.shape().begin(), reduced.shape().begin() + leading);
  const std::vector<int64_t> over = axes_of(what, axes, x.shape());
  for (int64_t d = 0; d < x.rank(); ++d) shape.push_back(contains(over, d) ? 1 : x.shape(d));
  return reshape(reduced, shape);
}

// Elements of the lines at these places [k, outer...], which are rounded numbers.
Array picked(const Array& lines, const Array& places) {
  return moveaxis(take_along_axis(lines, moveaxis(astype(places, i32), 0, -1), -1), -1, 0);
}

Array between(std::string_view method, const Array& sorted, const Array& place, const Array& last) {
  const auto limited = [&](const Array& p) { return clip(p, 0, last); };
  if (method == "inverted_cdf") return picked(sorted, limited(ceil(place) - 1));
  if (method == "nearest") return picked(sorted, limited(ceil(place - 0.5)));  // a tie goes to the lower one
  const Array low = floor(place), high = ceil(place);
  if (method == "lower") return picked(sorted, limited(low));
  if (method == "higher") return picked(sorted, limited(high));
  const Array below = picked(sorted, limited(low)), above = picked(sorted, limited(high));
  if (method == "midpoint") return (below + above) * 0.5;
  const Array weight = astype(place - low, sorted.dtype());
  return below * (1 - weight) + above * weight;
}

Array quantiles(const char* what, const Array& x, const Array& q, const Axes& axes, QuantileOptions options,
                bool ignore_nan) {
  static constexpr std::string_view kMethods[] = {"linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"};
  if (std::ranges::find(kMethods, options.method) == std::end(kMethods))
    throw_error("{}: no method is called \"{}\"; use linear, lower, higher, midpoint, nearest or inverted_cdf", what,
                options.method);
  if (q.rank() > 1) throw_error("{}: q is {}; it must be a scalar or a vector", what, to_string(q.type()));
  const Array numbers = floating_numbers(x), lines = lines_of(what, numbers, axes);
  const int64_t n = lines.shape(-1);
  if (n == 0)
    throw_error("{}: {} has no elements along the axes; reduce over nonempty dimensions", what, to_string(x.shape()));
  const Array sorted = sort(lines, -1);
  // How many elements of each line count, and the places among them, computed with the digits of f32 at least.
  const DType wide = numbers.dtype() == f64 ? f64 : f32;
  const Array missing = sum(isnan(lines), -1);
  Shape column(lines.shape().size(), 1);
  column[0] = q.rank() == 0 ? 1 : q.shape(0);
  const Array fraction = reshape(astype(q, wide), column);
  Array total = ignore_nan ? astype(n - missing, wide) : full(missing.shape(), static_cast<double>(n), wide);
  total = expand_dims(total, 0);
  const Array place = options.method == "inverted_cdf" ? fraction * total : fraction * (total - 1);
  Array out = between(options.method, sorted, place, maximum(total - 1, 0));
  out = where(expand_dims(ignore_nan ? missing == n : missing > 0, 0), kNan, out);
  if (q.rank() == 0) out = at(out, 0);
  return options.keepdims ? with_axes(what, out, x, axes, q.rank()) : out;
}

// Where x is a number; undefined if all elements are.
Array numbers_in(const Array& x) { return has_nan(x) ? ~isnan(x) : Array(); }

Array and_mask(const Array& a, const Array& b) { return !a.defined() ? b : !b.defined() ? a : a & astype(b, boolean); }

template <class Options>
Options of_numbers(Options options, const Array& x) {
  options.where = and_mask(numbers_in(x), options.where);
  return options;
}

Array nan_extreme(const Array& x, const Axes& axes, ReduceOptions options, double start,
                  Array (*f)(const Operand&, const Axes&, ReduceOptions)) {
  if (!has_nan(x)) return f(x, axes, options);
  const bool open = options.initial.defined();
  const Array counted = and_mask(numbers_in(x), options.where);
  if (!open) options.initial = start;
  options.where = counted;
  const Array y = f(x, axes, options);
  if (open) return y;
  return where(any(counted, axes, {.keepdims = options.keepdims}), y, kNan);
}

Array nan_place(const Array& x, std::optional<int64_t> axis, ReduceOptions options, double worst,
                Array (*f)(const Operand&, std::optional<int64_t>, ReduceOptions)) {
  if (!has_nan(x)) return f(x, axis, options);
  const Array place = f(where(isnan(x), worst, x), axis, options);
  const Axes axes = axis ? Axes(*axis) : Axes();
  return where(all(isnan(x), axes, {.keepdims = options.keepdims}), -1, place);
}

Array row_of_variables(const Array& x, bool rowvar) {
  if (x.rank() > 2)
    throw_error("cov: {} has more than two dimensions; pass a vector or a matrix", to_string(x.shape()));
  const Array rows = atleast_2d(floating_numbers(x));
  return rowvar || x.rank() < 2 ? rows : transpose(rows);
}

}  // namespace

Array quantile(const Operand& x, const Operand& q, const Axes& axes, QuantileOptions options) {
  return quantiles("quantile", x, q, axes, options, false);
}
Array nanquantile(const Operand& x, const Operand& q, const Axes& axes, QuantileOptions options) {
  return quantiles("nanquantile", x, q, axes, options, true);
}
Array percentile(const Operand& x, const Operand& q, const Axes& axes, QuantileOptions options) {
  return quantiles("percentile", x, fraction_of(q, x), axes, options, false);
}
Array nanpercentile(const Operand& x, const Operand& q, const Axes& axes, QuantileOptions options) {
  return quantiles("nanpercentile", x, fraction_of(q, x), axes, options, true);
}
Array median(const Operand& x, const Axes& axes, ReduceOptions options) {
  return quantiles("median", x, 0.5, axes, {.method = "midpoint", .keepdims = options.keepdims}, false);
}
Array nanmedian(const Operand& x, const Axes& axes, ReduceOptions options) {
  return quantiles("nanmedian", x, 0.5, axes, {.method = "midpoint", .keepdims = options.keepdims}, true);
}

Array nansum(const Operand& x, const Axes& axes, ReduceOptions options) { return sum(x, axes, of_numbers(options, x)); }
Array nanprod(const Operand& x, const Axes& axes, ReduceOptions options) {
  return prod(x, axes, of_numbers(options, x));
}
Array nanmean(const Operand& x, const Axes& axes, ReduceOptions options) {
  return mean(x, axes, of_numbers(options, x));
}
Array nanmax(const Operand& x, const Axes& axes, ReduceOptions options) {
  return nan_extreme(x, axes, options, -std::numeric_limits<double>::infinity(), max);
}
Array nanmin(const Operand& x, const Axes& axes, ReduceOptions options) {
  return nan_extreme(x, axes, options, std::numeric_limits<double>::infinity(), min);
}
Array nanvar(const Operand& x, const Axes& axes, VarianceOptions options) {
  options = of_numbers(options, x);
  if (!options.where.defined()) return var(x, axes, options);
  const Array n = count_nonzero(broadcast_to(options.where, x.shape()), axes, {.keepdims = options.keepdims});
  return where(n > options.ddof, var(x, axes, options), kNan);
}
Array nanstd(const Operand& x, const Axes& axes, VarianceOptions options) { return sqrt(nanvar(x, axes, options)); }
Array nanargmax(const Operand& x, std::optional<int64_t> axis, ReduceOptions options) {
  return nan_place(x, axis, options, -std::numeric_limits<double>::infinity(), argmax);
}
Array nanargmin(const Operand& x, std::optional<int64_t> axis, ReduceOptions options) {
  return nan_place(x, axis, options, std::numeric_limits<double>::infinity(), argmin);
}
Array nancumsum(const Operand& x, int64_t axis) { return cumsum(has_nan(x) ? where(isnan(x), 0, x) : Array(x), axis); }
Array nancumprod(const Operand& x, int64_t axis) {
  return cumprod(has_nan(x) ? where(isnan(x), 1, x) : Array(x), axis);
}

Array average(const Operand& x, const Axes& axes) { return mean(x, axes); }
Array average(const Operand& x, const Axes& axes, const Operand& weights) {
  return average_and_weight(x, axes, weights).first;
}

std::pair<Array, Array> average_and_weight(const Operand& x, const Axes& axes, const Operand& weights) {
  Array factor = floating_numbers(weights);
  if (weights.shape() != x.shape()) {
    const std::vector<int64_t> over = axes_of("average", axes, x.shape());
    if (over.size() != 1 || weights.shape() != Shape{x.shape(over[0])})
      throw_error("average: weights {} for {}; they must have its shape, or be a vector along a single axis",
                  to_string(weights.shape()), to_string(x.shape()));
    Shape apart(x.shape().size(), 1);
    apart[at_axis(over[0])] = weights.size();
    factor = reshape(factor, apart);
  }
  const Array total = sum(broadcast_to(factor, x.shape()), axes);
  return {sum(floating_numbers(x) * factor, axes) / total, total};
}

Array ptp(const Operand& x, const Axes& axes, ReduceOptions options) {
  return max(x, axes, options) - min(x, axes, options);
}

Array count_nonzero(const Operand& x, const Axes& axes, ReduceOptions options) { return sum(x != 0, axes, options); }

std::pair<Array, Array> mean_and_var(const Operand& x, const Axes& axes, VarianceOptions options) {
  return {mean(x, axes, {.keepdims = options.keepdims, .where = options.where}), var(x, axes, options)};
}

Array cov(const Operand& x, const CovarianceOptions& options) {
  const Array rows = row_of_variables(x, options.rowvar);
  const int64_t n = rows.shape(1);
  Array weight;
  const auto add_weight = [&](const Array& more, const char* name) {
    if (!more.defined()) return;
    if (more.shape() != Shape{n})
      throw_error("cov: {} {} for {} observations; pass one for each", name, to_string(more.type()), n);
    const Array factor = astype(more, rows.dtype());
    weight = weight.defined() ? weight * factor : factor;
  };
  add_weight(options.fweights, "fweights");
  add_weight(options.aweights, "aweights");
  const Array total = weight.defined() ? sum(weight) : full({}, static_cast<double>(n), rows.dtype());
  const Array center = weight.defined() ? sum(rows * weight, 1) / total : mean(rows, 1);
  const int64_t ddof = options.ddof.value_or(options.bias ? 0 : 1);
  Array divisor = total - ddof;
  if (weight.defined() && options.aweights.defined() && ddof != 0)
    divisor = total - static_cast<double>(ddof) * sum(weight * astype(options.aweights, rows.dtype())) / total;
  const Array centered = rows - expand_dims(center, 1);
  const Array right = weight.defined() ? centered * weight : centered;
  return squeeze(matmul(centered, transpose(right)) / maximum(divisor, 0));
}

Array cov(const Operand& x, const Operand& y, const CovarianceOptions& options) {
  CovarianceOptions rows = options;
  rows.rowvar = true;
  return cov(concatenate({row_of_variables(x, options.rowvar), row_of_variables(y, options.rowvar)}, 0), rows);
}

Array corrcoef(const Operand& x, bool rowvar) {
  const Array c = cov(x, CovarianceOptions{.rowvar = rowvar});
  if (c.rank() == 0) return c / c;
  const Array sd = sqrt(diagonal(c));
  return clip(c / expand_dims(sd, 1) / expand_dims(sd, 0), -1, 1);
}

Array corrcoef(const Operand& x, const Operand& y, bool rowvar) {
  return corrcoef(concatenate({row_of_variables(x, rowvar), row_of_variables(y, rowvar)}, 0), true);
}

Array lexsort(const Operands& keys, int64_t axis) {
  if (keys.empty()) throw_error("lexsort: no keys given; pass at least one");
  for (const Array& key : keys)
    if (key.shape() != keys[0].shape())
      throw_error("lexsort: keys {} and {}; all must have one shape", to_string(keys[0].shape()),
                  to_string(key.shape()));
  // Stable sorts, from the least important key to the primary one.
  Array order = argsort(keys[0], axis);
  for (size_t i = 1; i < keys.size(); ++i)
    order = take_along_axis(order, argsort(take_along_axis(keys[i], order, axis), axis), axis);
  return order;
}

Array partition(const Operand& x, int64_t kth, int64_t axis) {
  return take_along_axis(x, argpartition(x, kth, axis), axis);
}

Array argpartition(const Operand& x, int64_t kth, int64_t axis) {
  const int64_t along = axis_of("argpartition", axis, x.shape()), n = x.shape(along);
  const int64_t k = kth < 0 ? kth + n : kth;
  if (k < 0 || k >= n)
    throw_error("argpartition: position {} is out of range for dimension {} of {}; valid positions: {} to {}", kth,
                along, to_string(x.shape()), -n, n - 1);
  return argsort(x, along);
}

}  // namespace lockstep
