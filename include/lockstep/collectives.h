// Collectives: how the devices along mesh axes exchange values in per-device code (shard_map, pmap, or vmap with an
// axis name).
//
//   Params g = pmean(grad(loss)(p, batch), "data");
//
// A value is varying or invariant over each axis, which is part of its type. psum, pmean, pmax, pmin and pbroadcast
// make it invariant; an invariant value that meets a varying one becomes varying for free, and the gradient of that is
// the psum, so gradients of replicated parameters are summed over the devices by themselves. psum, pmean, pmax and pmin
// also take trees.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tree.h"

namespace lockstep {

// One mesh axis, or several taken as one, the first being outermost. (No std::initializer_list, for the reason given at
// Axes.)
struct AxisNames {
  AxisNames(const char* name) : names{name} {}             // NOLINT: reads as an argument
  AxisNames(std::string name) : names{std::move(name)} {}  // NOLINT
  template <std::convertible_to<std::string>... T>
  requires(sizeof...(T) != 1) AxisNames(T... list) : names{std::string(std::move(list))...} {}  // NOLINT
  AxisNames(std::vector<std::string> list) : names(std::move(list)) {}                          // NOLINT
  std::vector<std::string> names;
};

// Sum, mean, greatest and least over the devices.
Array psum(const Array& x, const AxisNames& axes);
Array pmean(const Array& x, const AxisNames& axes);
Array pmax(const Array& x, const AxisNames& axes);
Array pmin(const Array& x, const AxisNames& axes);

template <class T>
concept TreeNotArray = !std::is_convertible_v<T, Array>;
template <TreeNotArray T>
T psum(const T& tree, const AxisNames& axes) {
  return tree_map([&](const Array& x) { return psum(x, axes); }, tree);
}
template <TreeNotArray T>
T pmean(const T& tree, const AxisNames& axes) {
  return tree_map([&](const Array& x) { return pmean(x, axes); }, tree);
}
template <TreeNotArray T>
T pmax(const T& tree, const AxisNames& axes) {
  return tree_map([&](const Array& x) { return pmax(x, axes); }, tree);
}
template <TreeNotArray T>
T pmin(const T& tree, const AxisNames& axes) {
  return tree_map([&](const Array& x) { return pmin(x, axes); }, tree);
}

struct GatherOptions {
  int64_t axis = 0;    // where the devices' values go
  bool tiled = false;  // one after another along that dimension, instead of along a new one
};
// The values of all devices.
Array all_gather(const Array& x, const AxisNames& axes, GatherOptions options = {});

struct ScatterOptions {
  int64_t axis = 0;    // the dimension that is dealt out
  bool tiled = false;  // a piece of it for each device, instead of one element and the dimension gone
};
// The sum over the devices, each keeping its part.
Array psum_scatter(const Array& x, const AxisNames& axes, ScatterOptions options = {});

// Dimension `split` is dealt out to the devices, and what comes from them is put together along `concat`. Tiled: both
// dimensions stay, one shorter and one longer; else `split` has the number of devices and goes, and a new dimension
// appears at `concat`.
Array all_to_all(const Array& x, const AxisNames& axes, int64_t split, int64_t concat, bool tiled = false);

// For each pair {from, to} device `to` gets the value of device `from`; the others get zeros.
Array ppermute(const Array& x, const AxisNames& axes, const std::vector<std::pair<int64_t, int64_t>>& pairs);

// The value of one device on all of them.
Array pbroadcast(const Array& x, const AxisNames& axes, int64_t source);

// The device's own place along the axes (i32), and how many there are.
Array axis_index(const AxisNames& axes);
int64_t axis_size(const AxisNames& axes);

// The same value, allowed to vary over the axes, as it is where it meets one that varies: for gradients of one's own
// instead of those summed over the devices.
Array pvary(const Array& x, const AxisNames& axes);

namespace detail {

// Does code of this thread run on each device along an axis of that name by itself?
bool is_axis_in_scope(const std::string& name);

// While it lives, collectives of this thread may name the axis. Throws Error when there is one of that name already.
class AxisScope {
 public:
  AxisScope(std::string name, int64_t size);
  ~AxisScope();
  AxisScope(const AxisScope&) = delete;
  AxisScope& operator=(const AxisScope&) = delete;
};

}  // namespace detail
}  // namespace lockstep
