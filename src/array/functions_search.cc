// Searches, selections by a condition, and functions of arrays as sets.
#include <bit>
#include <functional>

#include "array/apply.h"
#include "array/index_plan.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/search.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;

// The number of results: as given, or `count`, a scalar, which must have a value.
int64_t size_for(const char* what, const SizeOptions& options, const Array& count) {
  if (options.size && *options.size < 0) throw_error("{}: size {}; the size must not be negative", what, *options.size);
  if (options.size) return *options.size;
  if (count.is_traced())
    throw_error("{}: the array is traced, so the number of results is not known; pass {{.size = n}}", what);
  return count.item<int64_t>();
}

Array fill_of(const SizeOptions& options, const Array& otherwise) {
  return options.fill_value.defined() ? options.fill_value : otherwise;
}

Array count_of(const Array& mask) { return sum(mask); }

// The first `size` positions where a mask of one dimension is true; the length of the mask after the last one.
Array true_places(const Array& mask, int64_t size) {
  const int64_t n = mask.size();
  return apply1("nonzero", {mask}, [&](Builder& b, const Values& v) {
    const DType dtype = index_dtype(n);
    const Value number = cumsum(cast(v[0], dtype), 0);
    const Value to = select(v[0], sub(number, ones_like(number)), full_like(number, static_cast<double>(size)));
    return scatter(full(b, {dtype, {size}}, n), to, index_iota(b, {n}, 0), "set", 0, 0, true);
  });
}

// As many of them as the options or else the mask says.
Array found_places(const char* what, const Array& mask, const SizeOptions& options) {
  const int64_t n = mask.size();
  if (index_dtype(n) == i32 || mask.is_traced())
    return true_places(mask, size_for(what, options, options.size ? Array(0) : count_of(mask)));
  // On the host: counts in i64 would take eight times the memory of the mask.
  const Array found = detail::places_of(mask)[0];
  const int64_t size = size_for(what, options, Array(found.size()));
  if (size <= found.size()) return slice(found, {0}, {size});
  return concatenate({found, full({size - found.size()}, n, i64)});
}

// The elements x[places], and the fill value where a place is beyond the end.
Array select_places(const Array& x, const Array& places, int64_t axis, const Array& fill) {
  const int64_t n = x.shape(axis);
  Shape shape(x.shape().size(), 1);
  shape[detail::at_axis(axis)] = places.size();
  Shape result = x.shape();
  result[detail::at_axis(axis)] = places.size();
  const Array wide = broadcast_to(astype(fill, x.dtype()), result);
  return n == 0 ? wide : where(reshape(places < Array(n), shape), take(x, places, axis), wide);
}

Array to_mask(const Array& x) { return x.dtype() == boolean ? x : x != 0; }

// ---- Sets

// The flattened array in ascending order, and what makes sets of it.
struct Runs {
  Array sorted, order;  // order: the position in the array
  Array starts;         // whether an element differs from the one before it
  Array group;          // the number of its value

  explicit Runs(const Array& x) {
    const Array flat = ravel(x);
    order = argsort(flat);
    sorted = flat.size() == 0 ? flat : take(flat, order);
    const int64_t n = flat.size();
    if (n == 0) {
      starts = zeros({0}, boolean);
    } else {
      const Array after = slice(sorted, {1}, {n}), before = slice(sorted, {0}, {n - 1});
      Array differs = after != before;
      if (is_floating(x.dtype())) differs = differs & ~(isnan(after) & isnan(before));
      starts = concatenate({ones({1}, boolean), differs});
    }
    group = cumsum(astype(starts, i32), 0) - 1;
  }
};

// What results are filled with up to their size, as in JAX, if no value is given.
enum class Filling { zeros, least };

// The different elements of x for which `keep` of them is true.
Array chosen_elements(const char* what, const Array& x, const std::function<Array(const Array&)>& keep,
                      const SizeOptions& options, Filling filling) {
  const Runs runs(x);
  const Array mask = runs.starts & keep(runs.sorted), n = count_of(mask);
  const int64_t size = size_for(what, options, n);
  const Array out = select_places(runs.sorted, true_places(mask, size), 0, fill_of(options, 0));
  if (filling == Filling::zeros || options.fill_value.defined() || size == 0) return out;
  return where(arange(size) < n, out, at(out, 0));
}

std::pair<Array, Array> flat_alike(const Array& a, const Array& b) {
  const Array both[] = {a, b};
  const DType dtype = detail::common_dtype(both);
  return {ravel(astype(a, dtype)), ravel(astype(b, dtype))};
}

// a < b, with NaN greater than all numbers.
Value sorts_before(Value a, Value b) {
  const Value less = lt(a, b);
  return is_floating(a.dtype()) ? bit_or(less, bit_and(ne(b, b), eq(a, a))) : less;
}

// The number of elements of a, sorted, that come before each of v, by bisection.
Value count_before(Value a, Value v, Side side) {
  const int64_t n = a.shape()[0];
  const auto number = [&](Value like, int64_t x) {
    return broadcast(full(like.builder(), {like.dtype(), {}}, x), like.shape(), {});
  };
  Value found = full(a.builder(), {index_dtype(n), v.shape()}, 0);
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); step > 0; step /= 2) {
    const Value next = found + number(found, step);
    const Value last = gather(a, next - number(next, 1), 0);
    const Value goes_on = side == Side::left ? sorts_before(last, v) : bit_not(sorts_before(v, last));
    found = select(bit_and(le(next, number(next, n)), goes_on), next, found);
  }
  return found;
}

}  // namespace

