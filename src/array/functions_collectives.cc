#include <fmt/ranges.h>

#include <algorithm>

#include "array/apply.h"
#include "base/check.h"
#include "lockstep/collectives.h"
#include "lockstep/ops.h"
#include "ops/collectives.h"
#include "ops/dims.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

struct NamedAxis {
  std::string name;
  int64_t size;
};
thread_local std::vector<NamedAxis> axes_in_scope;

int64_t size_of_axis(const char* what, const std::string& name) {
  for (auto axis = axes_in_scope.rbegin(); axis != axes_in_scope.rend(); ++axis)
    if (axis->name == name) return axis->size;
  if (axes_in_scope.empty())
    throw_error(
        "{}: axis \"{}\" is not in scope; under plain jit values are global (a mean is the mean over all devices) and "
        "need no collective; use shard_map for per-device code",
        what, name);
  std::vector<std::string> known;
  for (const NamedAxis& axis : axes_in_scope) known.push_back(axis.name);
  throw_error("{}: axis \"{}\" is not in scope; use one of \"{}\"", what, name, fmt::join(known, "\", \""));
}

int64_t total_size(const char* what, const AxisNames& axes) {
  if (axes.names.empty()) throw_error("{}: no axis name given; give one or more", what);
  int64_t n = 1;
  for (const std::string& name : axes.names) n *= size_of_axis(what, name);
  return n;
}

int64_t dimension(const char* what, int64_t axis, int64_t rank, const Array& x) {
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank)
    throw_error("{}: axis {} is out of range for {}; valid axes: {} to {}", what, axis, to_string(x.type()), -rank,
                rank - 1);
  return at;
}

template <class F>
Array reduce_over(const char* what, const Array& x, const AxisNames& axes, F f) {
  total_size(what, axes);
  return detail::apply1(what, {x}, [&](Builder&, const Values& v) {
    Value y = v[0];
    for (const std::string& axis : axes.names) y = f(y, axis);
    return y;
  });
}

// Split dimension d of extent n * k into two, [n, k], and merge dimensions d and d + 1 into one.
Value split_dim(Value x, int64_t d, int64_t n) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(d)] /= n;
  shape.insert(shape.begin() + d, n);
  return reshape(x, shape);
}
Value merge(Value x, int64_t d) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(d)] *= shape[static_cast<size_t>(d + 1)];
  shape.erase(shape.begin() + d + 1);
  return reshape(x, shape);
}

void check_divides(const char* what, const Array& x, int64_t dim, int64_t n, bool tiled) {
  const int64_t extent = x.shape()[static_cast<size_t>(dim)];
  if (tiled ? extent % n != 0 : extent != n)
    throw_error("{}: dimension {} of {} is scattered over {} devices; its extent must be {}", what, dim,
                to_string(x.type()), n,
                tiled ? fmt::format("a multiple of {}", n) : fmt::format("{}, or set tiled", n));
}

}  // namespace

namespace detail {

bool is_axis_in_scope(const std::string& name) {
  return std::any_of(axes_in_scope.begin(), axes_in_scope.end(),
                     [&](const NamedAxis& axis) { return axis.name == name; });
}

AxisScope::AxisScope(std::string name, int64_t size) {
  for (const NamedAxis& axis : axes_in_scope)
    if (axis.name == name) throw_error("axis \"{}\" is already in scope; rename the inner axis", name);
  axes_in_scope.push_back({std::move(name), size});
}
AxisScope::~AxisScope() { axes_in_scope.pop_back(); }

}  // namespace detail

Array psum(const Operand& x, const AxisNames& axes) {
  return reduce_over("psum", x.dtype() == boolean ? astype(x, i32) : Array(x), axes,
                     [](Value v, const std::string& axis) { return psum(v, axis); });
}
Array pmean(const Operand& x, const AxisNames& axes) {
  const int64_t n = total_size("pmean", axes);
  return psum(x, axes) / n;
}
Array pmax(const Operand& x, const AxisNames& axes) {
  return reduce_over("pmax", x, axes, [](Value v, const std::string& axis) { return pmax(v, axis); });
}
Array pmin(const Operand& x, const AxisNames& axes) {
  return reduce_over("pmin", x, axes, [](Value v, const std::string& axis) { return pmin(v, axis); });
}
Array pvary(const Operand& x, const AxisNames& axes) {
  return reduce_over("pvary", x, axes, [](Value v, const std::string& axis) { return pvary(v, axis); });
}

Array all_gather(const Operand& x, const AxisNames& axes, GatherOptions options) {
  total_size("all_gather", axes);
  const int64_t dim = dimension("all_gather", options.axis, x.rank() + (options.tiled ? 0 : 1), x);
  return detail::apply1("all_gather", {x}, [&](Builder&, const Values& v) {
    // The innermost axis first; each outer one is inserted in front.
    Value y = v[0];
    for (size_t i = axes.names.size(); i-- > 0;) {
      y = all_gather(y, axes.names[i], size_of_axis("all_gather", axes.names[i]), dim);
      if (options.tiled || i + 1 < axes.names.size()) y = merge(y, dim);
    }
    return y;
  });
}

