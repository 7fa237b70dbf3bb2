// Collectives: communication between the devices along mesh axes, for per-device code (shard_map, pmap, or
// vmap with an axis name).
//
//   Params g = pmean(grad(loss)(p, batch), "data");
//
// The type of a value records the axes over which it varies, as in JAX's shard_map. psum, pmean, pmax, pmin
// and pbroadcast make a value invariant over their axes. An operation on an invariant and a varying operand
// first makes the invariant one varying (pvary); the gradient of pvary is psum. So gradients of replicated
// parameters are summed over the devices automatically.
//
// psum, pmean, pmax and pmin also take trees. Safe to call from any thread. Throws Error when an axis is not
// in scope.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/operand.h"
#include "lockstep/tree.h"

namespace lockstep {

// One mesh axis, or several treated as one; the first is outermost. There is no std::initializer_list
// constructor, for the reason given at Axes.
struct AxisNames {
  AxisNames(const char* name) : names{name} {}             // NOLINT: reads as an argument
  AxisNames(std::string name) : names{std::move(name)} {}  // NOLINT
  template <std::convertible_to<std::string>... T>
  requires(sizeof...(T) != 1) AxisNames(T... list) : names{std::string(std::move(list))...} {}  // NOLINT
  AxisNames(std::vector<std::string> list) : names(std::move(list)) {}                          // NOLINT
  std::vector<std::string> names;
};

// The sum, mean, maximum and minimum over the devices.
Array psum(const Operand& x, const AxisNames& axes);
Array pmean(const Operand& x, const AxisNames& axes);
Array pmax(const Operand& x, const AxisNames& axes);
Array pmin(const Operand& x, const AxisNames& axes);

template <class T>
concept TreeNotArray = !std::is_convertible_v<T, Array>;
template <TreeNotArray T>
T psum(const T& tree, const AxisNames& axes, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return tree_map([&](const Array& x) { return psum(x, axes); }, tree);
}
template <TreeNotArray T>
T pmean(const T& tree, const AxisNames& axes, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return tree_map([&](const Array& x) { return pmean(x, axes); }, tree);
}
template <TreeNotArray T>
T pmax(const T& tree, const AxisNames& axes, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return tree_map([&](const Array& x) { return pmax(x, axes); }, tree);
}
template <TreeNotArray T>
T pmin(const T& tree, const AxisNames& axes, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return tree_map([&](const Array& x) { return pmin(x, axes); }, tree);
}

struct GatherOptions {
  int64_t axis = 0;    // the dimension along which values are gathered
  bool tiled = false;  // concatenate along that dimension instead of stacking along a new one
};
// Gathers the values of all devices.
Array all_gather(const Operand& x, const AxisNames& axes, GatherOptions options = {});

struct ScatterOptions {
  int64_t axis = 0;    // the dimension that is scattered
  bool tiled = false;  // each device keeps a slice of the dimension; else one element, and the dimension is removed
};
// Sums over the devices; each device keeps its part of the sum.
Array psum_scatter(const Operand& x, const AxisNames& axes, ScatterOptions options = {});

// Scatters dimension `split` over the devices and concatenates what each receives along `concat`. If tiled,
// both dimensions remain: `split` gets shorter, `concat` longer. Otherwise the extent of `split` is the
// number of devices; `split` is removed and a new dimension is inserted at `concat`.
Array all_to_all(const Operand& x, const AxisNames& axes, int64_t split, int64_t concat, bool tiled = false);

// Sends values from device to device: for each pair {from, to}, `to` receives the value of `from`. Devices
// that receive nothing get zeros.
Array ppermute(const Operand& x, const AxisNames& axes, const std::vector<std::pair<int64_t, int64_t>>& pairs);

// Sends the value of device `source` to all devices.
Array pbroadcast(const Operand& x, const AxisNames& axes, int64_t source);

// axis_index: the device's position along the axes (i32). axis_size: the number of devices along them.
Array axis_index(const AxisNames& axes, SourceLine at = SourceLine::here());
int64_t axis_size(const AxisNames& axes, SourceLine at = SourceLine::here());

// Marks x as varying over the axes. Its value does not change. Gradients with respect to the result are each
// device's own instead of the sum over devices.
Array pvary(const Operand& x, const AxisNames& axes);

namespace detail {

// Whether the calling thread runs per-device code over an axis of this name.
bool is_axis_in_scope(const std::string& name);

// Brings a named axis into scope for collectives of the calling thread, until destroyed. Throws Error when an
// axis of this name is in scope already.
class AxisScope {
 public:
  AxisScope(std::string name, int64_t size);
  ~AxisScope();
  AxisScope(const AxisScope&) = delete;
  AxisScope& operator=(const AxisScope&) = delete;
};

}  // namespace detail
}  // namespace lockstep