Array flatnonzero(const Operand& x, const SizeOptions& options) {
  const Array places = found_places("flatnonzero", ravel(to_mask(x)), options);
  return where(places < Array(x.size()), places, astype(fill_of(options, 0), places.dtype()));
}

std::vector<Array> nonzero(const Operand& x, const SizeOptions& options) {
  if (x.rank() == 0)
    throw_error("nonzero: {} has no dimensions; use flatnonzero, or reshape(x, {{1}})", to_string(x.type()));
  const Array places = found_places("nonzero", ravel(to_mask(x)), options), inside = places < Array(x.size());
  const std::vector<Array> each = unravel_index(places, x.shape());
  std::vector<Array> out;
  for (size_t d = 0; d < each.size(); ++d) {
    const DType dtype = index_dtype(x.shape()[d]);
    out.push_back(where(inside, astype(each[d], dtype), astype(fill_of(options, 0), dtype)));
  }
  return out;
}

Array argwhere(const Operand& x, const SizeOptions& options) {
  return x.rank() == 0 ? zeros({size_for("argwhere", options, count_of(ravel(to_mask(x)))), 0}, i32)
                       : stack(nonzero(x, options), 1);
}

Array compress(const Operand& condition, const Operand& x, std::optional<int64_t> axis, const SizeOptions& options) {
  if (condition.rank() != 1)
    throw_error("compress: the condition is {}; it must have one dimension", to_string(condition.type()));
  if (!axis) return compress(condition, ravel(x), 0, options);
  const int64_t along = detail::axis_of("compress", *axis, x.shape());
  if (condition.size() > x.shape(along))
    throw_error("compress: a condition {} for dimension {} of {}; it must not be longer", to_string(condition.shape()),
                along, to_string(x.shape()));
  const int64_t left = x.shape(along) - condition.size();
  const Array mask = concatenate({to_mask(condition), zeros({left}, boolean)});
  return select_places(x, found_places("compress", mask, options), along, fill_of(options, 0));
}

Array extract(const Operand& condition, const Operand& x, const SizeOptions& options) {
  if (condition.size() != x.size())
    throw_error("extract: a condition {} for {}; both must have the same number of elements",
                to_string(condition.shape()), to_string(x.shape()));
  return compress(ravel(condition), ravel(x), 0, options);
}

Array searchsorted(const Operand& a, const Operand& v, Side side) {
  if (a.rank() != 1)
    throw_error("searchsorted: the sorted array is {}; it must have one dimension", to_string(a.type()));
  const Array both[] = {a, v};
  const DType dtype = detail::common_dtype(both);
  return apply1(
      "searchsorted", {a, v},
      [&](Builder&, const Values& x) {
        return count_before(detail::convert(x[0], dtype), detail::convert(x[1], dtype), side);
      },
      dtype);
}

Array digitize(const Operand& x, const Operand& bins, bool right) {
  if (bins.rank() != 1) throw_error("digitize: the bins are {}; they must have one dimension", to_string(bins.type()));
  const int64_t n = bins.size();
  if (n == 0) return zeros(x.shape(), i32);
  const Side side = right ? Side::left : Side::right;
  const Array up = searchsorted(bins, x, side), down = Array(n) - searchsorted(flip(bins), x, side);
  return where(at(bins, -1) >= at(bins, 0), up, down);
}

Array unique(const Operand& x, const SizeOptions& options) { return unique_all(x, options).values; }

Unique unique_all(const Operand& x, const SizeOptions& options) {
  const Runs runs(x);
  const int64_t n = x.size(), size = size_for("unique", options, count_of(runs.starts));
  const Array least = n == 0 ? Array(0) : at(runs.sorted, 0), first = n == 0 ? Array(0) : at(runs.order, 0);
  const Array places = true_places(runs.starts, size);
  Unique out;
  out.values = select_places(runs.sorted, places, 0, fill_of(options, least));
  out.indices = select_places(runs.order, places, 0, first);
  out.inverse_indices = reshape(zeros({n}, i32).at(runs.order).set(runs.group, {.unique_indices = true}), x.shape());
  out.counts = bincount(runs.group, {.length = size});
  return out;
}

Array isin(const Operand& element, const Operand& test_elements, bool, bool invert) {
  const auto [e, t] = flat_alike(element, test_elements);
  Array found = zeros(element.shape(), boolean);
  if (t.size() > 0) {
    const Array sorted = sort(t);
    found = reshape(take(sorted, searchsorted(sorted, e)) == e, element.shape());
  }
  return invert ? ~found : found;
}

Array union1d(const Operand& a, const Operand& b, const SizeOptions& options) {
  const auto [x, y] = flat_alike(a, b);
  return unique(concatenate({x, y}), options);
}

Array intersect1d(const Operand& a, const Operand& b, const SizeOptions& options) {
  const auto [x, y] = flat_alike(a, b);
  return chosen_elements(
      "intersect1d", x, [other = y](const Array& e) { return isin(e, other); }, options, Filling::least);
}

Array setdiff1d(const Operand& a, const Operand& b, const SizeOptions& options) {
  const auto [x, y] = flat_alike(a, b);
  return chosen_elements(
      "setdiff1d", x, [other = y](const Array& e) { return isin(e, other, false, true); }, options, Filling::zeros);
}

Array setxor1d(const Operand& a, const Operand& b, const SizeOptions& options) {
  const auto [x, y] = flat_alike(a, b);
  return chosen_elements(
      "setxor1d", concatenate({x, y}), [one = x, two = y](const Array& e) { return isin(e, one) ^ isin(e, two); },
      options, Filling::least);
}

}  // namespace lockstep