Array psum_scatter(const Operand& x, const AxisNames& axes, ScatterOptions options) {
  const int64_t n = total_size("psum_scatter", axes), dim = dimension("psum_scatter", options.axis, x.rank(), x);
  check_divides("psum_scatter", x, dim, n, options.tiled);
  return detail::apply1("psum_scatter", {x}, [&](Builder&, const Values& v) {
    Value y = v[0];
    for (const std::string& axis : axes.names) {  // the outermost first
      const int64_t size = size_of_axis("psum_scatter", axis);
      y = psum_scatter(split_dim(y, dim, size), axis, size, dim);
    }
    if (options.tiled) return y;
    Shape shape = y.shape();  // one element is left
    shape.erase(shape.begin() + dim);
    return reshape(y, shape);
  });
}

Array all_to_all(const Operand& x, const AxisNames& axes, int64_t split, int64_t concat, bool tiled) {
  const int64_t n = total_size("all_to_all", axes), from = dimension("all_to_all", split, x.rank(), x),
                to = dimension("all_to_all", concat, x.rank(), x);
  check_divides("all_to_all", x, from, n, tiled);
  return detail::apply1("all_to_all", {x}, [&](Builder&, const Values& v) {
    Value y = tiled ? split_dim(v[0], from, n) : v[0];
    // Dimension `from` holds the destinations, outermost axis first; afterwards the sources.
    for (size_t i = axes.names.size(); i-- > 1;) {
      Shape shape = y.shape();
      const int64_t size = size_of_axis("all_to_all", axes.names[i]);
      shape[static_cast<size_t>(from)] /= size;
      shape.insert(shape.begin() + from + 1, size);
      y = reshape(y, shape);
    }
    for (size_t i = 0; i < axes.names.size(); ++i)
      y = all_to_all(y, axes.names[i], size_of_axis("all_to_all", axes.names[i]), from + static_cast<int64_t>(i));
    for (size_t i = 1; i < axes.names.size(); ++i) y = merge(y, from);
    y = transpose(y, move_dim(y.rank(), from, to));
    return tiled ? merge(y, to) : y;
  });
}

Array ppermute(const Operand& x, const AxisNames& axes, const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  const int64_t n = total_size("ppermute", axes);
  if (axes.names.size() == 1) {
    std::vector<int64_t> flat;
    for (const auto& [from, to] : pairs) flat.insert(flat.end(), {from, to});
    return detail::apply1("ppermute", {x},
                          [&](Builder&, const Values& v) { return ppermute(v[0], axes.names[0], n, flat); });
  }
  // Several axes: gather all values, and select by a table of sources.
  std::vector<int32_t> source(static_cast<size_t>(n), -1);
  std::vector<bool> sends(static_cast<size_t>(n), false);
  for (const auto& [from, to] : pairs) {
    if (from < 0 || from >= n || to < 0 || to >= n)
      throw_error("ppermute: pair {{{}, {}}} is out of range for {} devices; valid positions: 0 to {}", from, to, n,
                  n - 1);
    if (sends[static_cast<size_t>(from)])
      throw_error("ppermute: source {} appears twice; a device sends to one other: use all_gather to send to several",
                  from);
    if (source[static_cast<size_t>(to)] >= 0)
      throw_error("ppermute: destination {} appears twice; a device receives from one other: remove a pair", to);
    sends[static_cast<size_t>(from)] = true;
    source[static_cast<size_t>(to)] = static_cast<int32_t>(from);
  }
  const Array mine = take(Array::from(source, {n}), axis_index(axes));
  return where(mine < 0, zeros_like(x), take(all_gather(x, axes), maximum(mine, 0)));
}

Array pbroadcast(const Operand& x, const AxisNames& axes, int64_t source) {
  const int64_t n = total_size("pbroadcast", axes);
  if (source < 0 || source >= n)
    throw_error("pbroadcast: source {} is out of range for {} devices; valid positions: 0 to {}", source, n, n - 1);
  const Array sent = psum(where(axis_index(axes) == source, x, zeros_like(x)), axes);
  return x.dtype() == boolean ? sent != 0 : sent;
}

Array axis_index(const AxisNames& axes, SourceLine at) {
  const detail::CallerLine line(at);
  total_size("axis_index", axes);
  Array position = 0;
  for (const std::string& axis : axes.names) {
    const int64_t size = size_of_axis("axis_index", axis);
    position = position * size +
               detail::apply1("axis_index", {}, [&](Builder& b, const Values&) { return axis_index(b, axis, size); });
  }
  return position;
}

int64_t axis_size(const AxisNames& axes, SourceLine at) {
  const detail::CallerLine line(at);
  return total_size("axis_size", axes);
}

}  // namespace lockstep
