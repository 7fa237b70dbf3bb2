// Functions that search, count and compare elements as sets. Safe to call from any thread.
//
//   Array place = searchsorted(edges, x);
//   Array used = unique(ids);
//   Array few = unique(ids, {.size = 8, .fill_value = -1});     // in a traced function
//
// The number of results of nonzero(), unique() and the like depends on the data. Without `size` it is read from the
// array, which must not be traced. With `size` the first that many results are returned, and `fill_value` after the
// last one.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

struct SizeOptions {
  std::optional<int64_t> size = {};
  Array fill_value = {};  // default: below
};

// For each dimension of x, the indices of its nonzero elements, in row-major order: i32, or i64 for an extent above
// 2^31 - 1. The default fill value is 0.
std::vector<Array> nonzero(const Operand& x, const SizeOptions& options = {});
// The same for x flattened.
Array flatnonzero(const Operand& x, const SizeOptions& options = {});
// The same as rows of indices, [size, x.rank()].
Array argwhere(const Operand& x, const SizeOptions& options = {});

// The slices of x along an axis, or the elements of x flattened, for which `condition` of one dimension is true.
// Slices beyond its end are left out. The default fill value is 0.
Array compress(const Operand& condition, const Operand& x, std::optional<int64_t> axis = {},
               const SizeOptions& options = {});
// The elements of x flattened for which `condition`, of the same shape, is true.
Array extract(const Operand& condition, const Operand& x, const SizeOptions& options = {});

// Where elements equal to the sorted ones go: before them, or after them.
enum class Side : uint8_t { left, right };

// The indices at which elements of `v` would be inserted into `a`, of one dimension and sorted: i32, or i64 if `a` has
// more than 2^31 - 1 elements. NaN is greater than all numbers. Takes log2 of the length of `a` steps.
Array searchsorted(const Operand& a, const Operand& v, Side side = Side::left);
// The index of the bin of each element: bins[i - 1] <= x < bins[i], or bins[i - 1] < x <= bins[i] if `right`. The
// bins may also be in descending order.
Array digitize(const Operand& x, const Operand& bins, bool right = false);

// The different elements of x in ascending order. NaN are equal to each other. The default fill value is the least
// element.
Array unique(const Operand& x, const SizeOptions& options = {});
struct Unique {
  Array values;
  Array indices;          // of the first occurrence in x flattened
  Array inverse_indices;  // of each element of x in `values`, in the shape of x
  Array counts;           // of each value; 0 for fill values
};
Unique unique_all(const Operand& x, const SizeOptions& options = {});

// Whether each element of `element` is among `test_elements`, or is not if `invert`. `assume_unique` is a promise
// that is not needed.
Array isin(const Operand& element, const Operand& test_elements, bool assume_unique = false, bool invert = false);
// The different elements, in ascending order, of both arrays together, of those in both, of those in the first but
// not in the second, and of those in one of them only. The default fill value is the least of them, 0 for
// setdiff1d.
Array union1d(const Operand& a, const Operand& b, const SizeOptions& options = {});
Array intersect1d(const Operand& a, const Operand& b, const SizeOptions& options = {});
Array setdiff1d(const Operand& a, const Operand& b, const SizeOptions& options = {});
Array setxor1d(const Operand& a, const Operand& b, const SizeOptions& options = {});

struct BincountOptions {
  Array weights = {};  // default: every element counts 1
  int64_t minlength = 0;
  // The length of the result. Default: the greatest element plus 1, at least minlength; then x must not be traced.
  std::optional<int64_t> length = {};
};
// How often each integer 0, 1, ... is in x. Negative integers count as 0; those beyond the length are left out.
Array bincount(const Operand& x, const BincountOptions& options = {});

struct HistogramOptions {
  std::optional<std::pair<double, double>> range = {};  // default: from the least to the greatest element
  Array weights = {};                                   // of the shape of x
  bool density = false;                                 // the integral over the bins is 1
};
// The bounds of `bins` equal bins, f32 for integers.
Array histogram_bin_edges(const Operand& x, int64_t bins = 10, const HistogramOptions& options = {});
// The number of elements in each bin, as floats, and the bounds of the bins. The last bin includes its end;
// elements outside, and NaN, are left out.
std::pair<Array, Array> histogram(const Operand& x, int64_t bins = 10, const HistogramOptions& options = {});
std::pair<Array, Array> histogram(const Operand& x, const Operand& edges, const HistogramOptions& options = {});
struct Histogram2d {
  Array counts;  // [x bins, y bins]
  Array x_edges, y_edges;
};
// The same for pairs (x[i], y[i]).
Histogram2d histogram2d(const Operand& x, const Operand& y, int64_t bins = 10, const Operand& weights = {},
                        bool density = false);

}  // namespace lockstep
