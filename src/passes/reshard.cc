#include "passes/reshard.h"

#include <algorithm>

#include "base/check.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using Axes = std::vector<std::string>;

bool has_axis(const Axes& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool is_used(const LaneSpec& lane_spec, const std::string& axis) {
  return std::any_of(lane_spec.begin(), lane_spec.end(), [&](const Axes& axes) { return has_axis(axes, axis); });
}

bool is_prefix(const Axes& a, const Axes& b) {
  return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
}

Axes without_last(Axes axes) {
  axes.pop_back();
  return axes;
}

// Dimension d first, the others in order; and back.
Value to_front(Value x, size_t d) {
  if (d == 0) return x;
  std::vector<int64_t> order{static_cast<int64_t>(d)};
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != static_cast<int64_t>(d)) order.push_back(i);
  return transpose(x, order);
}
Value from_front(Value x, size_t d) {
  if (d == 0) return x;
  std::vector<int64_t> order;
  for (int64_t i = 1; i < x.rank(); ++i) order.push_back(i);
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(d), 0);
  return transpose(x, order);
}

Value slice_dim(Value x, size_t d, int64_t begin, int64_t end) {
  std::vector<int64_t> starts(x.shape().size(), 0), limits = x.shape(), strides(x.shape().size(), 1);
  starts[d] = begin;
  limits[d] = end;
  return slice(x, starts, limits, strides);
}

}  // namespace

LaneGroup Resharder::group(const Axes& axes) const { return {axes, position_along(grid_, axes, lane_)}; }

std::vector<int64_t> Resharder::counts(const Axes& before, const Axes& more, int64_t extent) const {
  Axes all = before;
  all.insert(all.end(), more.begin(), more.end());
  const int64_t n = lanes_along(grid_, more), first = position_along(grid_, before, lane_) * n;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(lane_range(grid_, all, extent, first + i).size());
  return out;
}

bool Resharder::nested(const Axes& before, const Axes& more, int64_t extent) const {
  if (before.empty()) return true;
  Axes all = before;
  all.insert(all.end(), more.begin(), more.end());
  const int64_t n = lanes_along(grid_, more);
  for (int64_t i = 0; i < lanes_along(grid_, before); ++i) {
    const Range outer = lane_range(grid_, before, extent, i);
    if (lane_range(grid_, all, extent, i * n).begin != outer.begin ||
        lane_range(grid_, all, extent, i * n + n - 1).end != outer.end)
      return false;
  }
  return true;
}

bool Resharder::is_intermediate(Axes before, const Axes& more, const Axes& to, int64_t extent) const {
  if (!nested(before, more, extent)) return false;
  before.insert(before.end(), more.begin(), more.end());
  return nested(before, Axes(to.begin() + static_cast<std::ptrdiff_t>(before.size()), to.end()), extent);
}

Value Resharder::reduce_over(Value x, LaneLayout& layout, const Axes& axes) const {
  if (axes.empty()) return x;
  x = lane_all_reduce({x}, group(axes), layout.kind)[0];
  std::erase_if(layout.partial, [&](const std::string& axis) { return has_axis(axes, axis); });
  if (layout.partial.empty()) layout.kind = PendingReduction::none;
  return x;
}

Value Resharder::reduce(Value x, LaneLayout& layout) const { return reduce_over(x, layout, Axes(layout.partial)); }

