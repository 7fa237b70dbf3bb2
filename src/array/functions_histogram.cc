// Functions that count elements in bins.
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/index.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/search.h"
#include "ops/index_ops.h"

namespace lockstep {
namespace {

DType edge_dtype(const Array& x) { return detail::floating_of(x.dtype()); }

void check_edges(const char* what, const Array& edges) {
  if (edges.rank() != 1 || edges.size() < 2)
    throw_error("{}: the edges are {}; give one dimension with at least 2 of them", what, to_string(edges.type()));
}

// The bin of each element; one less than 0, or the number of bins, outside of them.
Array bin_of(const Array& x, const Array& edges) {
  const int64_t last = edges.size() - 1;
  const Array after = searchsorted(edges, x, Side::right);
  return where(x == at(edges, last), last, where(isnan(x), 0, after)) - 1;
}

Array weights_for(const char* what, const Array& weights, const Array& x) {
  const DType dtype = edge_dtype(x);
  if (!weights.defined()) return ones({x.size()}, dtype);
  if (weights.shape() != x.shape())
    throw_error("{}: weights {} for elements {}; the shapes must be equal", what, to_string(weights.shape()),
                to_string(x.shape()));
  return ravel(weights.dtype() == dtype || is_floating(weights.dtype()) ? weights : astype(weights, dtype));
}

// Adds weights in `n` bins. Bins out of range are left out.
Array sum_in_bins(const Array& bins, const Array& weights, int64_t n) { return segment_sum(weights, bins, n); }

Array bin_widths(const Array& edges) {
  const int64_t n = edges.size();
  return slice(edges, {1}, {n}) - slice(edges, {0}, {n - 1});
}

}  // namespace

Array bincount(const Operand& x, const BincountOptions& options) {
  if (!is_integer(x.dtype()) || x.rank() != 1)
    throw_error("bincount: x is {}; it must be integers of one dimension: use astype(ravel(x), i32)",
                to_string(x.type()));
  if (options.weights.defined() && options.weights.shape() != x.shape())
    throw_error("bincount: weights {} for x {}; the shapes must be equal", to_string(options.weights.shape()),
                to_string(x.shape()));
  if (options.minlength < 0) throw_error("bincount: minlength {}; it must not be negative", options.minlength);
  int64_t length = options.length.value_or(0);
  if (!options.length) {
    if (x.is_traced()) throw_error("bincount: x is traced, so the greatest element is not known; pass {{.length = n}}");
    length = std::max(x.size() == 0 ? 0 : max(astype(x, i64)).item<int64_t>() + 1, options.minlength);
  }
  const Array places = is_signed(x.dtype()) ? maximum(x, 0) : Array(x);
  return segment_sum(options.weights.defined() ? options.weights : ones({x.size()}, index_dtype(x.size())), places,
                     std::max(length, options.minlength));
}

Array histogram_bin_edges(const Operand& x, int64_t bins, const HistogramOptions& options) {
  if (bins < 1) throw_error("histogram_bin_edges: {} bins; give at least 1", bins);
  if (options.range && !(options.range->first <= options.range->second))
    throw_error("histogram_bin_edges: the range is {} to {}; its end must not be less than its begin",
                options.range->first, options.range->second);
  const DType dtype = edge_dtype(x);
  Array low, high;
  if (options.range || x.size() == 0) {
    const auto [from, to] = options.range.value_or(std::pair{0.0, 1.0});
    low = full({}, from, dtype);
    high = full({}, to, dtype);
  } else {
    low = astype(min(x), dtype);
    high = astype(max(x), dtype);
  }
  const Array half = where(low == high, full({}, 0.5, dtype), full({}, 0, dtype));
  low = low - half;
  high = high + half;
  const Array step = arange(bins, dtype) / static_cast<double>(bins);
  return concatenate({low * (1 - step) + high * step, reshape(high, {1})});
}

std::pair<Array, Array> histogram(const Operand& x, const Operand& edges, const HistogramOptions& options) {
  check_edges("histogram", edges);
  const Array flat = ravel(astype(x, edge_dtype(x))), own = astype(edges, promote(flat.dtype(), edges.dtype()));
  const Array weights = weights_for("histogram", options.weights, x);
  Array counts = sum_in_bins(bin_of(flat, own), weights, edges.size() - 1);
  if (options.density) counts = counts / bin_widths(own) / sum(counts);
  return {counts, edges};
}

std::pair<Array, Array> histogram(const Operand& x, int64_t bins, const HistogramOptions& options) {
  return histogram(x, histogram_bin_edges(x, bins, options), options);
}

Histogram2d histogram2d(const Operand& x, const Operand& y, int64_t bins, const Operand& weights, bool density) {
  if (x.rank() != 1 || x.shape() != y.shape())
    throw_error("histogram2d: x is {} and y is {}; both must have one dimension of the same extent",
                to_string(x.shape()), to_string(y.shape()));
  Histogram2d out;
  out.x_edges = histogram_bin_edges(x, bins);
  out.y_edges = histogram_bin_edges(y, bins);
  const Array i = bin_of(astype(x, edge_dtype(x)), out.x_edges), j = bin_of(astype(y, edge_dtype(y)), out.y_edges);
  const Array n = bins, outside = (i < 0) | (j < 0) | (i >= n) | (j >= n);
  const Array place = where(outside, -1, i * n + j);
  out.counts = reshape(sum_in_bins(place, weights_for("histogram2d", weights, x), bins * bins), {bins, bins});
  if (density) {
    const Array area = reshape(bin_widths(out.x_edges), {bins, 1}) * reshape(bin_widths(out.y_edges), {1, bins});
    out.counts = out.counts / area / sum(out.counts);
  }
  return out;
}

}  // namespace lockstep
