#include "sharding/cells.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace lockstep::detail {
namespace {

std::vector<int64_t> extents(int64_t extent, int64_t pieces) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < pieces; ++i) sizes.push_back(shard_range(extent, pieces, i).size());
  return sizes;
}

}  // namespace

Cells make_cells(const NamedSharding& sharding, const Shape& shape) {
  const size_t rank = shape.size();
  if (rank > 2)
    throw_error("visualize_sharding: {} has {} dimensions; at most 2 can be drawn: pass two of the dimensions",
                to_string(shape), rank);
  const std::vector<DeviceIndices> map = sharding.devices_indices_map(shape);
  const int64_t column_dimension = rank == 2 ? 1 : 0;

  Cells table;
  table.platform = sharding.mesh().devices()[0].platform == Platform::cpu ? "CPU" : "GPU";
  table.heights = rank == 2 ? extents(shape[0], sharding.num_shards(0)) : std::vector<int64_t>{1};
  table.widths = rank > 0 ? extents(shape[rank - 1], sharding.num_shards(column_dimension)) : std::vector<int64_t>{1};
  // The first shard is the largest, the last the smallest.
  table.uneven = table.heights.front() != table.heights.back() || table.widths.front() != table.widths.back();
  table.cells.resize(table.rows() * table.columns());
  for (size_t i = 0; i < map.size(); ++i) {
    const int64_t position = static_cast<int64_t>(i);
    const size_t row = rank == 2 ? static_cast<size_t>(sharding.piece(0, position)) : 0;
    const size_t column = rank > 0 ? static_cast<size_t>(sharding.piece(column_dimension, position)) : 0;
    Cell& cell = table.cells[row * table.columns() + column];
    cell.ids.push_back(map[i].device.id);
    std::vector<std::string> ranges;
    for (const Range& range : map[i].box) ranges.push_back(to_string(range));
    cell.indices = fmt::format("[{}]", fmt::join(ranges, ", "));
  }
  for (Cell& cell : table.cells) std::sort(cell.ids.begin(), cell.ids.end());
  return table;
}

std::vector<std::string> label_lines(const Cells& table, const Cell& cell, size_t width) {
  std::vector<std::string> lines;
  std::string line = table.platform + " ";
  bool fresh = true;
  for (size_t i = 0; i < cell.ids.size(); ++i) {
    const std::string number = fmt::format("{}{}", cell.ids[i], i + 1 < cell.ids.size() ? "," : "");
    if (!fresh && line.size() + number.size() > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    line += number;
    fresh = false;
  }
  lines.push_back(std::move(line));
  return lines;
}

}  // namespace lockstep::detail