bool Resharder::scatter(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const {
  for (size_t d = 0; d < to.size(); ++d) {
    const Axes& before = layout.lane_spec[d];
    if (!is_prefix(before, to[d])) continue;
    // Over as many axes of the new lane spec as the value is partial over.
    Axes more;
    for (size_t i = before.size(); i < to[d].size() && has_axis(layout.partial, to[d][i]); ++i)
      more.push_back(to[d][i]);
    while (!more.empty() && !is_intermediate(before, more, to[d], global[d])) more.pop_back();
    if (more.empty()) continue;
    x = from_front(lane_reduce_scatter(to_front(x, d), group(more), counts(before, more, global[d]), layout.kind), d);
    layout.lane_spec[d].insert(layout.lane_spec[d].end(), more.begin(), more.end());
    std::erase_if(layout.partial, [&](const std::string& axis) { return has_axis(more, axis); });
    if (layout.partial.empty()) layout.kind = PendingReduction::none;
    return true;
  }
  return false;
}

bool Resharder::slice_one(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const {
  for (size_t d = 0; d < to.size(); ++d) {
    const Axes& before = layout.lane_spec[d];
    if (before.size() >= to[d].size() || !is_prefix(before, to[d])) continue;
    const Axes more(to[d].begin() + static_cast<std::ptrdiff_t>(before.size()), to[d].end());
    if (std::any_of(more.begin(), more.end(), [&](const std::string& axis) { return is_used(layout.lane_spec, axis); }))
      continue;
    if (!nested(before, more, global[d])) continue;
    const int64_t base = lane_range(grid_, before, global[d], position_along(grid_, before, lane_)).begin;
    const Range own = lane_range(grid_, to[d], global[d], position_along(grid_, to[d], lane_));
    x = slice_dim(x, d, own.begin - base, own.end - base);
    layout.lane_spec[d] = to[d];
    return true;
  }
  return false;
}

bool Resharder::exchange(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const {
  for (size_t d = 0; d < to.size(); ++d) {
    if (layout.lane_spec[d].empty() || is_prefix(layout.lane_spec[d], to[d])) continue;
    const std::string axis = layout.lane_spec[d].back();
    const Axes before_d = without_last(layout.lane_spec[d]);
    if (!nested(before_d, {axis}, global[d])) continue;
    for (size_t e = 0; e < to.size(); ++e) {
      if (e == d || to[e].size() <= layout.lane_spec[e].size() || !is_prefix(layout.lane_spec[e], to[e]) ||
          to[e][layout.lane_spec[e].size()] != axis || !nested(layout.lane_spec[e], {axis}, global[e]))
        continue;
      const LaneGroup lanes = group({axis});
      const std::vector<int64_t> rows_d = counts(before_d, {axis}, global[d]),
                                 rows_e = counts(layout.lane_spec[e], {axis}, global[e]);
      const auto own = static_cast<size_t>(lanes.index);
      // Sends one block of dimension e to each lane; receives blocks of dimension d.
      const Value front = to_front(x, e);
      const int64_t elements = count(x.shape()), extent_e = front.shape()[0];
      std::vector<int64_t> send, receive;
      const int64_t per_row = extent_e > 0 ? elements / extent_e : 0;
      Shape rest = front.shape();  // with e first
      const size_t d_at = d < e ? d + 1 : d;
      rest[d_at] = 1;
      rest[0] = 1;
      const int64_t others = count(rest);
      for (size_t j = 0; j < rows_e.size(); ++j) {
        send.push_back(rows_e[j] * per_row);
        receive.push_back(rows_e[own] * rows_d[j] * others);
      }
      const Value flat = lane_all_to_all(reshape(front, {elements}), lanes, send, receive);
      Values blocks;
      int64_t at = 0;
      for (size_t j = 0; j < receive.size(); ++j) {
        Shape shape = rest;
        shape[0] = rows_e[own];
        shape[d_at] = rows_d[j];
        blocks.push_back(reshape(slice_dim(flat, 0, at, at + receive[j]), shape));
        at += receive[j];
      }
      x = from_front(concatenate(blocks, static_cast<int64_t>(d_at)), e);
      layout.lane_spec[d].pop_back();
      layout.lane_spec[e].push_back(axis);
      return true;
    }
  }
  return false;
}

bool Resharder::gather(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const {
  for (size_t d = 0; d < to.size(); ++d) {
    if (layout.lane_spec[d] == to[d] || layout.lane_spec[d].empty()) continue;
    const bool extends = is_prefix(layout.lane_spec[d], to[d]);  // the new axes begin with the current ones
    // Gathers along an axis that the new layout also has only if the new pieces do not lie within the current one.
    const Axes rest_of_to(to[d].begin() + static_cast<std::ptrdiff_t>(extends ? layout.lane_spec[d].size() : 0),
                          to[d].end());
    if (extends && nested(layout.lane_spec[d], rest_of_to, global[d])) continue;
    Axes before = without_last(layout.lane_spec[d]), last{layout.lane_spec[d].back()};
    if (!nested(before, last, global[d])) {
      last = layout.lane_spec[d];
      before.clear();
    }
    x = from_front(lane_all_gather(to_front(x, d), group(last), counts(before, last, global[d])), d);
    layout.lane_spec[d] = before;
    return true;
  }
  return false;
}

Value Resharder::with_halo(Value x, size_t d, const Axes& axes, int64_t extent, Halo halo) const {
  const LaneGroup lanes = group(axes);
  const Value front = to_front(x, d);
  Shape rest = front.shape();
  const int64_t rows = rest[0], n = lanes_along(grid_, axes);
  rest[0] = 1;
  const int64_t per_row = count(rest);
  LOCKSTEP_CHECK(lane_range(grid_, axes, extent, lanes.index).size() == rows, "a shard of {} elements", rows);
  if (n == 1) return x;
  // All lanes have the same equations, as a schedule requires: the lanes at the ends exchange nothing with the neighbor
  // that they do not have.
  const bool has_previous = lanes.index > 0, has_next = lanes.index + 1 < n;
  const int64_t before = has_previous ? halo.before : 0, after = has_next ? halo.after : 0;
  const int64_t to_previous = has_previous ? halo.after : 0, to_next = has_next ? halo.before : 0;
  std::vector<int64_t> send(static_cast<size_t>(n), 0), receive = send;
  const auto at = static_cast<size_t>(lanes.index);
  if (has_previous) {
    send[at - 1] = to_previous * per_row;
    receive[at - 1] = before * per_row;
  }
  if (has_next) {
    send[at + 1] = to_next * per_row;
    receive[at + 1] = after * per_row;
  }
  const auto flat = [&](Value part) { return reshape(part, {count(part.shape())}); };
  const Value sent =
      concatenate({flat(slice_dim(front, 0, 0, to_previous)), flat(slice_dim(front, 0, rows - to_next, rows))}, 0);
  const Value got = lane_all_to_all(sent, lanes, send, receive);
  const auto border = [&](int64_t begin, int64_t length) {
    Shape shape = rest;
    shape[0] = length;
    return reshape(slice_dim(got, 0, begin * per_row, (begin + length) * per_row), shape);
  };
  return from_front(concatenate({border(0, before), front, border(before, after)}, 0), d);
}

Value Resharder::move(Value x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const {
  while (scatter(x, global, layout, to)) {
  }
  // A value must not be partial over an axis that shards it.
  Axes due;
  for (const std::string& axis : layout.partial)
    if (is_used(to, axis)) due.push_back(axis);
  x = reduce_over(x, layout, due);
  while (layout.lane_spec != to) {
    if (slice_one(x, global, layout, to) || exchange(x, global, layout, to)) continue;
    // Reduce before gathering: there is less to sum.
    x = reduce(x, layout);
    const bool gathered = gather(x, global, layout, to);
    LOCKSTEP_CHECK(gathered, "no step leads from one layout to the other");
  }
  return x;
}

}  // namespace lockstep
