#include "sharding/lanes.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep {

int64_t LaneGrid::lanes() const {
  int64_t n = 1;
  for (const LaneAxis& axis : axes) n *= axis.size;
  return n;
}

const LaneAxis* LaneGrid::find(std::string_view axis) const {
  for (const LaneAxis& each : axes)
    if (each.name == axis) return &each;
  return nullptr;
}

std::vector<int64_t> LaneGrid::coordinates(int64_t lane) const {
  std::vector<int64_t> out(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    out[i] = lane % axes[i].size;
    lane /= axes[i].size;
  }
  return out;
}

LaneGrid lane_grid(const Mesh& mesh, int64_t lanes) {
  if (lanes <= 1 || !mesh.defined() || mesh.size() % lanes != 0) return {};
  LaneGrid grid;
  int64_t left = lanes;  // number of lanes to distribute over the remaining axes
  for (size_t i = 0; i < mesh.shape().size(); ++i) {
    const int64_t extent = mesh.shape()[i];
    if (left == 1) break;
    const int64_t crossing = std::min(extent, left);
    if (extent % crossing != 0 || left % crossing != 0) return {};
    left /= crossing;
    if (crossing > 1) grid.axes.push_back({mesh.axis_names()[i], crossing, extent / crossing});
  }
  return left == 1 ? grid : LaneGrid();
}

LaneSpec to_lane_spec(const LaneGrid& grid, const PartitionSpec& spec, size_t rank) {
  LaneSpec lane_spec(rank);
  for (size_t d = 0; d < std::min(rank, spec.entries.size()); ++d)
    for (const std::string& axis : spec.entries[d].axes)
      if (grid.find(axis)) lane_spec[d].push_back(axis);
  return lane_spec;
}

std::string join_axes(const std::vector<std::string>& axes) {
  std::string out;
  for (const std::string& axis : axes) out += (out.empty() ? "" : ",") + axis;
  return out;
}

std::vector<std::string> split_axes(std::string_view text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

int64_t lanes_along(const LaneGrid& grid, const std::vector<std::string>& axes) {
  int64_t n = 1;
  for (const std::string& axis : axes) n *= grid.find(axis)->size;
  return n;
}

int64_t position_along(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t lane) {
  const std::vector<int64_t> at = grid.coordinates(lane);
  int64_t position = 0;
  for (const std::string& axis : axes) {
    const auto i = static_cast<size_t>(grid.find(axis) - grid.axes.data());
    position = position * grid.axes[i].size + at[i];
  }
  return position;
}

std::vector<int64_t> lane_group(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t lane) {
  std::vector<std::string> others;
  for (const LaneAxis& axis : grid.axes)
    if (std::find(axes.begin(), axes.end(), axis.name) == axes.end()) others.push_back(axis.name);
  std::vector<int64_t> group(static_cast<size_t>(lanes_along(grid, axes)));
  for (int64_t other = 0; other < grid.lanes(); ++other)
    if (position_along(grid, others, other) == position_along(grid, others, lane))
      group[static_cast<size_t>(position_along(grid, axes, other))] = other;
  return group;
}

Range lane_range(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t extent, int64_t position) {
  int64_t inside = 1;
  for (const std::string& axis : axes) inside *= grid.find(axis)->inside;
  const int64_t pieces = lanes_along(grid, axes) * inside;
  return {shard_range(extent, pieces, position * inside).begin,
          shard_range(extent, pieces, position * inside + inside - 1).end};
}

IndexBox lane_box(const LaneGrid& grid, const LaneSpec& lane_spec, const Shape& shape, int64_t lane) {
  IndexBox box;
  for (size_t d = 0; d < shape.size(); ++d)
    box.push_back(lane_spec[d].empty()
                      ? Range{0, shape[d]}
                      : lane_range(grid, lane_spec[d], shape[d], position_along(grid, lane_spec[d], lane)));
  return box;
}

}  // namespace lockstep
