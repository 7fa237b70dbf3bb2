// Cells: the shards of an array of at most two dimensions as a table, from which text and SVG are drawn. A
// vector is one row, a scalar one cell. Plain values.
#pragma once

#include <string>
#include <vector>

#include "lockstep/sharding.h"

namespace lockstep::detail {

struct Cell {
  std::vector<int> ids;  // of the devices that hold the shard, ascending
  std::string indices;   // "[0:43, 0:784]"
};

struct Cells {
  std::vector<int64_t> heights, widths;  // extents of the rows and columns of the table
  std::vector<Cell> cells;               // row-major
  std::string platform;                  // "CPU", "GPU"
  bool uneven = false;

  size_t rows() const { return heights.size(); }
  size_t columns() const { return widths.size(); }
  const Cell& at(size_t row, size_t column) const { return cells[row * columns() + column]; }
};

// Builds the table. Throws Error when the shape has more than two dimensions or the sharding does not fit it.
Cells make_cells(const NamedSharding&, const Shape&);

// The label of a cell, "CPU 0,1,2,3", in lines of at most `width` characters where possible.
std::vector<std::string> label_lines(const Cells&, const Cell&, size_t width);

}  // namespace lockstep::detail
